//! Are its processes running? The CRI runtime: sandboxes, containers, images, streams, on a unix socket.
//!
//! - [`serve`] the service on its socket, [`teardown`] the end of all that it made, without a daemon
//! - `cdi` devices by their names
//! - [`keeper`] one small process per Pod that outlives the daemon
//! - [`kept`] what was asked for, in the records of both
//! - [`container`], [`sandbox`] what happens on a call
//! - [`service`] the RPCs, one file per family; [`streaming`] exec and attach over WebSocket

#![forbid(unsafe_code)]

mod called;
mod cdi;
mod config;
pub mod container;
mod discarded;
mod error;
mod groups;
pub mod keeper;
pub mod kept;
mod restart;
mod runtime;
pub mod sandbox;
mod serve;
pub mod service;
pub mod streaming;
mod teardown;
mod undo;

pub use called::called_otherwise;
pub use config::Config;
pub use error::CriError;
pub use runtime::Runtime;
pub use serve::serve;
pub use teardown::{leave_groups, teardown};
