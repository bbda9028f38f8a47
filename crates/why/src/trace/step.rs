//! One step of one plane, and the steps that belong to one Pod.

use std::collections::BTreeSet;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// One step of one plane, as it is recorded when it ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The contract's call, or what was done: `RunPodSandbox`, `NodeStageVolume`, `ADD`.
    pub name: String,
    /// `api`, `scheduler`, `controllers`, `kubelet`, `image`, `cri`, `cni`, `csi`, `proxy`, `policy`.
    pub plane: String,
    /// Start, microseconds since 1970.
    pub start_us: u64,
    /// How long, microseconds.
    pub duration_us: u64,
    /// `namespace/name` of the Pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// Uid of the Pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<String>,
    /// Sandbox id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// Container name or id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// PersistentVolume or volume id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// `namespace/name` of the claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<String>,
    /// What else a reader wants to know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Step {
    /// End, microseconds since 1970.
    #[must_use]
    pub fn end_us(&self) -> u64 {
        self.start_us + self.duration_us
    }
}

/// Reads recorded steps; lines that do not decode (torn by a crash) are left out.
///
/// # Errors
/// If the file is there but cannot be read.
pub fn read(path: &Path) -> std::io::Result<Vec<Step>> {
    let mut text = String::new();
    for path in [path.with_extension("old.jsonl"), path.to_owned()] {
        match std::fs::read_to_string(&path) {
            Ok(part) => text.push_str(&part),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
    }
    Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

/// The steps of the Pod `namespace/name` (of its newest uid, if several had the name), with those of its sandboxes,
/// claims and volumes, in order of start. Steps of a claim count from a little before the Pod's first step on, so a
/// volume's earlier life under another Pod is left out.
#[must_use]
pub fn of_pod(steps: &[Step], pod: &str) -> Vec<Step> {
    let newest = steps.iter().filter(|s| s.pod.as_deref() == Some(pod) && s.pod_uid.is_some());
    let uid = newest.max_by_key(|s| s.start_us).and_then(|s| s.pod_uid.clone());
    let direct = |step: &Step| match (&step.pod_uid, &uid) {
        (Some(have), Some(want)) => have == want,
        (Some(_), None) | (None, _) => step.pod.as_deref() == Some(pod),
    };
    let mine: Vec<&Step> = steps.iter().filter(|s| direct(s)).collect();
    let begin = mine.iter().map(|s| s.start_us).min().unwrap_or_default();
    let names = |pick: fn(&Step) -> &Option<String>| -> BTreeSet<String> {
        mine.iter().filter_map(|s| pick(s).clone()).collect()
    };
    let (sandboxes, claims) = (names(|s| &s.sandbox), names(|s| &s.claim));
    let mut volumes = names(|s| &s.volume);
    let has =
        |set: &BTreeSet<String>, value: &Option<String>| value.as_ref().is_some_and(|v| set.contains(v));
    // Provisioning knows claim and volume: it joins the two.
    volumes.extend(steps.iter().filter(|s| has(&claims, &s.claim)).filter_map(|s| s.volume.clone()));
    let anonymous = |s: &Step| s.pod.is_none() && s.pod_uid.is_none();
    let mut chosen: Vec<Step> = steps
        .iter()
        .filter(|s| {
            direct(s)
                || has(&sandboxes, &s.sandbox)
                || (anonymous(s)
                    && s.end_us() + 5_000_000 >= begin
                    && (has(&volumes, &s.volume) || has(&claims, &s.claim)))
        })
        .cloned()
        .collect();
    chosen.sort_by_key(|s| (s.start_us, std::cmp::Reverse(s.duration_us)));
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(name: &str, start: u64, fields: &[(&str, &str)]) -> Step {
        let mut value = serde_json::json!({"name": name, "plane": "x", "start_us": start, "duration_us": 10});
        for (key, text) in fields {
            value[key] = serde_json::json!(text);
        }
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_pods_steps_are_found_through_sandbox_claim_and_volume() {
        let steps = [
            step("CreateVolume", 100, &[("claim", "d/data"), ("volume", "pvc-1")]),
            step("schedule", 90, &[("pod", "d/p"), ("pod_uid", "u")]),
            step("mount", 95, &[("pod_uid", "u"), ("claim", "d/data")]),
            step("NodeStageVolume", 200, &[("volume", "pvc-1")]),
            step("RunPodSandbox", 300, &[("pod_uid", "u"), ("sandbox", "s1")]),
            step("ADD", 310, &[("sandbox", "s1")]),
            step("ADD", 310, &[("sandbox", "s2")]),
            step("schedule", 50, &[("pod", "d/p"), ("pod_uid", "older")]),
        ];
        let names: Vec<String> = of_pod(&steps, "d/p").into_iter().map(|s| s.name).collect();
        assert_eq!(names, ["schedule", "mount", "CreateVolume", "NodeStageVolume", "RunPodSandbox", "ADD"]);
    }
}
