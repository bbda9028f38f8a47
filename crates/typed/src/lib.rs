//! Kubernetes objects as Rust types, for the edge only: controllers, scheduler, kubelet, proxy, CLI.
//! The API server and the store work on dynamic JSON and never depend on this crate.
//!
//! - [`api`] the types of the release that Trine serves, and `kube`'s client and runtime
//! - [`chain`] one line from a chain of errors
//! - [`client`] a client over TLS from a kubeconfig
//! - [`event`] posting an Event as the parts of Kubernetes do
//! - [`leader`] one of several takes the lead
//! - [`feed`] a watch as changes to a picture that somebody else keeps
//! - [`instances`] generic code that is compiled once for all rooms
//! - [`mirror`] a live copy of one kind, with a wake-up on every change
//! - [`networks`] definitions of a Pod's further networks
//! - [`work_queue`] keys that wait for their reconcile
//! - [`conditions`] setting a status condition
//! - [`disruption`] ending a Pod that somebody else owns
//! - [`nodes`], [`pods`], [`volumes`], [`placement`], [`demand`] what scheduler, controllers and `why` have to see alike
//! - [`supervise`] a loop that outlives its panics

pub mod chain;
pub mod client;
pub mod conditions;
pub mod demand;
pub mod disruption;
pub mod event;
pub mod feed;
pub mod instances;
pub mod leader;
pub mod mirror;
pub mod networks;
pub mod nodes;
pub mod placement;
pub mod pods;
pub mod supervise;
pub mod volumes;
pub mod work_queue;

/// The crates behind the types.
pub mod api {
    pub use k8s_openapi;
    pub use kube;
}

pub use k8s_openapi;
pub use kube;
