//! The command line. Its words are a contract: scripts rely on them.
//!
//! - [`args`] the words; [`node_args`] those of a cluster in parts, [`alone_args`] those of one plane
//! - [`resources`] which kind a word means, and its REST path
//! - [`connect`] the client of a command: `--kubeconfig`, or the data dir's
//! - one file for each verb

pub mod alone_args;
pub mod api_args;
pub mod apply;
pub mod args;
pub mod connect;
pub mod delete;
pub mod describe;
pub mod exec;
pub mod get;
pub mod image;
pub mod logs;
pub mod node_args;
pub mod resources;
pub mod snapshot;
pub mod status;
pub mod token;
pub mod trace;
pub mod why;

pub use args::{Cli, Command};
