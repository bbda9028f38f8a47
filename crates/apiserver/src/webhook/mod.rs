//! Calling those who have a say in the server's work: admission and conversion webhooks.
//!
//! - [`Endpoint`] where one is called, read from a `clientConfig`; it keeps its connections
//! - `place` from a URL or a Service to an address
//! - `trust` whose certificates are believed
//! - `said` what goes wrong, in the words that upstream's clients use

mod endpoint;
mod place;
mod said;
mod trust;

pub use endpoint::Endpoint;
pub(crate) use trust::{Verifier, believing, verifier};
