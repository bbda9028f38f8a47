//! Kinds that make Pods from a template and keep a number of them.
//!
//! - [`Deployments`], [`ReplicaSets`], [`ReplicationControllers`], [`StatefulSets`], [`DaemonSets`]; [`Revisions`] of the
//!   latter two
//! - [`template`] the template of their Pods, and the selector that finds these
//! - [`share`] numbers that may be a share of others

mod daemon_set;
mod deployment;
mod replica_set;
mod revision;
pub mod share;
mod stateful_set;
pub mod template;

pub use daemon_set::DaemonSets;
pub use deployment::Deployments;
pub use replica_set::{ReplicaSets, ReplicationControllers};
pub use revision::Revisions;
pub use stateful_set::StatefulSets;

use super::fields::set;
use super::{Cause, Causes};
use serde_json::Value;

/// The number of Pods that is wished unless it is said.
const REPLICAS: i64 = 1;
/// How many old revisions are kept unless it is said.
const HISTORY: i64 = 10;

/// Sets a number that was left open; zero is a number here.
pub fn default_number(object: &mut Value, key: &str, value: i64) {
    if object[key].is_null() {
        set(object, key, value);
    }
}

/// A field that is set once.
pub fn immutable(new: &Value, old: &Value, key: &str, path: &str, causes: &mut Causes) {
    if new[key] != old[key] {
        causes.add(Cause::invalid(format!("{path}.{key}"), new[key].clone(), "field is immutable"));
    }
}

/// The counts of a status are numbers of things, and parts of `replicas`.
fn status_counts(status: &Value, parts: &[&str], causes: &mut Causes) {
    causes.not_negative(status, "observedGeneration", "status");
    causes.not_negative(status, "replicas", "status");
    let count = |key: &str| status[key].as_i64().unwrap_or(0);
    for part in parts {
        causes.not_negative(status, part, "status");
        if count(part) > count("replicas") {
            let detail = "cannot be greater than status.replicas";
            causes.add(Cause::invalid(format!("status.{part}"), count(part), detail));
        }
    }
    if count("availableReplicas") > count("readyReplicas") {
        let detail = "cannot be greater than readyReplicas";
        causes.add(Cause::invalid("status.availableReplicas", count("availableReplicas"), detail));
    }
}

#[cfg(test)]
mod tests;
