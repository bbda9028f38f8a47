//! The types of all kinds: which fields, of which type, merged how, where on the wire.
//!
//! - [`of`], [`named`] find a type in the table generated from the release's published definitions (`cargo xtask
//!   descriptors`)
//! - [`Structural`] the schema of a custom resource, and its defaults
//! - [`SchemaRef`] one view of both, which everything that walks objects takes
//! - [`check`] reports unknown fields and wrong types
//! - [`prune`] drops them

mod check;
mod prune;
mod structural;
mod table;
mod view;

pub use check::{FieldError, Problem, check};
pub use prune::prune;
pub use structural::{JsonType, Structural, StructuralList, Values};
pub use table::{Field, Kind, ListMark, Place, Simpler, Ty, Type, TypeId, named, of, source, types};
pub use view::{Keys, ListKind, ListRef, ObjectRef, Scalar, SchemaRef, Shape};
