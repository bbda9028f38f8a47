//! The published description of what is served: OpenAPI v3, one document per group and version, and the older form with all
//! groups in one, made from the table of types when they are first asked for.
//!
//! - [`OpenApi`] the index and the documents
//! - `schemas` the types of a document
//! - `custom` the same of kinds that people defined; `words` what fields mean that every object has
//! - `paths` its operations
//! - [`Foreign`] what other servers publish
//! - `v2` the older form; `gnostic` its protobuf

mod custom;
mod documents;
mod foreign;
mod gnostic;
mod paths;
mod schemas;
mod v2;
mod words;

pub use documents::{Document, OpenApi};
pub use foreign::{Foreign, Swagger};
