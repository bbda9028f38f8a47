//! Drivers of storage and of devices register themselves: a socket in `plugins_registry` says name and endpoint of a driver.
//!
//! - [`drivers`] who is registered
//! - [`watcher`] sockets that come and go
//! - [`register`] asking a driver who it is
//! - [`csinode`] telling the cluster: CSINode, labels, annotation

pub mod csinode;
pub mod drivers;
pub mod register;
pub mod watcher;

pub use drivers::{Capabilities, Driver, Drivers};
