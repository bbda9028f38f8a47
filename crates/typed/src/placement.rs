//! Which nodes a Pod may be on: by selectors of nodes, and by taints that it tolerates.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodSpec, Taint, Toleration,
};
use k8s_openapi::api::resource::v1::{DeviceTaint, DeviceToleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// Whether a node is what `nodeSelector` and the required part of node affinity ask for.
#[must_use]
pub fn is_selected(spec: &PodSpec, node: &Node) -> bool {
    let labels_match = spec.node_selector.iter().flatten().all(|(k, v)| label(node, k) == Some(v.as_str()));
    let affinity = spec.affinity.as_ref().and_then(|a| a.node_affinity.as_ref());
    let required = affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
    labels_match && required.is_none_or(|required| matches(required, node))
}

/// Whether one of the selector's terms matches.
#[must_use]
pub fn matches(selector: &NodeSelector, node: &Node) -> bool {
    selector.node_selector_terms.iter().any(|term| term_matches(term, node))
}

/// Whether all requirements of a term hold; a term without any matches nothing.
#[must_use]
pub fn term_matches(term: &NodeSelectorTerm, node: &Node) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let name = node.metadata.name.as_deref();
    !(expressions.is_empty() && fields.is_empty())
        && expressions.iter().all(|r| requirement_holds(r, label(node, &r.key)))
        && fields.iter().all(|r| r.key == "metadata.name" && requirement_holds(r, name))
}

fn label<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

fn requirement_holds(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let listed = |v: &str| values.iter().any(|x| x == v);
    let number = |text: &str| text.parse::<i64>().ok();
    let compared = || Some((number(value?)?, number(values.first()?)?));
    match requirement.operator.as_str() {
        "In" => value.is_some_and(listed),
        "NotIn" => !value.is_some_and(listed),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compared().is_some_and(|(have, want)| have > want),
        "Lt" => compared().is_some_and(|(have, want)| have < want),
        _ => false,
    }
}

/// Whether labels are what a selector asks for; an empty selector asks for nothing.
#[must_use]
pub fn labels_match(selector: &LabelSelector, labels: Option<&BTreeMap<String, String>>) -> bool {
    let label = |key: &str| labels.and_then(|labels| labels.get(key));
    let equal = selector.match_labels.iter().flatten().all(|(k, v)| label(k) == Some(v));
    let expressions = selector.match_expressions.iter().flatten();
    equal
        && expressions.into_iter().all(|e| {
            let values = e.values.as_deref().unwrap_or_default();
            match (e.operator.as_str(), label(&e.key)) {
                ("In", Some(value)) => values.contains(value),
                ("NotIn", value) => !value.is_some_and(|v| values.contains(v)),
                ("Exists", value) => value.is_some(),
                ("DoesNotExist", value) => value.is_none(),
                _ => false,
            }
        })
}

/// Whether one of these covers a taint.
#[must_use]
pub fn tolerates(tolerations: &[Toleration], taint: &Taint) -> bool {
    tolerations.iter().any(|toleration| covers(toleration, taint))
}

/// Whether this one covers a taint.
#[must_use]
pub fn covers(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.as_deref().unwrap_or_default();
    let key = toleration.key.as_deref().unwrap_or_default();
    let exists = toleration.operator.as_deref() == Some("Exists");
    let value = toleration.value.as_deref().unwrap_or_default();
    (effect.is_empty() || effect == taint.effect)
        && ((key.is_empty() && exists) || key == taint.key)
        && (exists || value == taint.value.as_deref().unwrap_or_default())
}

/// Whether this one covers a taint of a device.
#[must_use]
pub fn covers_device(toleration: &DeviceToleration, taint: &DeviceTaint) -> bool {
    let is = |wanted: &Option<String>, is: &str| {
        wanted.as_deref().filter(|wanted| !wanted.is_empty()).is_none_or(|wanted| wanted == is)
    };
    let same_value =
        || toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default();
    is(&toleration.effect, &taint.effect)
        && is(&toleration.key, &taint.key)
        && match toleration.operator.as_deref().unwrap_or_default() {
            "" | "Equal" => same_value(),
            "Exists" => true,
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_operator_of_a_node_selector_holds_as_documented() {
        let node: Node =
            serde_json::from_value(json!({"metadata": {"name": "n", "labels": {"zone": "a", "cpus": "8"}}}))
                .unwrap();
        let rows = [
            ("zone", "In", vec!["a", "b"], true),
            ("zone", "In", vec!["b"], false),
            ("zone", "NotIn", vec!["a"], false),
            ("gone", "NotIn", vec!["a"], true),
            ("zone", "Exists", vec![], true),
            ("gone", "DoesNotExist", vec![], true),
            ("cpus", "Gt", vec!["4"], true),
            ("cpus", "Lt", vec!["8"], false),
            ("zone", "Gt", vec!["4"], false),
        ];
        for (key, operator, values, expected) in rows {
            let selector: NodeSelector = serde_json::from_value(json!({"nodeSelectorTerms": [
                {"matchExpressions": [{"key": key, "operator": operator, "values": values}]}]}))
            .unwrap();
            assert_eq!(matches(&selector, &node), expected, "{key} {operator} {values:?}");
        }
    }

    #[test]
    fn a_toleration_covers_by_key_value_and_effect() {
        let taint: Taint =
            serde_json::from_value(json!({"key": "k", "value": "v", "effect": "NoExecute"})).unwrap();
        let rows = [
            (json!({"operator": "Exists"}), true),
            (json!({"key": "k", "operator": "Exists"}), true),
            (json!({"key": "k", "value": "v"}), true),
            (json!({"key": "k", "value": "w"}), false),
            (json!({"key": "k", "value": "v", "effect": "NoExecute"}), true),
            (json!({"key": "k", "value": "v", "effect": "NoSchedule"}), false),
            (json!({"key": "other", "operator": "Exists"}), false),
        ];
        for (toleration, expected) in rows {
            let tolerations = [serde_json::from_value(toleration.clone()).unwrap()];
            assert_eq!(tolerates(&tolerations, &taint), expected, "{toleration}");
        }
    }
}
