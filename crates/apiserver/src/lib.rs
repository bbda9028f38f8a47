//! What is desired, and who may say so?
//!
//! - [`kinds`] what is particular to each kind: defaults, validation, columns
//! - [`openapi`] the published description of what is served

pub mod kinds;
pub mod openapi;
