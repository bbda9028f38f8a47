//! Server-side apply: who owns which field of an object, and what an apply makes of it.
//!
//! - [`FieldManager`] what a write does: [`update`](FieldManager::update) records what it changed,
//!   [`apply`](FieldManager::apply) merges a configuration and refuses what others own
//! - [`Managers`] the entries of `metadata.managedFields`, [`Set`] the fields of one, [`Step`] a step to one of them
//! - [`fields_of`], [`diff`], [`merge`], [`remove`], [`validate`], [`atomics`] the walks over objects and their schemas
//! - [`Versions`] the versions of a kind, [`Filter`] the fields that a write cannot touch
//!
//! Pure: the time is an argument.

mod atom;
mod atomics;
mod codec;
mod diff;
mod fields;
mod filter;
mod last_applied;
mod manager;
mod managers;
mod merge;
mod ownership;
mod remove;
mod set;
mod step;
mod validate;

#[cfg(test)]
mod cases;

pub use atomics::atomics;
pub use codec::NotASet;
pub use diff::{Diff, diff};
pub use fields::fields_of;
pub use filter::Filter;
pub use manager::{ApplyError, FieldManager, OneVersion, Versions, keep_times};
pub use managers::{BadEntry, ManagerId, Managers, Operation, Owned};
pub use merge::merge;
pub use ownership::Conflict;
pub use remove::{migrated, remove, with_named};
pub use set::{Node, Set, shown};
pub use step::{NotAStep, Step};
pub use validate::{TypeErrors, validate};
