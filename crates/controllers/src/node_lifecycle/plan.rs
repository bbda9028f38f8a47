//! What a node's silence and its conditions mean: its conditions, its taints, and how fast Pods may be driven off. Pure; times are
//! arguments.

use std::time::Duration;

use trine_typed::k8s_openapi::api::core::v1::{Node, NodeCondition, Taint};
use trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// For how long a node may be silent (upstream: `node-monitor-grace-period`).
pub const GRACE: Duration = Duration::from_secs(50);
/// For how long one may that has not spoken yet (upstream: `node-startup-grace-period`).
pub const STARTUP_GRACE: Duration = Duration::from_secs(60);
/// Between two nodes of a zone whose Pods are driven off (upstream: 0.1 a second).
pub const PACE: Duration = Duration::from_secs(10);
/// The same in a zone that is largely lost (upstream: 0.01 a second).
pub const SLOW_PACE: Duration = Duration::from_secs(100);
/// A zone that is largely lost and has at most so many nodes keeps its Pods.
const LARGE_ZONE: usize = 50;
/// A zone is largely lost if more nodes than this, and 55 of a hundred, are not ready.
const FEW: usize = 2;

/// The taint of a node that is not ready, and of one that is silent.
pub const NOT_READY: &str = "node.kubernetes.io/not-ready";
/// See [`NOT_READY`].
pub const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// Conditions that keep Pods away: the condition, its status, the taint.
const REPELLING: [(&str, &str, &str); 6] = [
    ("Ready", "False", NOT_READY),
    ("Ready", "Unknown", UNREACHABLE),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
];
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// Conditions that the kubelet speaks of, and nobody else.
const SPOKEN: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];
const NEVER: &str = "NodeStatusNeverUpdated";

fn conditions(node: &Node) -> &[NodeCondition] {
    node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default()
}

/// What the node says of a condition.
#[must_use]
pub fn status<'a>(node: &'a Node, kind: &str) -> Option<&'a str> {
    conditions(node).iter().find(|c| c.type_ == kind).map(|c| c.status.as_str())
}

/// True if nobody has heard of the node for longer than it may be silent.
#[must_use]
pub fn is_lost(node: &Node, silent: Duration) -> bool {
    let ready = conditions(node).iter().find(|c| c.type_ == "Ready");
    let spoken = ready.is_some_and(|ready| ready.reason.as_deref() != Some(NEVER));
    silent > if spoken { GRACE } else { STARTUP_GRACE }
}

/// The conditions of a lost node that are not as they should be.
#[must_use]
pub fn unknown(node: &Node, now: &Time) -> Vec<NodeCondition> {
    let condition = |kind: &&str| {
        let old = conditions(node).iter().find(|c| c.type_ == **kind);
        let (reason, message) = match old {
            Some(old) if old.status == "Unknown" => return None,
            Some(_) => ("NodeStatusUnknown", "Kubelet stopped posting node status."),
            None => (NEVER, "Kubelet never posted node status."),
        };
        Some(NodeCondition {
            type_: (**kind).to_owned(),
            status: "Unknown".to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_heartbeat_time: old.and_then(|old| old.last_heartbeat_time.clone()).or(Some(now.clone())),
            last_transition_time: Some(now.clone()),
        })
    };
    SPOKEN.iter().filter_map(condition).collect()
}

/// The taint that drives Pods off the node; none if it is ready.
#[must_use]
pub fn driving(node: &Node) -> Option<&'static str> {
    match status(node, "Ready") {
        Some("False") => Some(NOT_READY),
        Some("Unknown") => Some(UNREACHABLE),
        _ => None,
    }
}

/// Whether Pods may be driven off a node that is not ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drive {
    /// Its turn has come.
    Now,
    /// Not yet: what is there stays as it is.
    NotYet,
    /// Nobody drives: it is rather the controller that sees nothing.
    Nobody,
}

/// The taints that the node is to have, others' kept; none if it has them.
#[must_use]
pub fn taints(node: &Node, drive: Drive, now: &Time) -> Option<Vec<Taint>> {
    let old = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    let mut wanted: Vec<(&str, &str)> = REPELLING
        .iter()
        .filter(|(kind, bad, _)| status(node, kind) == Some(*bad))
        .map(|(_, _, key)| (*key, "NoSchedule"))
        .collect();
    if node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true) {
        wanted.push((UNSCHEDULABLE, "NoSchedule"));
    }
    if let Some(key) = driving(node) {
        let has = old.iter().any(|t| t.key == key && t.effect == "NoExecute");
        if drive == Drive::Now || drive == Drive::NotYet && has {
            wanted.push((key, "NoExecute"));
        }
    }
    let ours = |taint: &Taint| match taint.effect.as_str() {
        "NoSchedule" => taint.key == UNSCHEDULABLE || REPELLING.iter().any(|(_, _, key)| *key == taint.key),
        "NoExecute" => [NOT_READY, UNREACHABLE].contains(&taint.key.as_str()),
        _ => false,
    };
    let is = |taint: &Taint, (key, effect): (&str, &str)| taint.key == key && taint.effect == effect;
    let mut new: Vec<Taint> =
        old.iter().filter(|taint| !ours(taint) || wanted.iter().any(|w| is(taint, *w))).cloned().collect();
    for (key, effect) in wanted {
        if !new.iter().any(|taint| is(taint, (key, effect))) {
            let time_added = Some(now.clone());
            new.push(Taint { key: key.to_owned(), effect: effect.to_owned(), time_added, value: None });
        }
    }
    (new != old).then_some(new)
}

/// The zone of a node.
#[must_use]
pub fn zone(node: &Node) -> String {
    let label =
        |key: &str| node.metadata.labels.as_ref().and_then(|labels| labels.get(key)).map_or("", |l| l);
    format!("{}/{}", label("topology.kubernetes.io/region"), label("topology.kubernetes.io/zone"))
}

