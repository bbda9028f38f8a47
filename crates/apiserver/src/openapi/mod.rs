//! The published description of what is served: OpenAPI v3, one document per group and version, and the older form with all
//! groups in one, made from the table of types when they are first asked for.
//!
//! - [`OpenApi`] the index and the documents
//! - `schemas` the types of a document
//! - `paths` its operations
//! - `v2` the older form; `gnostic` its protobuf

mod documents;
mod gnostic;
mod paths;
mod schemas;
mod v2;

pub use documents::{Document, OpenApi};
