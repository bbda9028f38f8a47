//! How many Pods a Deployment may have too many or too few.

use trine_typed::k8s_openapi::api::apps::v1::Deployment;
use trine_typed::k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::workload::share::{self, Round};

/// The limits of a rolling update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Pods above the wanted number.
    pub surge: i32,
    /// Pods of the wanted number that need not be available.
    pub unavailable: i32,
}

/// How many Pods are wanted.
#[must_use]
pub fn wanted(deployment: &Deployment) -> i32 {
    deployment.spec.replicas.unwrap_or(1)
}

/// Whether Pods are replaced step by step.
#[must_use]
pub fn is_rolling(deployment: &Deployment) -> bool {
    let strategy = deployment.spec.strategy.as_ref();
    strategy.and_then(|s| s.type_.as_deref()).unwrap_or("RollingUpdate") == "RollingUpdate"
}

/// The limits: a percentage of surge counts up, one of unavailable Pods down. If both come to nothing, one Pod may be
/// unavailable, or nothing would ever move.
#[must_use]
pub fn limits(deployment: &Deployment) -> Limits {
    let total = wanted(deployment);
    if !is_rolling(deployment) {
        return Limits { surge: 0, unavailable: 0 };
    }
    let rolling = deployment.spec.strategy.as_ref().and_then(|s| s.rolling_update.as_ref());
    let of = |value: Option<&IntOrString>, round| value.map_or(0, |value| share::of(value, total, round));
    let surge = of(rolling.and_then(|r| r.max_surge.as_ref()), Round::Up);
    let unavailable = of(rolling.and_then(|r| r.max_unavailable.as_ref()), Round::Down);
    let unavailable = if surge == 0 && unavailable == 0 { 1 } else { unavailable };
    Limits { surge, unavailable: unavailable.min(total) }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn limits_follow_the_wanted_number() {
        let rows: [(i32, Value, Value, (i32, i32)); 8] = [
            (10, json!("25%"), json!("25%"), (3, 2)),
            (1, json!("25%"), json!("25%"), (1, 0)),
            (10, json!(3), json!(2), (3, 2)),
            (2, json!("0%"), json!("1%"), (0, 1)),
            (0, json!(1), json!(1), (1, 0)),
            (3, json!(0), json!(5), (0, 3)),
            (4, json!("100%"), json!(0), (4, 0)),
            (4, json!(0), json!("100%"), (0, 4)),
        ];
        for (replicas, surge, unavailable, expected) in rows {
            let spec = json!({"spec": {"replicas": replicas, "selector": {}, "template": {},
                "strategy": {"type": "RollingUpdate",
                    "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}}});
            let found = limits(&serde_json::from_value(spec.clone()).unwrap());
            assert_eq!((found.surge, found.unavailable), expected, "{spec}");
        }
        let recreate = json!({"spec": {"replicas": 3, "selector": {}, "template": {}, "strategy": {"type": "Recreate"}}});
        let found = limits(&serde_json::from_value(recreate).unwrap());
        assert_eq!(found, Limits { surge: 0, unavailable: 0 });
    }
}
