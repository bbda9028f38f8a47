//! The HTTPS server of the node: what the API server proxies logs, exec and attach to.
//!
//! - [`server`] listening, the port, the routes
//! - [`tls`] certificates, and who the caller is
//! - [`auth`] whether the caller may
//! - [`pods`] lists and statistics
//! - [`logs`] the log endpoint; [`log_reader`] and [`log_line`] under it
//! - [`streams`] exec, attach and port-forward: bytes to and from the runtime's streaming server

pub mod auth;
pub mod log_line;
pub mod log_reader;
pub mod logs;
pub mod pods;
pub mod server;
pub mod streams;
pub mod tls;

pub use server::{Listening, listen};
