//! Certificates of Pods: a key pair that this node makes, and a certificate that a signer issues for it on request.
//!
//! - [`key`] the key pair, and the request in the form that signers read
//! - [`plan`] where a certificate stands, and what is due, purely
//! - [`store`] asks, looks, and keeps; the key is nowhere but in memory and in the Pod's volume

pub mod key;
pub mod plan;
pub mod store;

pub use plan::Issued;
pub use store::{Certificates, Found};
