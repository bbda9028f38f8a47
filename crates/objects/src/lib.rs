//! What is a Kubernetes object?
//!
//! Pure knowledge about objects as JSON values: no I/O, no clock, no state.
//!
//! - [`names`] what may be a name
//! - [`quantity`] amounts: parse, compare, add, write in canonical form
//! - [`resources`] the table of served resources: names, verbs, subresources
//! - [`selector`] label and field selectors
//! - [`patch`] the ways to change an object by a patch

pub mod names;
pub mod patch;
pub mod quantity;
pub mod resources;
pub mod selector;
