//! How fast a number of Pods may follow what metrics ask for, and within which bounds.

use std::time::Duration;

use trine_typed::k8s_openapi::api::autoscaling::v2::{
    HPAScalingPolicy, HPAScalingRules, HorizontalPodAutoscaler,
};
use trine_typed::k8s_openapi::jiff::Timestamp;

/// How long the highest recommendation counts before Pods are taken away. Upstream: 5 min.
const DOWN_WINDOW: i32 = 300;
/// Without rules a number at most doubles, and four may always come.
const UP_LEAST: i32 = 4;

/// What an autoscaler has recommended and done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    recommended: Vec<(Timestamp, i32)>,
    /// Pods added and taken away.
    changed: Vec<(Timestamp, i32)>,
}

/// How long anything of the past may count: the longest window and period that validation allows.
const MEMORY: Duration = Duration::from_secs(3600);

impl History {
    /// The first recommendation is the number that is found.
    pub fn begin(&mut self, current: i32, now: Timestamp) {
        if self.recommended.is_empty() {
            self.recommended.push((now, current));
        }
    }

    fn recommend(&mut self, replicas: i32, now: Timestamp) {
        self.recommended.push((now, replicas));
        self.recommended.retain(|(at, _)| within(*at, MEMORY, now));
    }

    /// Notes that a number was changed.
    pub fn change(&mut self, by: i32, now: Timestamp) {
        self.changed.push((now, by));
        self.changed.retain(|(at, _)| within(*at, MEMORY, now));
    }

    /// The change within the last seconds.
    fn change_within(&self, seconds: i32, now: Timestamp) -> i32 {
        let recent = self.changed.iter().filter(|(at, _)| within(*at, secs(seconds), now));
        recent.map(|(_, by)| by).sum()
    }
}

fn secs(seconds: i32) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
}

fn within(at: Timestamp, span: Duration, now: Timestamp) -> bool {
    Duration::try_from(now.duration_since(at)).unwrap_or_default() < span
}

/// A number, and what is to be said of how it came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limited {
    /// Pods.
    pub replicas: i32,
    /// Reason and message for `AbleToScale`.
    pub able: (&'static str, &'static str),
    /// Whether the number was limited, and reason and message for `ScalingLimited`.
    pub limited: (bool, &'static str, &'static str),
}

const READY: (&str, &str) = ("ReadyForNewScale", "recommended size matches current size");
const DOWN: (&str, &str) = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
);
const UP: (&str, &str) = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
);

/// Limits what is desired, and remembers it.
pub fn limit(
    autoscaler: &HorizontalPodAutoscaler,
    history: &mut History,
    current: i32,
    desired: i32,
    now: Timestamp,
) -> Limited {
    let spec = &autoscaler.spec;
    let (least, most) = (spec.min_replicas.unwrap_or(1), spec.max_replicas);
    let rules = spec.behavior.as_ref().map(|b| (b.scale_up.clone(), b.scale_down.clone()));
    let window = |rules: Option<&HPAScalingRules>, default: i32| {
        secs(rules.and_then(|r| r.stabilization_window_seconds).unwrap_or(default))
    };
    let recent = |span: Duration| history.recommended.iter().filter(move |(at, _)| within(*at, span, now));
    let stable = match &rules {
        None => recent(secs(DOWN_WINDOW)).map(|(_, r)| *r).fold(desired, i32::max),
        Some((up, down)) => {
            let lowest = recent(window(up.as_ref(), 0)).map(|(_, r)| *r).fold(desired, i32::min);
            let highest = recent(window(down.as_ref(), DOWN_WINDOW)).map(|(_, r)| *r).fold(desired, i32::max);
            current.max(lowest).min(highest)
        }
    };
    let able = match stable {
        _ if stable == desired => READY,
        _ if rules.is_some() && stable >= current => UP,
        _ => DOWN,
    };
    history.recommend(desired, now);
    let (replicas, reason, message) = match &rules {
        None => by_bounds(current, stable, least, most),
        Some((up, down)) => {
            by_rules(history, (up.as_ref(), down.as_ref()), current, stable, (least, most), now)
        }
    };
    Limited { replicas, able, limited: (replicas != stable, reason, message) }
}

const FAST_UP: (&str, &str) =
    ("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate");
const FAST_DOWN: (&str, &str) =
    ("ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate");
const TOO_MANY: (&str, &str) =
    ("TooManyReplicas", "the desired replica count is more than the maximum replica count");
