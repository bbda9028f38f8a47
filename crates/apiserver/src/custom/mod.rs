//! Kinds that people defined: what a `CustomResourceDefinition` makes the server serve.
//!
//! - [`Definition`] a definition, read for what it serves; [`Version`] what is particular to one version of a custom kind
//! - [`check`] what is wrong with a definition
//! - [`Definitions`] the kind of the definitions themselves: its hooks
//! - [`establish`] accepts names, publishes what is served, and cleans up after a definition that is deleted
//! - [`Converter`] the webhook that converts between versions
//! - `shown` objects between the stored version and the one that was asked for
//! - `values` what is wrong with a custom object, by its schema; `rules` by its CEL rules
//! - `columns` its table

mod check;
mod columns;
mod convert;
mod definition;
mod establish;
mod hooks;
mod rules;
mod shown;
mod structure;
mod values;

pub use check::check;
pub use convert::Converter;
pub use definition::{Conversion, Definition, Version};
pub use establish::establish;
pub use hooks::Definitions;
