//! A Pod with what is worked out of it once, when it is first seen.

use std::ops::Deref;
use std::sync::Arc;

use trine_typed::demand::{HostPort, host_ports, requests, requests_at_least};
use trine_typed::k8s_openapi::api::core::v1::Pod;
use trine_typed::pods::claim_names;

use crate::amounts::Resources;
use crate::terms::Wishes;

/// What a container counts for that does not ask for it, in thousandths. Upstream: `DefaultMilliCPURequest`, `DefaultMemoryRequest`.
const SCORED: &[(&str, i128)] = &[("cpu", 100), ("memory", (200 << 20) * 1000)];

/// A Pod and its facts.
#[derive(Debug, Clone)]
pub struct PodInfo {
    /// The object as it was last seen.
    pub pod: Arc<Pod>,
    facts: Arc<Facts>,
}

/// What a Pod asks for; the same as long as its spec and its labels are.
#[derive(Debug, Default)]
pub struct Facts {
    /// What it asks for.
    pub requests: Resources,
    /// What it counts for where nodes are compared: something of processor and memory in any case.
    pub scored: Resources,
    /// The ports of its node that it wants.
    pub ports: Vec<HostPort>,
    /// The claims that it uses.
    pub claims: Vec<String>,
    /// What it asks for of others.
    pub wishes: Wishes,
}

impl Deref for PodInfo {
    type Target = Facts;

    fn deref(&self) -> &Facts {
        &self.facts
    }
}

impl From<Arc<Pod>> for PodInfo {
    fn from(pod: Arc<Pod>) -> Self {
        let facts = Facts {
            requests: requests(&pod).into(),
            scored: requests_at_least(&pod, SCORED).into(),
            ports: host_ports(&pod),
            claims: claim_names(&pod),
            wishes: Wishes::of(&pod),
        };
        Self { pod, facts: Arc::new(facts) }
    }
}

impl PodInfo {
    /// The same Pod as it is now. Nothing if it asks for something else, or others find it in another way.
    #[must_use]
    pub fn renewed(&self, pod: &Arc<Pod>) -> Option<Self> {
        let (old, new) = (&self.pod.metadata, &pod.metadata);
        // Where it runs, and who chose that, is no part of what it asks for.
        let same_spec = || {
            let (Some(old), Some(new)) = (&self.pod.spec, &pod.spec) else { return false };
            old.containers == new.containers
                && old.init_containers == new.init_containers
                && old.overhead == new.overhead
                && old.affinity == new.affinity
                && old.volumes == new.volumes
                && old.host_network == new.host_network
        };
        let same = old.uid == new.uid
            && old.labels == new.labels
            && old.deletion_timestamp.is_some() == new.deletion_timestamp.is_some()
            && same_spec();
        same.then(|| Self { pod: Arc::clone(pod), facts: Arc::clone(&self.facts) })
    }

    /// The Pod's UID.
    #[must_use]
    pub fn uid(&self) -> &str {
        self.pod.metadata.uid.as_deref().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(more: &Value) -> Arc<Pod> {
        let mut pod = json!({"metadata": {"name": "p", "uid": "1", "labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}});
        json_patch::merge(&mut pod, more);
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn facts_are_worked_out_anew_when_what_is_asked_for_changes() {
        let info = PodInfo::from(pod(&json!({})));
        let rows = [
            (json!({"status": {"phase": "Running"}}), true),
            (json!({"spec": {"nodeName": "n"}}), true),
            (json!({"metadata": {"labels": {"app": "db"}}}), false),
            (json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}), false),
            (
                json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}}),
                false,
            ),
        ];
        for (more, same) in rows {
            assert_eq!(info.renewed(&pod(&more)).is_some(), same, "{more}");
        }
    }
}
