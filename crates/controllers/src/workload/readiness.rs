//! What a Pod is good for at a time.

use std::time::Duration;

use trine_typed::k8s_openapi::api::core::v1::Pod;
use trine_typed::k8s_openapi::jiff::Timestamp;
use trine_typed::pods::is_finished;

/// Neither finished nor on its way out.
#[must_use]
pub fn is_active(pod: &Pod) -> bool {
    !is_finished(pod) && pod.metadata.deletion_timestamp.is_none()
}

/// On its way out, and still there.
#[must_use]
pub fn is_terminating(pod: &Pod) -> bool {
    !is_finished(pod) && pod.metadata.deletion_timestamp.is_some()
}

/// Since when a Pod is ready: never if it is not, since for ever if it does not say. One that has ended is not, whatever was said
/// of it last: who says that the Pods of a lost node have failed does not say more.
#[must_use]
pub fn ready_since(pod: &Pod) -> Option<Timestamp> {
    if is_finished(pod) {
        return None;
    }
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions.iter().find(|c| c.type_ == "Ready" && c.status == "True")?;
    Some(ready.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0))
}

/// Whether a Pod is ready.
#[must_use]
pub fn is_ready(pod: &Pod) -> bool {
    ready_since(pod).is_some()
}

/// How long it takes until a ready Pod counts as available: nothing if it is, none if it is not ready.
#[must_use]
pub fn available_in(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> Option<Duration> {
    let since = ready_since(pod)?;
    let least = Duration::from_secs(u64::try_from(min_ready_seconds).unwrap_or_default());
    let ready = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    Some(least.saturating_sub(ready))
}

/// Whether a Pod has been ready for long enough.
#[must_use]
pub fn is_available(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> bool {
    available_in(pod, min_ready_seconds, now) == Some(Duration::ZERO)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_that_has_ended_is_not_ready_whatever_was_said_last() {
        let conditions = json!([{"type": "Ready", "status": "True"}]);
        for (phase, ready) in [("Running", true), ("Failed", false), ("Succeeded", false)] {
            let pod = json!({"status": {"phase": phase, "conditions": conditions}});
            assert_eq!(is_ready(&serde_json::from_value(pod).unwrap()), ready, "{phase}");
        }
    }

    #[test]
    fn a_pod_is_available_once_it_was_ready_for_long_enough() {
        let pod = |status: &str| -> Pod {
            serde_json::from_value(json!({"status": {"conditions": [
                {"type": "Ready", "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}))
            .unwrap()
        };
        let at = |seconds: i64| {
            let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
            Timestamp::from_second(start.as_second() + seconds).unwrap()
        };
        let rows = [
            ("not ready", "False", 0, 100, None),
            ("at once", "True", 0, 0, Some(0)),
            ("not yet", "True", 10, 4, Some(6)),
            ("just so", "True", 10, 10, Some(0)),
            ("a clock that is behind", "True", 10, -5, Some(10)),
        ];
        for (name, status, least, seconds, expected) in rows {
            let found = available_in(&pod(status), least, at(seconds));
            assert_eq!(found, expected.map(Duration::from_secs), "{name}");
        }
    }
}
