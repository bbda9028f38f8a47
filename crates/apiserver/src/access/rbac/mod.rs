//! Roles, and who has them.
//!
//! - [`rule`] one rule, and what rules cover
//! - [`index`] roles and bindings, found by who asks
//! - [`escalation`] nobody gives away more than he has
//! - [`defaults`] what every cluster begins with; [`reconcile`] puts it there

pub mod defaults;
pub mod escalation;
pub mod index;
pub mod reconcile;
pub mod rule;
