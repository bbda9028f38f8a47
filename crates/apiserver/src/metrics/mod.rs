//! What the server counts about itself, under upstream's names, for Prometheus.
//!
//! - [`text`] the exposition format
//! - [`family`] counters and histograms by labels
//! - [`requests`] one request, from its arrival to its answer
//! - [`Decisions`] what webhooks and policies decided
//! - [`timed`] a store that takes the time of its calls
//! - [`process`] memory, time and files of this process
//! - [`page`] all of it: [`Metrics`]

mod decisions;
mod family;
mod page;
mod process;
mod requests;
mod text;
mod timed;

pub use decisions::{Decisions, Outcome};
pub use page::Metrics;
pub use requests::Pending;
pub use text::Page;
pub use timed::Timed;
