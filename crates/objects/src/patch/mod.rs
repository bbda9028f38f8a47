//! The ways to change an object by a patch.
//!
//! - [`json`](json()) operations on paths (RFC 6902)
//! - [`merge`](merge()) a partial object, lists replaced whole (RFC 7396)
//! - [`strategic`](strategic()) a partial object whose lists are merged by the marks of the schema

mod json;
mod merge;
mod order;
mod strategic;

pub use json::json;
pub use merge::merge;
pub use strategic::strategic;

/// Why a patch was refused. Display is one line fit for a Status message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The patch itself is malformed (400).
    #[error("{0}")]
    Malformed(String),
    /// It has more operations than are allowed (413).
    #[error("{0}")]
    TooLarge(String),
    /// It is well-formed but cannot be applied to this object (422).
    #[error("{0}")]
    Inapplicable(String),
}
