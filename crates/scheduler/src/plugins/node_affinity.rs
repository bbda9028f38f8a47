//! NodeAffinity: `nodeSelector` and the required part of node affinity. Also used for a volume's node affinity.

use trine_typed::k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod};

use crate::framework::Rejection;
use crate::snapshot::NodeInfo;

/// # Errors
/// The node does not match.
pub fn filter(pod: &Pod, node: &NodeInfo) -> Result<(), Rejection> {
    let Some(spec) = &pod.spec else { return Ok(()) };
    let labels_match = spec.node_selector.iter().flatten().all(|(k, v)| node.label(k) == Some(v.as_str()));
    let affinity = spec.affinity.as_ref().and_then(|a| a.node_affinity.as_ref());
    let required = affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
    if labels_match && required.is_none_or(|r| matches(r, node)) {
        Ok(())
    } else {
        Err(Rejection::lasting("node(s) didn't match Pod's node affinity/selector"))
    }
}

/// True if one of the selector's terms matches; a term without requirements matches nothing.
#[must_use]
pub fn matches(selector: &NodeSelector, node: &NodeInfo) -> bool {
    selector.node_selector_terms.iter().any(|term| term_matches(term, node))
}

fn term_matches(term: &NodeSelectorTerm, node: &NodeInfo) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    !(expressions.is_empty() && fields.is_empty())
        && expressions.iter().all(|r| requirement_holds(r, node.label(&r.key)))
        && fields.iter().all(|r| r.key == "metadata.name" && requirement_holds(r, Some(node.name())))
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    #[test]
    fn each_operator_of_a_node_selector_holds_as_documented() {
        let node = NodeInfo::new(Arc::new(
            serde_json::from_value(json!({"metadata": {"name": "n", "labels": {"zone": "a", "cpus": "8"}}}))
                .unwrap(),
        ));
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
}
