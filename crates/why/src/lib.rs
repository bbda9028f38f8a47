//! Which plane holds this Pod up? Evidence from the API and the recorded steps, judged by pure rules; works on any
//! Kubernetes, since all but the steps comes from the API.
//!
//! - [`evidence`] what is read: the Pod, its events, its claims and theirs, nodes, steps
//! - [`rules`] one file for each plane; the first that has something to say wins
//! - [`verdict`] plane, step, cause, proof, next command
//! - [`trace`] the timeline of a Pod over the planes

pub mod evidence;
pub mod rules;
pub mod trace;
pub mod verdict;

pub use evidence::{Evidence, WhyError, gather};
pub use rules::judge;
pub use verdict::{Plane, Verdict};
