//! What is desired, and who may say so?
//!
//! - [`start`] makes an [`ApiServer`]; [`bootstrap`] what it has from the first moment
//! - [`http`] from bytes to verbs and back
//! - [`request`] path, query and body
//! - [`verbs`] what may be done to objects, the same for all kinds
//! - [`kinds`] what is particular to each kind: defaults, validation, columns
//! - [`admission`] whether a write fits what else is there
//! - [`asked`] what a request asked for, for those below the verbs
//! - [`catalog`] which kinds there are at this moment, [`runtime_config`] in which versions
//! - [`aggregation`] groups that other servers serve
//! - [`registry`] objects in the store
//! - [`cel`] expressions about requests, which configurations carry
//! - [`protection`] how much may be asked at once, and for how long
//! - [`changes`] that something has changed, for who then looks anew
//! - [`claims`] what Services hold, when several servers share a store
//! - [`service_addresses`] the objects that show which Service has which address
//! - [`metrics`] what the server counts about itself
//! - [`custom`] kinds that people defined
//! - [`openapi`] the published description of what is served
//! - [`pki`], [`rotation`] and [`user`] who is who, [`access`] who may do what
//! - [`webhook`] calling others who have a say
//! - [`status`] refusals

pub mod access;
pub mod admission;
pub mod aggregation;
pub mod asked;
pub mod bootstrap;
pub mod catalog;
pub mod cel;
mod changes;
mod claims;
pub mod custom;
mod flow_defaults;
pub mod http;
pub mod kinds;
pub mod metrics;
pub mod openapi;
pub mod pki;
pub mod protection;
pub mod registry;
pub mod request;
pub mod rotation;
pub mod runtime_config;
mod server;
mod service_addresses;
pub mod status;
pub mod user;
pub mod verbs;
pub mod webhook;

pub use http::REQUESTS;
pub use runtime_config::RuntimeConfig;
pub use server::{Accounts, ApiServer, AuditConfig, Config, StartError, start};
