//! What is a Kubernetes object?
//!
//! Pure knowledge about objects as JSON values: no I/O, no clock, no state.
//!
//! - [`resources`] the table of served resources: names, verbs, subresources
//! - [`schema`] the types of all kinds: fields, marks, places on the wire; checking and pruning
//! - [`jsonpath`] paths to values, as printer columns name them
//! - [`protobuf`] the binary form of the built-in kinds
//! - [`json`] reading a document and reporting its duplicate fields; [`outline`] reading no more of one than selectors name
//! - [`names`] what may be a name
//! - [`selector`] label and field selectors
//! - [`patch`] the ways to change an object by a patch
//! - [`apply`] server-side apply: who owns which field
//! - [`quantity`] amounts with suffixes; [`pod_resources`] those of a Pod; [`quota`] what counts in a ResourceQuota
//! - [`versions`] kinds in several forms, of which one is stored: [`events`], [`autoscalers`], [`devices`]
//! - [`conditions`] the list `status.conditions`
//! - [`pem`] certificates and keys as text, as Secrets and bundles have them
//! - [`time`] times in RFC 3339 and ages for people; [`schedule`] lines as in crontab

pub mod apply;
pub mod autoscalers;
pub mod conditions;
pub mod devices;
pub mod events;
pub mod json;
pub mod jsonpath;
pub mod names;
pub mod outline;
pub mod patch;
pub mod pem;
pub mod pod_resources;
pub mod protobuf;
pub mod quantity;
pub mod quota;
pub mod resources;
pub mod schedule;
pub mod schema;
pub mod selector;
pub mod time;
pub mod versions;
