//! Several networks for a Pod, as users of Multus ask for them (network attachment specification 1.3), and what is said of it
//! between a kubelet and a runtime. All of it is pure.
//!
//! - [`selection`] what a Pod asks for in its annotations
//! - [`definition()`] the kind that says what a network is
//! - [`plan`] what that comes to: which links of which definitions
//! - [`attachments`] the sandbox annotation that a runtime gets, and what it answers
//! - [`status`] what is written on the Pod afterwards

pub mod attachments;
mod definition;
pub mod plan;
pub mod selection;
pub mod status;

pub use attachments::{Attached, Attachment, Attachments};
pub use definition::definition;
pub use plan::{Asked, Isolation};
pub use selection::Selection;

/// Why an annotation or a definition cannot be followed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unusable(pub String);

/// For `map_err` and `ok_or_else`.
pub(crate) fn unusable(why: impl Into<String>) -> Unusable {
    Unusable(why.into())
}
