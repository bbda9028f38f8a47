//! What a bearer shows.
//!
//! - [`jwt`] signed claims, [`keys`] the key that signs
//! - [`claims`] what a ServiceAccount's token says
//! - [`accounts`] issues and reads tokens of ServiceAccounts
//! - [`bootstrap`] tokens with which a node joins
//! - [`request`] `serviceaccounts/NAME/token`
//! - [`discovery`] what others need to read our tokens

pub mod accounts;
pub mod bootstrap;
pub mod claims;
pub mod discovery;
pub mod jwt;
pub mod keys;
pub mod request;

pub use accounts::{TokenError, Tokens};
