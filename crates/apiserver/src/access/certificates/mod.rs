//! Certificates that clients ask for.
//!
//! - [`request`] what a request asks for (PKCS #10)
//! - [`pem`] blocks of text that hold certificates
//! - [`admission`] who may approve and sign

pub mod admission;
pub mod pem;
pub mod request;
