//! Does its Service find it? The node's share of Services, in nftables: a map lookup finds the Service, another one a
//! random endpoint. A change of a Service is a change of elements; there are no chains per Service.
//!
//! - [`run`] watches Services and EndpointSlices and keeps the node true to them, until told to stop
//! - [`cleanup`] removes every trace of an instance; [`run`] leaves its rules in place, as Pods outlive Trine
//! - [`model`] objects of the API, reduced to what matters here (pure)
//! - [`plan`] what the maps must hold, and what changes in them (pure)
//! - [`ranges`] the routes which keep packets for Pods and virtual addresses off the default route (pure)
//! - [`rules`] the table's fixed part (pure)
//! - [`Engine`] the executor: a model, a plan and the kernel

mod choice;
mod config;
mod engine;
mod error;
pub mod model;
pub mod plan;
pub mod ranges;
mod routes;
pub mod rules;
mod table;
mod watch;

pub use config::{Config, Ranges};
pub use engine::{Engine, cleanup};
pub use error::ProxyError;
pub use watch::run;
