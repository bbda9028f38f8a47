//! Every decision of the driver, pure: from the record, the request and what was observed to what is to be done.
//!
//! - [`volume`] may it be made, attached, listed
//! - [`copy`] snapshots, and volumes made of others
//! - [`group`] snapshots of several volumes at one moment
//! - [`stage`] device, file system, mount
//! - [`target`] binding it where a Pod sees it
//! - [`leftover`] devices that nobody needs
//! - [`disk`] a disk of the pool's own, or files on the host's

pub mod copy;
pub mod disk;
pub mod group;
pub mod leftover;
pub mod stage;
pub mod target;
pub mod volume;