/// The nodes of a zone by whether they are ready.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Zone {
    /// Those that are.
    pub ready: usize,
    /// Those that are not.
    pub lost: usize,
}

impl Zone {
    /// True if none is left.
    #[must_use]
    pub fn is_lost(self) -> bool {
        self.ready == 0 && self.lost > 0
    }

    /// The pause between two of its nodes; none if none is driven.
    #[must_use]
    pub fn pace(self) -> Option<Duration> {
        let largely = self.ready > 0 && self.lost > FEW && self.lost * 100 >= (self.lost + self.ready) * 55;
        match largely {
            false => Some(PACE),
            true => (self.lost + self.ready > LARGE_ZONE).then_some(SLOW_PACE),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn now() -> Time {
        serde_json::from_value(json!("2026-11-30T00:00:00Z")).unwrap()
    }

    fn node(conditions: &[(&str, &str)], spec: Value) -> Node {
        let conditions: Vec<Value> =
            conditions.iter().map(|(t, s)| json!({"type": t, "status": s})).collect();
        serde_json::from_value(
            json!({"metadata": {"name": "n"}, "spec": spec, "status": {"conditions": conditions}}),
        )
        .unwrap()
    }

    fn told(node: &Node, drive: Drive) -> Option<Vec<String>> {
        let taints = taints(node, drive, &now())?;
        Some(
            taints
                .iter()
                .map(|t| format!("{}:{}", t.key.replace("node.kubernetes.io/", ""), t.effect))
                .collect(),
        )
    }

    #[test]
    fn taints_follow_conditions_and_leave_those_of_others() {
        let not_ready = json!({"taints": [{"key": NOT_READY, "effect": "NoSchedule"}, {"key": "a", "effect": "NoExecute"}]});
        let driven = json!({"taints": [{"key": NOT_READY, "effect": "NoExecute"}]});
        type Row<'a> = (&'a str, Node, Drive, Option<&'a [&'a str]>);
        let rows: [Row; 9] = [
            ("ready", node(&[("Ready", "True")], json!({})), Drive::Now, None),
            (
                "ready again",
                node(&[("Ready", "True")], not_ready.clone()),
                Drive::Now,
                Some(&["a:NoExecute"]),
            ),
            (
                "not ready, its turn",
                node(&[("Ready", "False")], json!({})),
                Drive::Now,
                Some(&["not-ready:NoSchedule", "not-ready:NoExecute"]),
            ),
            (
                "not its turn",
                node(&[("Ready", "False")], json!({})),
                Drive::NotYet,
                Some(&["not-ready:NoSchedule"]),
            ),
            (
                "it had its turn",
                node(&[("Ready", "False")], driven.clone()),
                Drive::NotYet,
                Some(&["not-ready:NoExecute", "not-ready:NoSchedule"]),
            ),
            (
                "nobody drives",
                node(&[("Ready", "False")], driven.clone()),
                Drive::Nobody,
                Some(&["not-ready:NoSchedule"]),
            ),
            (
                "silent after it was not ready",
                node(&[("Ready", "Unknown")], driven),
                Drive::NotYet,
                Some(&["unreachable:NoSchedule"]),
            ),
            (
                "pressure and cordon",
                node(&[("Ready", "True"), ("DiskPressure", "True")], json!({"unschedulable": true})),
                Drive::Now,
                Some(&["disk-pressure:NoSchedule", "unschedulable:NoSchedule"]),
            ),
            (
                "pressure that is not known",
                node(&[("Ready", "True"), ("DiskPressure", "Unknown")], json!({})),
                Drive::Now,
                None,
            ),
        ];
        for (name, node, drive, expected) in rows {
            let expected = expected.map(|all| all.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>());
            assert_eq!(told(&node, drive), expected, "{name}");
        }
    }

    #[test]
    fn a_silent_node_is_unknown_once_and_what_others_say_of_it_stays() {
        let spoke =
            node(&[("Ready", "True"), ("DiskPressure", "False"), ("NetworkUnavailable", "False")], json!({}));
        assert!(!is_lost(&spoke, GRACE));
        assert!(is_lost(&spoke, GRACE + Duration::from_secs(1)));
        let unknown_now = unknown(&spoke, &now());
        let reasons: Vec<_> =
            unknown_now.iter().map(|c| (c.type_.as_str(), c.reason.as_deref().unwrap())).collect();
        assert_eq!(
            reasons,
            [
                ("Ready", "NodeStatusUnknown"),
                ("MemoryPressure", NEVER),
                ("DiskPressure", "NodeStatusUnknown"),
                ("PIDPressure", NEVER),
            ]
        );
        let mut lost = spoke;
        lost.status.as_mut().unwrap().conditions = Some(unknown_now);
        assert!(unknown(&lost, &now()).is_empty());
        let mute = node(&[], json!({}));
        assert!(!is_lost(&mute, GRACE + Duration::from_secs(1)) && is_lost(&mute, STARTUP_GRACE * 2));
    }

    #[test]
    fn a_zone_that_is_largely_lost_is_driven_slowly_or_not() {
        for (ready, lost, pace) in [
            (5, 0, Some(PACE)),
            (1, 2, Some(PACE)),
            (3, 3, Some(PACE)),
            (2, 3, None),
            (20, 40, Some(SLOW_PACE)),
            (0, 4, Some(PACE)),
        ] {
            assert_eq!(Zone { ready, lost }.pace(), pace, "{ready} ready, {lost} lost");
        }
        assert!(Zone { ready: 0, lost: 1 }.is_lost() && !Zone::default().is_lost());
    }
}
