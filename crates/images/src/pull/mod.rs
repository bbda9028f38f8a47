//! Images from registries: the distribution API over HTTP, with tokens, lists of platforms and several layers at once.

mod challenge;
mod error;
mod layer;
mod manifest;
mod registry;
mod shared;

pub use error::RegistryError;
pub use registry::Auth;
pub(crate) use shared::Pulls;
