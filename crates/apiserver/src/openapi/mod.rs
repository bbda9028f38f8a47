//! The published description of what is served: OpenAPI v3, one document per group and version, made from the table of types
//! when it is first asked for.
//!
//! - [`OpenApi`] the index and the documents
//! - `schemas` the types of a document
//! - `paths` its operations

mod documents;
mod paths;
mod schemas;

pub use documents::{Document, OpenApi};