const TOO_FEW: (&str, &str) =
    ("TooFewReplicas", "the desired replica count is less than the minimum replica count");
const WITHIN: (&str, &str) = ("DesiredWithinRange", "the desired count is within the acceptable range");

type Reason = (i32, &'static str, &'static str);

fn because(replicas: i32, (reason, message): (&'static str, &'static str)) -> Reason {
    (replicas, reason, message)
}

fn by_bounds(current: i32, desired: i32, least: i32, most: i32) -> Reason {
    let fast = current.saturating_mul(2).max(UP_LEAST);
    let (top, why) = if most > fast { (fast, FAST_UP) } else { (most, TOO_MANY) };
    if desired < least {
        because(least, TOO_FEW)
    } else if desired > top {
        because(top, why)
    } else {
        because(desired, WITHIN)
    }
}

fn by_rules(
    history: &History,
    (up, down): (Option<&HPAScalingRules>, Option<&HPAScalingRules>),
    current: i32,
    desired: i32,
    (least, most): (i32, i32),
    now: Timestamp,
) -> Reason {
    // The number at the begin of a policy's period.
    let before = |policy: &HPAScalingPolicy| current - history.change_within(policy.period_seconds, now);
    if desired > current {
        let reached = |policy: &HPAScalingPolicy| match policy.type_.as_str() {
            "Pods" => before(policy).saturating_add(policy.value),
            _ => percent_up(before(policy), policy.value),
        };
        let limit = most_of(up, &UP_POLICIES, reached, current, true).max(current);
        let (top, why) = if most > limit { (limit, FAST_UP) } else { (most, TOO_MANY) };
        if desired > top { because(top, why) } else { because(desired, WITHIN) }
    } else if desired < current {
        let reached = |policy: &HPAScalingPolicy| match policy.type_.as_str() {
            "Pods" => before(policy).saturating_sub(policy.value),
            _ => percent_down(before(policy), policy.value),
        };
        let limit = most_of(down, &DOWN_POLICIES, reached, current, false).min(current);
        let (bottom, why) = if least < limit { (limit, FAST_DOWN) } else { (least, TOO_FEW) };
        if desired < bottom { because(bottom, why) } else { because(desired, WITHIN) }
    } else {
        because(desired, WITHIN)
    }
}

/// Type, value and period of what holds where a rule has no policies: a doubling or four Pods in 15 s.
const UP_POLICIES: [(&str, i32, i32); 2] = [("Pods", 4, 15), ("Percent", 100, 15)];
/// And on the way down: all at once.
const DOWN_POLICIES: [(&str, i32, i32); 1] = [("Percent", 100, 15)];

/// How far the policies of a rule let a number go: the one that lets it go farthest, or least far, counts.
fn most_of(
    rules: Option<&HPAScalingRules>,
    default: &[(&str, i32, i32)],
    reached: impl Fn(&HPAScalingPolicy) -> i32,
    current: i32,
    up: bool,
) -> i32 {
    let select = rules.and_then(|r| r.select_policy.as_deref()).unwrap_or("Max");
    if select == "Disabled" {
        return current;
    }
    let fallback = || {
        let one = |(type_, value, period_seconds): &(&str, i32, i32)| HPAScalingPolicy {
            type_: (*type_).to_owned(),
            value: *value,
            period_seconds: *period_seconds,
        };
        default.iter().map(one).collect()
    };
    let policies: Vec<HPAScalingPolicy> = rules.and_then(|r| r.policies.clone()).unwrap_or_else(fallback);
    let limits = policies.iter().map(reached);
    let farthest = select != "Min";
    if farthest == up { limits.max() } else { limits.min() }.unwrap_or(current)
}

/// Rounded up, or a small number would never grow.
fn percent_up(number: i32, percent: i32) -> i32 {
    let grown = i64::from(number) * (100 + i64::from(percent));
    i32::try_from(grown.div_euclid(100) + i64::from(grown.rem_euclid(100) != 0)).unwrap_or(i32::MAX)
}

