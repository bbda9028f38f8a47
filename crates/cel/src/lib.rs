//! What does an expression say? The Common Expression Language as Kubernetes has it: about a request (match conditions and policies;
//! KEP-3488, KEP-3716), or about a device (selectors of claims and classes; KEP-4381).
//!
//! `kube-cel` brings the functions, `cel` the parser and the interpreter. What the two do otherwise than upstream is put right
//! in the expression before it runs, see `rewrite`: a field of what has no fields is an error, optional values stay optional,
//! objects may be written down, variables are looked up when they are needed, and nothing runs for ever.
//!
//! - [`Expression`] one that was compiled, [`Known`] the names that it may use
//! - [`Run`] the values of one request, in which expressions are evaluated; [`Names`] what brings names of its own
//! - [`Selecting`] evaluates what devices' selectors say, of each [`Device`]
//! - `macros`, `functions` what the crates lack
//! - [`bounded`], [`reading`], [`evaluating`] how deep an expression may be, and the stack for it; [`parse`] reads one
//! - `values` between JSON and what expressions see

mod device;
mod expression;
mod functions;
mod macros;
mod rewrite;
mod run;
mod stack;
mod values;

pub use device::{Device, Selecting};
pub use expression::{About, Expression, Known};
pub use kube_cel::cel;
pub use rewrite::REQUEST_RESOURCE;
pub use run::{Bindings, Names, Run, Variables};
pub use stack::{bounded, evaluating, parse, reading};
pub use values::to_json;
