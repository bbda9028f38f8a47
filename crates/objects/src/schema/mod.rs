//! The types of all kinds: which fields, of which type, merged how.
//!
//! - [`of`], [`named`] find a type in the table generated from the release's published definitions (`cargo xtask
//!   descriptors`)
//! - [`check`] reports unknown fields and wrong types
//! - [`prune`] drops them

mod check;
mod prune;
mod table;

pub use check::{FieldError, Problem, check};
pub use prune::prune;
pub use table::{Field, Kind, ListMark, Ty, Type, named, of, source, types};
