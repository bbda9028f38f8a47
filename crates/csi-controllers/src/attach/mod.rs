//! VolumeAttachments to attached volumes, and back: upstream's external-attacher.
//!
//! - [`plan`] which attachments are due
//! - `act` the calls and the writes

mod act;
pub mod plan;
mod watch;

pub(crate) use watch::run;
