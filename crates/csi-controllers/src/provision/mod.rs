//! Claims to volumes, and back: upstream's external-provisioner.
//!
//! - [`plan`] which claims and volumes are due
//! - [`topology`] where a volume may be
//! - [`source`] what it is copied from
//! - [`request`] claim to request, answer to PersistentVolume
//! - `act` the calls and the writes

mod act;
pub mod plan;
pub mod request;
pub mod source;
pub mod topology;
mod watch;

pub(crate) use watch::run;
