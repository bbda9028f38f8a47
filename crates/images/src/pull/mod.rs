//! Images from registries: the distribution API over HTTP, with mirrors, tokens, lists of platforms and several layers
//! at once.

mod auth;
mod challenge;
mod endpoint;
mod error;
mod hosts;
mod layer;
mod manifest;
mod registry;
mod shared;

pub use auth::Auth;
pub use error::RegistryError;
pub(crate) use shared::Pulls;
