//! For how long a Pod may stay on a node that drives Pods off. Pure.

use std::time::Duration;

use trine_typed::k8s_openapi::api::core::v1::{Taint, Toleration};
use trine_typed::placement::covers;

/// For how long a Pod may stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stay {
    /// For ever.
    Always,
    /// So long, counted from when the taint was seen.
    For(Duration),
}

/// What the tolerations say of these taints. Each taint needs one that covers it; of all that do, the shortest counts.
#[must_use]
pub fn stay(tolerations: &[Toleration], taints: &[Taint]) -> Stay {
    let driving = || taints.iter().filter(|taint| taint.effect == "NoExecute");
    if driving().any(|taint| !tolerations.iter().any(|toleration| covers(toleration, taint))) {
        return Stay::For(Duration::ZERO);
    }
    let used = tolerations.iter().filter(|toleration| driving().any(|taint| covers(toleration, taint)));
    let seconds = used.filter_map(|toleration| toleration.toleration_seconds).min();
    seconds.map_or(Stay::Always, |s| Stay::For(Duration::from_secs(u64::try_from(s).unwrap_or(0))))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_shortest_of_the_tolerations_that_are_needed_counts() {
        let taint = |key: &str, effect: &str| json!({"key": key, "effect": effect});
        let tolerates = |key: &str, seconds: Option<i64>| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds});
        let (a, b) = (taint("a", "NoExecute"), taint("b", "NoExecute"));
        let seconds = |s: u64| Stay::For(Duration::from_secs(s));
        let rows: [(&str, Value, Value, Stay); 9] = [
            ("nothing drives", json!([taint("a", "NoSchedule")]), json!([]), Stay::Always),
            ("not tolerated", json!([a]), json!([]), seconds(0)),
            ("for ever", json!([a]), json!([tolerates("a", None)]), Stay::Always),
            ("for a time", json!([a]), json!([tolerates("a", Some(200))]), seconds(200)),
            ("one of two", json!([a, b]), json!([tolerates("a", Some(200))]), seconds(0)),
            (
                "the shorter",
                json!([a, b]),
                json!([tolerates("a", Some(200)), tolerates("b", Some(5))]),
                seconds(5),
            ),
            (
                "one for ever",
                json!([a, b]),
                json!([tolerates("a", None), tolerates("b", Some(5))]),
                seconds(5),
            ),
            (
                "one that is not needed",
                json!([a]),
                json!([tolerates("a", None), tolerates("b", Some(5))]),
                Stay::Always,
            ),
            ("less than nothing", json!([a]), json!([tolerates("a", Some(-1))]), seconds(0)),
        ];
        for (name, taints, tolerations, expected) in rows {
            let taints: Vec<Taint> = serde_json::from_value(taints).unwrap();
            let tolerations: Vec<Toleration> = serde_json::from_value(tolerations).unwrap();
            assert_eq!(stay(&tolerations, &taints), expected, "{name}");
        }
    }
}
