//! A Deployment that is resized while several of its ReplicaSets have Pods: each grows or shrinks by its share.

use std::cmp::Reverse;

use trine_typed::k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};

use super::annotations;
use super::limits::{limits, wanted};
use super::status::size;

/// The new sizes, in the order of `sets`, which all have Pods. Together they come to the wanted number and the surge, or to
/// nothing if nothing is wanted.
#[must_use]
pub fn sizes(deployment: &Deployment, sets: &[&ReplicaSet]) -> Vec<i32> {
    let most = wanted(deployment).saturating_add(limits(deployment).surge);
    let allowed = if wanted(deployment) > 0 { most } else { 0 };
    let mut sizes: Vec<i32> = sets.iter().map(|set| size(set)).collect();
    let missing = allowed - sizes.iter().sum::<i32>();
    // The largest first; of equal ones the newest grows first and the oldest shrinks first.
    let mut order: Vec<usize> = (0..sets.len()).collect();
    let age = |i: &usize| (sets[*i].metadata.creation_timestamp.clone(), sets[*i].metadata.name.clone());
    if missing > 0 {
        order.sort_by_key(|i| Reverse((size(sets[*i]), age(i))));
    } else {
        order.sort_by_key(|i| (Reverse(size(sets[*i])), age(i)));
    }
    let mut left = missing;
    for i in &order {
        let share = share(deployment, sets[*i], most);
        let share = if missing > 0 { share.min(left) } else { share.max(left) };
        if left != 0 {
            sizes[*i] += share;
            left -= share;
        }
    }
    if let Some(largest) = order.first() {
        sizes[*largest] = (sizes[*largest] + left).max(0);
    }
    sizes
}

/// By how much a ReplicaSet should grow, if it kept its share of the whole.
fn share(deployment: &Deployment, set: &ReplicaSet, most: i32) -> i32 {
    if wanted(deployment) == 0 {
        return -size(set);
    }
    let total = deployment.status.as_ref().and_then(|s| s.replicas).unwrap_or_default();
    let before = annotations::max(set).filter(|max| *max > 0).unwrap_or(total);
    if before == 0 {
        return 0;
    }
    let grown = f64::from(size(set)) * f64::from(most) / f64::from(before);
    // Both numbers are counts of Pods, far below what a float tells apart.
    #[allow(clippy::cast_possible_truncation)]
    let grown = grown.round() as i32;
    grown - size(set)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_keeps_its_share() {
        // Wanted now, surge, the sets from old to new with their size and the most that there was to be, and the new sizes.
        type Row = (&'static str, i32, i32, &'static [(i32, &'static str)], &'static [i32]);
        let rows: [Row; 9] = [
            ("conformance: 10 to 30 with 8 and 5", 30, 3, &[(8, "13"), (5, "13")], &[20, 13]),
            ("up, of equal ones the newer first", 11, 0, &[(5, "10"), (5, "10")], &[5, 6]),
            ("down, of equal ones the older first", 9, 0, &[(5, "10"), (5, "10")], &[4, 5]),
            ("down", 5, 0, &[(8, "10"), (2, "10")], &[4, 1]),
            ("to nothing", 0, 2, &[(8, "10"), (2, "10")], &[0, 0]),
            ("the rest goes to the largest", 11, 0, &[(4, "10"), (3, "10"), (3, "10")], &[5, 3, 3]),
            ("nobody knows what was", 20, 0, &[(8, "x"), (2, "")], &[16, 4]),
            ("only the surge changes", 10, 2, &[(8, "12"), (4, "12")], &[8, 4]),
            ("many old ones", 100, 0, &[(1, "10"), (1, "10"), (8, "10")], &[10, 10, 80]),
        ];
        for (name, replicas, surge, sets, expected) in rows {
            let total: i32 = sets.iter().map(|(size, _)| size).sum();
            let deployment =
                serde_json::from_value(json!({"status": {"replicas": total}, "spec": {"replicas": replicas,
                "selector": {}, "template": {}, "strategy": {"type": "RollingUpdate",
                    "rollingUpdate": {"maxSurge": surge, "maxUnavailable": 1}}}}))
                .unwrap();
            let sets: Vec<ReplicaSet> = sets
                .iter()
                .enumerate()
                .map(|(i, (size, max))| {
                    serde_json::from_value(json!({"metadata": {"name": format!("rs{i}"),
                        "creationTimestamp": format!("2026-01-01T00:00:0{i}Z"),
                        "annotations": {"deployment.kubernetes.io/max-replicas": max}},
                        "spec": {"replicas": size, "selector": {}}}))
                    .unwrap()
                })
                .collect();
            assert_eq!(sizes(&deployment, &sets.iter().collect::<Vec<_>>()), expected, "{name}");
        }
    }
}
