//! From bytes to verbs and back.
//!
//! - [`serve`] the TLS listener: who is at the other end
//! - [`route`] which verb a request is, and its answer
//! - [`form`] objects, tables or metadata
//! - [`discovery`] what is served
//! - [`health`] which part of the server is well
//! - [`snapshot`] the whole store, for a backup
//! - [`stream`] logs and commands, passed on to the kubelet

pub mod discovery;
pub mod form;
mod health;
pub mod route;
pub mod serve;
mod snapshot;
pub mod stream;
