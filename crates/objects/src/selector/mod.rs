//! Selectors: which objects does a request or a spec mean?
//!
//! - [`label`] requirements on labels, from the text of a query or from a spec's `matchLabels` and `matchExpressions`
//! - [`field`] equality on a few named fields

pub mod field;
pub mod label;

/// Why a selector's text or object was refused. Display is one line fit for a Status message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(pub String);
