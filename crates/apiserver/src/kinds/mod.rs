//! What is particular to each kind of object. The verbs are the same for all kinds; here is what differs.
//!
//! - [`Hooks`] the seam: what the verbs ask of a kind
//! - [`Cause`], [`Invalid`] what validation answers
//! - [`Cx`] what a kind may ask of the rest: other objects, addresses and ports
//! - [`columns`] the columns of a table

mod cause;
mod columns;
mod cx;
mod generic;
mod hooks;

pub use cause::{Cause, CauseKind, Invalid};
pub use columns::Column;
pub use cx::{Cx, Objects};
pub use hooks::{Hooks, hooks};
