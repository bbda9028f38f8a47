//! Certificates that clients ask for.
//!
//! - [`request`] what a request asks for (PKCS #10)
//! - [`admission`] who may approve and sign

pub mod admission;
pub mod request;
