//! Policies that decide about writes by expressions: `ValidatingAdmissionPolicy`, `MutatingAdmissionPolicy` and their bindings.
//! Source: KEP-3488, KEP-3962.
//!
//! - [`Policy`] what is to be decided, [`Binding`] where and with which parameters, [`Bound`] both together
//! - `calls` which of them want to decide about a request, and with what
//! - `params` the objects that a binding tells its policy
//! - [`typed`] tells a policy's author what cannot be
//! - [`mutating`] changes what is written, [`validating`] refuses it

mod binding;
mod bound;
mod calls;
pub mod mutating;
mod params;
mod policy;
mod refusal;
pub mod typed;
pub mod validating;

pub use binding::Binding;
pub use bound::{Bound, Pairs};
pub use policy::Policy;
