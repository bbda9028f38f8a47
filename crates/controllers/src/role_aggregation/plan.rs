//! Which ClusterRoles are sums of others, and what they should hold.

use serde_json::json;
use trine_objects::selector::label::LabelSelector;
use trine_typed::k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use trine_typed::kube::ResourceExt;

/// The sums that do not hold what they should, with the rules that they should hold: those of all roles that one of their
/// selectors wants, in the order of their names, each rule once.
#[must_use]
pub fn plan(roles: &[ClusterRole]) -> Vec<(String, Vec<PolicyRule>)> {
    let mut sorted: Vec<&ClusterRole> = roles.iter().collect();
    sorted.sort_by_key(|r| r.name_any());
    let mut wrong = Vec::new();
    for sum in &sorted {
        let Some(aggregation) = &sum.aggregation_rule else { continue };
        let selectors: Vec<LabelSelector> = aggregation
            .cluster_role_selectors
            .iter()
            .flatten()
            .filter_map(|s| LabelSelector::from_object(&json!(s)).ok())
            .collect();
        let mut rules: Vec<PolicyRule> = Vec::new();
        for role in sorted.iter().filter(|r| r.name_any() != sum.name_any()) {
            let labels = json!(role.metadata.labels);
            if !selectors.iter().any(|s| s.matches(&labels)) {
                continue;
            }
            for rule in role.rules.iter().flatten() {
                if !rules.contains(rule) {
                    rules.push(rule.clone());
                }
            }
        }
        if sum.rules.as_deref().unwrap_or_default() != rules {
            wrong.push((sum.name_any(), rules));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(name: &str, labels: serde_json::Value, sum: Option<&str>, verbs: &[&str]) -> ClusterRole {
        let rules: Vec<_> =
            verbs.iter().map(|v| json!({"apiGroups": [""], "resources": ["pods"], "verbs": [v]})).collect();
        let mut role = json!({"metadata": {"name": name, "labels": labels}, "rules": rules});
        if let Some(label) = sum {
            role["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {label: "true"}}]});
        }
        serde_json::from_value(role).unwrap()
    }

    #[test]
    fn a_sum_holds_the_rules_of_those_that_it_selects() {
        let view = role("view", json!({"to-edit": "true"}), Some("to-view"), &[]);
        let roles = [
            role("b", json!({"to-view": "true"}), None, &["list", "get"]),
            role("a", json!({"to-view": "true"}), None, &["get"]),
            role("c", json!({"other": "true"}), None, &["delete"]),
            view,
        ];
        let planned = plan(&roles);
        let [(name, rules)] = planned.as_slice() else { panic!("{planned:?}") };
        let verbs: Vec<&str> = rules.iter().map(|r| r.verbs[0].as_str()).collect();
        assert_eq!((name.as_str(), verbs), ("view", vec!["get", "list"]));
    }

    #[test]
    fn what_is_right_is_left_alone() {
        let sum = role("view", json!({}), Some("to-view"), &["get"]);
        assert!(plan(&[role("a", json!({"to-view": "true"}), None, &["get"]), sum]).is_empty());
    }
}
