//! Whether this node takes a Pod that was bound to it. A Pod that it does not take fails at once, with upstream's words; one
//! that it took once is never asked again.
//!
//! - [`plan`] the decision, purely
//! - [`sysctls`] which kernel settings a Pod may have

pub mod plan;
pub mod sysctls;

pub use plan::{Refusal, admit, short, was_taken};
