//! Is enough of the node left, and who has to leave when it is not?
//!
//! - [`thresholds`] what must be left, in upstream's words
//! - [`observe`] what is left now
//! - [`pressure`] what the Node says of it, and which Pods it keeps out
//! - [`usage`] what each Pod takes
//! - [`plan`] which Pod has to leave, purely
//! - [`evictor`] the loop; [`images`] what it removes before any Pod
//! - [`orders`] what it tells the Pods' workers

pub mod evictor;
pub mod images;
pub mod observe;
pub mod orders;
pub mod plan;
pub mod pressure;
pub mod thresholds;
pub mod usage;

pub use evictor::Evictor;
pub use orders::Orders;
pub use pressure::{Pressure, Pressures};
pub use thresholds::{Signal, Thresholds};
