//! Webhooks that decide about writes, as `MutatingWebhookConfiguration` and `ValidatingWebhookConfiguration` name them.
//! Source: the API's documentation, "Dynamic Admission Control".
//!
//! - [`Hook`] one of them
//! - `review` what it is asked and what it answers
//! - `call` one call
//! - [`mutate`] those that change what is written, one after the other
//! - [`validate`] those that refuse it, all at once

mod call;
mod hook;
mod mutate;
mod review;
mod validate;

pub use hook::Hook;
pub use mutate::{Id, mutate};
pub use validate::validate;
