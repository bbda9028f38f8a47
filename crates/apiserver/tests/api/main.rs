//! The API server as its clients see it.
//!
//! - `server` a server in a folder of its own, and calls to it without a network
//! - `objects` create, read, change; refusals; pages
//! - `applying` server-side apply, and who owns what
//! - `deletion` grace, finalizers, preconditions, namespaces
//! - `watching` watches and their beginnings
//! - `forms` tables, metadata alone, discovery, both forms of Events
//! - `network` TLS, certificates, streams to a kubelet
//! - `kubectl` the client that everybody uses
//! - `restart` what is left after a stop and after a kill

#![allow(clippy::unwrap_used)]

mod applying;
mod deletion;
mod forms;
mod kubectl;
mod network;
mod objects;
mod restart;
mod server;
mod watching;
