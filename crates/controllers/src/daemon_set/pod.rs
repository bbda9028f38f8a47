//! The Pods of a DaemonSet: where they belong, and how they are made.

use trine_typed::k8s_openapi::api::apps::v1::DaemonSet;
use trine_typed::k8s_openapi::api::core::v1::{
    Node, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec, Taint,
    Toleration,
};
use trine_typed::placement::{is_selected, tolerates};

use crate::workload::pods::from_template;

/// The label with the hash of the template.
pub const HASH: &str = "controller-revision-hash";
/// The field that binds a Pod to a node, by its name.
const NAME_FIELD: &str = "metadata.name";

/// What every Pod of a DaemonSet tolerates for ever: key and effect.
const TOLERATED: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];
/// And those that are on the node's own network.
const TOLERATED_ON_HOST: (&str, &str) = ("node.kubernetes.io/network-unavailable", "NoSchedule");

/// Whether a node is to have a Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Belongs {
    /// Yes.
    Yes,
    /// One that is there may stay.
    MayStay,
    /// No.
    No,
}

/// Whether a node is to have a Pod of a DaemonSet with these tolerations: by its name, labels and taints; what it has room for
/// is not asked.
#[must_use]
pub fn belongs(set: &DaemonSet, node: &Node, tolerations: &[Toleration]) -> Belongs {
    let nobody = PodSpec::default();
    let spec = set.spec.template.spec.as_ref().unwrap_or(&nobody);
    let named = spec
        .node_name
        .as_deref()
        .is_none_or(|name| name.is_empty() || node.metadata.name.as_deref() == Some(name));
    if !named || !is_selected(spec, node) {
        return Belongs::No;
    }
    let taints = node.spec.as_ref().and_then(|s| s.taints.as_deref()).unwrap_or_default();
    let keeps_off = |effect: &str| {
        let of_it = |taint: &&Taint| taint.effect == effect;
        taints.iter().filter(of_it).any(|taint| !tolerates(tolerations, taint))
    };
    match (keeps_off("NoExecute"), keeps_off("NoSchedule")) {
        (true, _) => Belongs::No,
        (false, true) => Belongs::MayStay,
        (false, false) => Belongs::Yes,
    }
}

/// What the Pods of a DaemonSet tolerate.
#[must_use]
pub fn tolerations(set: &DaemonSet) -> Vec<Toleration> {
    let spec = set.spec.template.spec.as_ref();
    let mut tolerations = spec.and_then(|s| s.tolerations.clone()).unwrap_or_default();
    let on_host = spec.and_then(|s| s.host_network).unwrap_or_default();
    for (key, effect) in TOLERATED.into_iter().chain(on_host.then_some(TOLERATED_ON_HOST)) {
        let fresh = Toleration {
            key: Some(key.to_owned()),
            operator: Some("Exists".to_owned()),
            effect: Some(effect.to_owned()),
            ..Default::default()
        };
        let same = |t: &Toleration| {
            t.key == fresh.key
                && t.effect == fresh.effect
                && t.operator == fresh.operator
                && t.value == fresh.value
        };
        match tolerations.iter_mut().find(|t| same(t)) {
            Some(old) => *old = fresh,
            None => tolerations.push(fresh),
        }
    }
    tolerations
}

/// A Pod of a DaemonSet for a node: the scheduler is left that node alone.
#[must_use]
pub fn pod(set: &DaemonSet, node: &str, hash: &str) -> Pod {
    let mut pod = from_template(set, &set.spec.template);
    pod.metadata.labels.get_or_insert_default().insert(HASH.to_owned(), hash.to_owned());
    let spec = pod.spec.get_or_insert_default();
    spec.tolerations = Some(tolerations(set));
    let requirement = NodeSelectorRequirement {
        key: NAME_FIELD.to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![node.to_owned()]),
    };
    let term = NodeSelectorTerm { match_expressions: None, match_fields: Some(vec![requirement]) };
    let affinity: &mut NodeAffinity =
        spec.affinity.get_or_insert_default().node_affinity.get_or_insert_default();
    affinity.required_during_scheduling_ignored_during_execution =
        Some(NodeSelector { node_selector_terms: vec![term] });
    pod
}

