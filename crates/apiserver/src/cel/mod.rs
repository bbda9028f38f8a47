//! What expressions about one request know of this server; the language itself is `trine-cel`.
//!
//! - `authorizer` asking whether somebody may do something
//! - [`Types`] what types an expression's parts have, by the schema of an object

mod authorizer;
mod types;

pub use authorizer::Asking;
pub use types::Types;
