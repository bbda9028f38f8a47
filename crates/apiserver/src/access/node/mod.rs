//! What nodes may do.
//!
//! - [`graph`] which objects lead to which node
//! - [`rules`] the decision

pub mod graph;
pub mod rules;
