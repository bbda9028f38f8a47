//! From bytes to verbs and back.
//!
//! - [`serve`] the TLS listener: who is at the other end
//! - [`route`] which verb a request is, and its answer
//! - [`document`] bodies as JSON, `repeated_keys` what a strict reader of YAML has against them; [`accept`] what a client
//!   takes, [`form`] objects, tables or metadata, `items` long lists in pieces, [`reply`] JSON, YAML or protobuf, compressed
//!   or not
//! - [`discovery`] what is served, [`described`] and how it looks
//! - [`health`] which part of the server is well
//! - [`snapshot`] the whole store, for a backup
//! - `answer` what goes back
//! - `connect` what is asked before somebody connects to a Pod, Service or node
//! - `request_log` what is told of each
//! - `proxy` passed on to Pods, Services and nodes, the `links` of their pages led back through it
//! - `scale` replicas of any kind
//! - [`stream`] logs, commands and ports, passed on to the kubelet; `tunnel` and `log_socket` through a
//!   WebSocket

pub use request_log::REQUESTS;

pub mod accept;
mod answer;
mod connect;
pub mod described;
pub mod discovery;
pub mod document;
pub mod form;
mod health;
mod items;
mod links;
mod log_socket;
pub(crate) mod proxy;
mod repeated_keys;
pub mod reply;
mod request_log;
pub mod route;
mod scale;
pub mod serve;
mod snapshot;
pub mod stream;
mod tunnel;
