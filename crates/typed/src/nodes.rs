//! What many parts ask of a Node.

use k8s_openapi::api::core::v1::Node;

/// The ranges that a Node's Pods are given, the primary one first: those of all families, else the one of before there were several.
#[must_use]
pub fn pod_ranges(node: &Node) -> Vec<String> {
    let Some(spec) = &node.spec else { return Vec::new() };
    match &spec.pod_cidrs {
        Some(all) if !all.is_empty() => all.clone(),
        _ => spec.pod_cidr.iter().cloned().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_the_ranges_of_all_families_or_the_one_of_old() {
        let both = serde_json::json!(["10.244.0.0/24", "fd00:1:2:100::/64"]);
        for (spec, wanted) in [
            (serde_json::json!(null), vec![]),
            (serde_json::json!({}), vec![]),
            (serde_json::json!({"podCIDR": "10.244.0.0/24"}), vec!["10.244.0.0/24"]),
            (serde_json::json!({"podCIDR": "10.244.0.0/24", "podCIDRs": []}), vec!["10.244.0.0/24"]),
            (
                serde_json::json!({"podCIDR": "10.244.0.0/24", "podCIDRs": both}),
                vec!["10.244.0.0/24", "fd00:1:2:100::/64"],
            ),
        ] {
            let node: Node =
                serde_json::from_value(serde_json::json!({"metadata": {}, "spec": spec})).unwrap();
            assert_eq!(pod_ranges(&node), wanted);
        }
    }
}
