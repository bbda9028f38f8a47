//! How long a Job waits after failures of its Pods: 10 s, twice as long after each further one, 10 minutes at most.

use std::sync::Arc;
use std::time::Duration;

use trine_typed::k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use trine_typed::k8s_openapi::jiff::Timestamp;

/// After the first failure.
const FIRST: Duration = Duration::from_secs(10);
/// At most.
const LAST: Duration = Duration::from_secs(600);

/// Failures in a row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Backoff {
    /// How many since the last success.
    pub failures: u32,
    /// When the last one was.
    pub last: Option<Timestamp>,
}

impl Backoff {
    /// With Pods that have finished since.
    #[must_use]
    pub fn with(self, succeeded: &[Arc<Pod>], failed: &[Arc<Pod>]) -> Self {
        let success = succeeded.iter().map(|pod| finished_at(pod)).max();
        let failures = failed.iter().map(|pod| finished_at(pod));
        let failures: Vec<Timestamp> = failures.filter(|at| success.is_none_or(|s| *at > s)).collect();
        let before = if success.is_some() { Self::default() } else { self };
        let count = u32::try_from(failures.len()).unwrap_or(u32::MAX);
        Self {
            failures: before.failures.saturating_add(count),
            last: failures.into_iter().max().or(before.last),
        }
    }

    /// How long to wait from now on.
    #[must_use]
    pub fn left(self, now: Timestamp) -> Duration {
        let Some(last) = self.last.filter(|_| self.failures > 0) else { return Duration::ZERO };
        let wait = FIRST.saturating_mul(1 << (self.failures - 1).min(16)).min(LAST);
        let waited = Duration::try_from(now.duration_since(last)).unwrap_or_default();
        wait.saturating_sub(waited)
    }
}

/// When a Pod has finished: its last container, or else when it stopped being ready, or was deleted, or was made.
#[must_use]
pub fn finished_at(pod: &Pod) -> Timestamp {
    let made = pod.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |t| t.0);
    of_containers(pod).or_else(|| not_ready_since(pod)).or_else(|| deleted_at(pod)).unwrap_or(made)
}

fn of_containers(pod: &Pod) -> Option<Timestamp> {
    let status = pod.status.as_ref()?;
    let init = pod.spec.iter().flat_map(|s| s.init_containers.iter().flatten());
    let sidecars: Vec<&str> =
        init.filter(|c| c.restart_policy.as_deref() == Some("Always")).map(|c| c.name.as_str()).collect();
    let of_sidecars = status.init_container_statuses.iter().flatten();
    let of_sidecars = of_sidecars.filter(|c| sidecars.contains(&c.name.as_str()));
    let ended = |c: &ContainerStatus| Some(c.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref()?.0);
    let all: Option<Vec<Timestamp>> =
        status.container_statuses.iter().flatten().chain(of_sidecars).map(ended).collect();
    all?.into_iter().max()
}

fn not_ready_since(pod: &Pod) -> Option<Timestamp> {
    let mut conditions = pod.status.as_ref()?.conditions.iter().flatten();
    let ready = conditions.find(|c| c.type_ == "Ready" && c.status == "False")?;
    ready.last_transition_time.as_ref().map(|t| t.0)
}

fn deleted_at(pod: &Pod) -> Option<Timestamp> {
    let end = pod.metadata.deletion_timestamp.as_ref()?.0;
    let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or_default();
    Timestamp::from_second(end.as_second() - grace).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_767_225_600 + second).unwrap()
    }

    fn pod(end: i64) -> Arc<Pod> {
        Arc::new(
            serde_json::from_value(json!({"status": {"containerStatuses": [{"name": "a", "image": "", "imageID": "",
                "ready": false, "restartCount": 0, "state": {"terminated": {"exitCode": 1, "finishedAt": at(end)}}}]}}))
            .unwrap(),
        )
    }

    #[test]
    fn the_wait_doubles_up_to_its_end() {
        for (failures, expected) in [(0, 0), (1, 10), (2, 20), (3, 40), (6, 320), (7, 600), (500, 600)] {
            let backoff = Backoff { failures, last: Some(at(0)) };
            assert_eq!(backoff.left(at(0)), Duration::from_secs(expected), "{failures}");
        }
        let backoff = Backoff { failures: 2, last: Some(at(0)) };
        assert_eq!([5, 20, 30].map(|s| backoff.left(at(s)).as_secs()), [15, 0, 0]);
    }

    #[test]
    fn a_success_forgets_what_failed_before_it() {
        let before = Backoff { failures: 3, last: Some(at(0)) };
        assert_eq!(before.with(&[], &[]), before);
        assert_eq!(before.with(&[], &[pod(5), pod(4)]), Backoff { failures: 5, last: Some(at(5)) });
        assert_eq!(before.with(&[pod(5)], &[]), Backoff::default());
        assert_eq!(before.with(&[pod(5)], &[pod(4), pod(7)]), Backoff { failures: 1, last: Some(at(7)) });
    }

    #[test]
    fn a_pod_without_containers_has_finished_when_it_says() {
        let pod = |value| finished_at(&serde_json::from_value(value).unwrap());
        let made = json!({"creationTimestamp": at(1)});
        assert_eq!(pod(json!({"metadata": made})), at(1));
        let deleted = json!({"creationTimestamp": at(1), "deletionTimestamp": at(40), "deletionGracePeriodSeconds": 30});
        assert_eq!(pod(json!({"metadata": deleted})), at(10));
        let ready =
            json!({"conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": at(5)}]});
        assert_eq!(pod(json!({"metadata": deleted, "status": ready})), at(5));
    }
}
