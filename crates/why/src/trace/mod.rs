//! The timeline of a Pod over the planes.

mod gantt;
mod step;

pub use gantt::gantt;
pub use step::{Step, of_pod, read};