/// The node that a Pod is on, or is meant for.
#[must_use]
pub fn node_of(pod: &Pod) -> Option<&str> {
    let spec = pod.spec.as_ref()?;
    if let Some(name) = spec.node_name.as_deref().filter(|name| !name.is_empty()) {
        return Some(name);
    }
    let affinity = spec.affinity.as_ref()?.node_affinity.as_ref()?;
    let required = affinity.required_during_scheduling_ignored_during_execution.as_ref()?;
    let mut fields = required.node_selector_terms.iter().flat_map(|t| t.match_fields.iter().flatten());
    let named = fields.find(|f| f.key == NAME_FIELD && f.operator == "In")?;
    match named.values.as_deref()? {
        [only] => Some(only),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn set(spec: &Value) -> DaemonSet {
        serde_json::from_value(
            json!({"metadata": {"name": "d", "namespace": "ns", "uid": "u"}, "spec": {"selector": {},
            "template": {"metadata": {"labels": {"app": "d"}}, "spec": spec}}}),
        )
        .unwrap()
    }

    #[test]
    fn a_node_has_a_pod_by_its_labels_and_taints() {
        let taint = |key: &str, effect: &str| json!([{"key": key, "effect": effect}]);
        let node = |taints: Value| json!({"metadata": {"name": "n", "labels": {"disk": "fast"}}, "spec": {"taints": taints}});
        let plain = || json!({"containers": []});
        let with = |key: &str, value: Value| json!({"containers": [], key: value});
        let rows = [
            ("any", plain(), node(json!([])), Belongs::Yes),
            ("selected", with("nodeSelector", json!({"disk": "fast"})), node(json!([])), Belongs::Yes),
            ("not selected", with("nodeSelector", json!({"disk": "slow"})), node(json!([])), Belongs::No),
            ("named", with("nodeName", json!("n")), node(json!([])), Belongs::Yes),
            ("another one is named", with("nodeName", json!("m")), node(json!([])), Belongs::No),
            ("tainted", plain(), node(taint("mine", "NoSchedule")), Belongs::MayStay),
            ("driven out", plain(), node(taint("mine", "NoExecute")), Belongs::No),
            ("rather not", plain(), node(taint("mine", "PreferNoSchedule")), Belongs::Yes),
            (
                "tolerated",
                with("tolerations", json!([{"key": "mine", "operator": "Exists"}])),
                node(taint("mine", "NoExecute")),
                Belongs::Yes,
            ),
            ("not ready", plain(), node(taint("node.kubernetes.io/not-ready", "NoExecute")), Belongs::Yes),
            (
                "cordoned",
                plain(),
                node(taint("node.kubernetes.io/unschedulable", "NoSchedule")),
                Belongs::Yes,
            ),
            (
                "without network",
                plain(),
                node(taint("node.kubernetes.io/network-unavailable", "NoSchedule")),
                Belongs::MayStay,
            ),
            (
                "on its own network",
                with("hostNetwork", json!(true)),
                node(taint("node.kubernetes.io/network-unavailable", "NoSchedule")),
                Belongs::Yes,
            ),
        ];
        for (name, spec, node, expected) in rows {
            let set = set(&spec);
            let found = belongs(&set, &serde_json::from_value(node).unwrap(), &tolerations(&set));
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn a_pod_is_bound_to_its_node_whatever_the_template_asks_for() {
        let terms = json!([{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]);
        let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}},
            "podAntiAffinity": {}});
        let found = pod(&set(&json!({"containers": [], "affinity": affinity})), "n", "abc");
        assert_eq!(node_of(&found), Some("n"));
        let found = json!(found);
        assert_eq!(found["metadata"]["labels"], json!({"app": "d", "controller-revision-hash": "abc"}));
        let required =
            &found["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        assert_eq!(
            *required,
            json!({"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]})
        );
        assert!(found["spec"]["affinity"]["podAntiAffinity"].is_object(), "the rest stays");
        assert_eq!(found["spec"]["tolerations"].as_array().unwrap().len(), 6);
    }
}
