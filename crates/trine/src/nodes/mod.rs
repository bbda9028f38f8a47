//! Further nodes on this machine: each a machine within it (network, mount and UTS namespaces) with a data dir of its own
//! below this one's, on a common bridge with the host, running `trine agent` as a child of `up`.
//!
//! - [`members`] their names and addresses (pure, in `plan`)
//! - [`network`] the bridge and the links
//! - `member` one node: its machine, its token, its process
//! - [`down`] their end, without a daemon

pub mod down;
mod member;
pub mod network;
mod plan;

pub use member::{Server, folders, machine, start};
pub use plan::{count, links, members, words};
