//! What is particular to each kind of object. The verbs are the same for all kinds; here is what differs.
//!
//! - [`Hooks`] the seam: what the verbs ask of a kind; [`hooks`] finds them, [`validate`] asks them and checks metadata
//! - [`Cause`], [`Invalid`] what validation answers
//! - [`Cx`] what a kind may ask of the rest: other objects, addresses and ports ([`Allocators`])
//! - [`Column`] the columns of a table

mod addresses;
mod admission;
mod api_service;
mod autoscaler;
mod batch;
mod cause;
mod causes;
mod certificates;
mod columns;
mod config;
mod cx;
mod device_status;
mod devices;
mod disruption;
mod endpoints;
mod event;
mod fields;
mod flow;
mod generic;
mod hooks;
mod limits;
pub(crate) mod metadata;
mod migration;
mod namespace;
mod network_policy;
mod node;
mod pod;
mod pod_certificate;
mod roles;
mod service;
mod small;
pub(crate) mod storage;
#[cfg(test)]
mod testing;
mod trust_bundle;
mod workload;

pub use admission::{client_config, review_versions};
pub use cause::{Cause, CauseKind, Invalid};
use causes::Causes;
pub use columns::{Column, ColumnOf};
pub use cx::{Cx, Objects};
pub use device_status::changed_drivers;
pub use hooks::{Hooks, hooks, metadata_fields, validate};
pub use metadata::name_causes;
pub use pod::class_of_service;
pub use service::{Allocators, Held, holdings};
