//! Kinds that people defined: what a `CustomResourceDefinition` makes the server serve.
//!
//! - [`Definition`] a definition, read for what it serves; [`Version`] what is particular to one version of a custom kind
//! - [`check`] what is wrong with a definition
//! - [`Definitions`] the kind of the definitions themselves: its hooks
//! - [`establish`] accepts names, publishes what is served, and cleans up after a definition that is deleted
//! - `values` what is wrong with a custom object, by its schema; `rules` by its CEL rules
//! - `columns` its table

mod check;
mod columns;
mod definition;
mod establish;
mod hooks;
mod rules;
mod structure;
mod values;

pub use check::check;
pub use definition::{Conversion, Definition, Version};
pub use establish::establish;
pub use hooks::Definitions;
