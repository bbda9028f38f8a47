//! What the controllers of workloads share.
//!
//! - [`claim`] taking over and letting go what selectors select
//! - [`doubt`] what to do when nobody knows whether a write was done
//! - [`wake`] whose reconcile a change asks for
//! - [`pods`] making and removing Pods
//! - [`readiness`] what a Pod is good for at a time
//! - [`ranking`] which Pod goes first
//! - [`batch`] many writes, cautiously
//! - [`revisions`] the templates that a workload has had
//! - [`selecting`] selectors of specs
//! - [`share`] numbers and percentages
//! - [`template`] when two templates are the same, and a short name for one

pub mod batch;
pub mod claim;
pub mod doubt;
pub mod pods;
pub mod ranking;
pub mod readiness;
pub mod revisions;
pub mod selecting;
pub mod share;
pub mod template;
pub mod wake;
