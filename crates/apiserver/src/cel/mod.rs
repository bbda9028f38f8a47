//! Expressions of the Common Expression Language about one request: match conditions and policies. Source: KEP-3488, KEP-3716.
//!
//! `kube-cel` brings the functions, `cel` the parser and the interpreter. What the two do otherwise than upstream is put right
//! in the expression before it runs, see [`rewrite`]: a field of what has no fields is an error, optional values stay optional,
//! objects may be written down, variables are looked up when they are needed, and nothing runs for ever.
//!
//! - [`Expression`] one that was compiled, [`Known`] the names that it may use
//! - [`Run`] the values of one request, in which expressions are evaluated
//! - [`Types`] what types its parts have, by the schema of an object
//! - `authorizer` asking whether somebody may do something
//! - `macros`, `functions` what the crates lack
//! - [`bounded`], [`reading`], [`evaluating`] how deep an expression may be, and the stack for it
//! - `values` between JSON and what expressions see

mod authorizer;
mod expression;
mod functions;
mod macros;
mod rewrite;
mod run;
mod stack;
mod types;
mod values;

pub use authorizer::Asking;
pub use expression::{Expression, Known};
pub use run::{Bindings, Run, Variables};
pub use stack::{bounded, evaluating, reading};
pub use types::Types;
pub use values::to_json;
