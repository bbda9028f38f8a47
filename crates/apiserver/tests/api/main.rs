//! The API server as its clients see it.
//!
//! - `audit` who did what
//! - `access` who may do what
//! - `server` a server in a folder of its own, and calls to it without a network
//! - `addresses` which Service has which address
//! - `aggregation` groups that other servers serve
//! - `objects` create, read, change; refusals; pages
//! - `applying` server-side apply, and who owns what
//! - `custom` kinds that people define
//! - `deletion` grace, finalizers, preconditions, namespaces
//! - `kinds` what is particular to the kinds that make and bound Pods
//! - `listing` pages, moments, and what lists cannot show any more
//! - `tokens` tokens, questions about access, certificates
//! - `trust` bundles of authorities, certificates of Pods
//! - `watching` watches and their beginnings
//! - `forms` tables, metadata alone, discovery, both forms of Events
//! - `protobuf` the binary form; what nobody can have
//! - `proxying` requests that are passed on to Pods
//! - `network` TLS, certificates, streams to a kubelet
//! - `itself` health, metrics, the whole store
//! - `kubectl` the client that everybody uses
//! - `protection` seats and queues, times, sizes, and a stop that breaks nothing
//! - `publishing` custom kinds in the description of what is served
//! - `webhooks`, `policies` those who are configured to decide; `far` plays them
//! - `shared` several servers on one etcd
//! - `restart` what is left after a stop and after a kill

#![allow(clippy::unwrap_used)]

mod access;
mod addresses;
mod aggregation;
mod applying;
mod audit;
mod converting;
mod custom;
mod deletion;
mod devices;
mod far;
mod forms;
mod itself;
mod kinds;
mod kubectl;
mod listing;
mod network;
mod objects;
mod policies;
mod protection;
mod protobuf;
mod proxying;
mod publishing;
mod restart;
mod server;
mod shared;
mod tokens;
mod trust;
mod watching;
mod webhooks;
