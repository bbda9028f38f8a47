//! An etcd (3.5 or newer) as the store; several API servers may share one.
//!
//! Keys are those of the embedded backend behind a prefix, revisions are etcd's own. A write is a transaction that compares
//! the key's modification revision, the feed is a watch, a time to live is a lease.
//!
//! - [`wire`] etcd's messages, as far as they are used here
//! - [`client`] the calls, each with a deadline
//! - [`lease`] leases that keys with about the same end share
//! - [`watch`] the feed: one watch stream, begun again where it broke
//! - [`backend`] the handle: [`EtcdStore`]

pub mod backend;
mod client;
mod lease;
mod watch;
mod wire;

pub use backend::{EtcdStore, Settings};
