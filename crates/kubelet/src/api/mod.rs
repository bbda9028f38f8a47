//! The HTTPS server of the node: what the API server proxies logs, exec and attach to.
//!
//! - [`server`] listening, the port, the routes
//! - [`tls`] certificates, and who the caller is
//! - [`auth`] whether the caller may
//! - [`pods`] lists; [`summary`] and [`metrics`] what is used; [`configz`] the settings
//! - [`logs`] the log endpoint; [`log_reader`] and [`log_line`] under it
//! - [`streams`] exec, attach and port-forward: bytes to and from the runtime's streaming server

pub mod auth;
pub mod configz;
pub mod log_line;
pub mod log_reader;
pub mod logs;
pub mod metrics;
pub mod pods;
pub mod server;
pub mod streams;
pub mod summary;
pub mod tls;

pub use server::{Listening, listen};