fn percent_down(number: i32, percent: i32) -> i32 {
    i32::try_from(i64::from(number) * (100 - i64::from(percent)) / 100).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Seconds before now, and a number.
    type Ago = &'static [(i64, i32)];

    fn now() -> Timestamp {
        "2026-01-01T12:00:00Z".parse().unwrap()
    }

    fn ago(seconds: i64) -> Timestamp {
        Timestamp::from_second(now().as_second() - seconds).unwrap()
    }

    fn autoscaler(behavior: &Value) -> HorizontalPodAutoscaler {
        serde_json::from_value(json!({"metadata": {"name": "h"}, "spec": {"minReplicas": 2, "maxReplicas": 50, "behavior": behavior,
            "scaleTargetRef": {"kind": "Deployment", "name": "d"}}}))
        .unwrap()
    }

    #[test]
    fn without_rules_a_number_doubles_at_most_and_falls_after_five_minutes() {
        let rows: [(&str, Ago, i32, i32, i32, &str, &str); 7] = [
            ("up", &[], 3, 5, 5, "ReadyForNewScale", "DesiredWithinRange"),
            ("not too fast", &[], 3, 20, 6, "ReadyForNewScale", "ScaleUpLimit"),
            ("four may always come", &[], 1, 20, 4, "ReadyForNewScale", "ScaleUpLimit"),
            ("not too many", &[], 40, 70, 50, "ReadyForNewScale", "TooManyReplicas"),
            ("not too few", &[], 3, 1, 2, "ReadyForNewScale", "TooFewReplicas"),
            (
                "not while more was recommended",
                &[(60, 8), (400, 20)],
                8,
                3,
                8,
                "ScaleDownStabilized",
                "DesiredWithinRange",
            ),
            ("after that", &[(301, 8)], 8, 3, 3, "ReadyForNewScale", "DesiredWithinRange"),
        ];
        for (name, past, current, desired, replicas, able, limited) in rows {
            let mut history = History::default();
            history.recommended.extend(past.iter().map(|(seconds, r)| (ago(*seconds), *r)));
            let found = limit(&autoscaler(&Value::Null), &mut history, current, desired, now());
            assert_eq!((found.replicas, found.able.0, found.limited.1), (replicas, able, limited), "{name}");
        }
    }

    #[test]
    fn rules_say_how_fast_and_when() {
        let policy = |kind: &str, value: i32| json!([{"type": kind, "value": value, "periodSeconds": 60}]);
        let up = |policies: Value| json!({"scaleUp": {"policies": policies}});
        let down =
            |policies: Value| json!({"scaleDown": {"policies": policies, "stabilizationWindowSeconds": 0}});
        let both = json!([{"type": "Pods", "value": 1, "periodSeconds": 60}, {"type": "Percent", "value": 50, "periodSeconds": 60}]);
        let min = json!({"scaleUp": {"policies": both, "selectPolicy": "Min"}});
        let never = json!({"scaleDown": {"selectPolicy": "Disabled", "stabilizationWindowSeconds": 0}});
        let slow = json!({"scaleUp": {"stabilizationWindowSeconds": 120}});
        let rows: [(&str, Value, Ago, i32, i32, i32, &str); 11] = [
            ("some Pods", up(policy("Pods", 2)), &[], 10, 20, 12, "ScaleUpLimit"),
            ("some of them came already", up(policy("Pods", 2)), &[(30, 1)], 10, 20, 11, "ScaleUpLimit"),
            ("long ago", up(policy("Pods", 2)), &[(90, 1)], 10, 20, 12, "ScaleUpLimit"),
            ("a share, rounded up", up(policy("Percent", 15)), &[], 10, 20, 12, "ScaleUpLimit"),
            ("the most", up(both.clone()), &[], 10, 20, 15, "ScaleUpLimit"),
            ("the least", min, &[], 10, 20, 11, "ScaleUpLimit"),
            ("down by some", down(policy("Pods", 3)), &[], 10, 2, 7, "ScaleDownLimit"),
            ("down by a share, rounded down", down(policy("Percent", 15)), &[], 10, 2, 8, "ScaleDownLimit"),
            ("never down", never, &[], 10, 2, 10, "ScaleDownLimit"),
            ("the default", json!({"scaleUp": {}}), &[], 10, 40, 20, "ScaleUpLimit"),
            ("not before that was asked for long enough", slow, &[], 10, 20, 10, "DesiredWithinRange"),
        ];
        for (name, behavior, changed, current, desired, replicas, limited) in rows {
            let mut history = History::default();
            history.begin(current, ago(60));
            history.changed.extend(changed.iter().map(|(seconds, by)| (ago(*seconds), *by)));
            let found = limit(&autoscaler(&behavior), &mut history, current, desired, now());
            assert_eq!((found.replicas, found.limited.1), (replicas, limited), "{name}");
        }
    }
}
