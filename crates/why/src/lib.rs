//! Which plane holds this Pod up?
//!
//! - [`trace`] the timeline of a Pod over the planes

pub mod trace;
