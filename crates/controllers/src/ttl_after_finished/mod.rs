//! Jobs that are to go some time after their end.

use std::sync::Arc;
use std::time::Duration;

use trine_typed::k8s_openapi::api::batch::v1::Job;
use trine_typed::k8s_openapi::jiff::Timestamp;
use trine_typed::kube::api::{DeleteParams, Preconditions, PropagationPolicy};
use trine_typed::kube::{self, Api, Client, ResourceExt};
use trine_typed::mirror::{Key, Mirror};
use trine_typed::work_queue::{Next, WorkQueue};

use crate::frame::{ControllerError, Cx, retried};
use crate::job::end;
use crate::workload::wake;

/// Jobs that are looked at at a time.
const WORKERS: usize = 2;

/// Runs until the context ends.
pub async fn run(cx: Cx) {
    let jobs: Mirror<Job> = cx.shared();
    jobs.ready().await;
    let queue = Arc::new(WorkQueue::default());
    let _woken = wake::by_themselves(&jobs, &queue);
    let look = |key: Key| {
        let (client, jobs) = (cx.client.clone(), jobs.clone());
        async move {
            let Some(job) = jobs.get(&key.namespace, &key.name) else { return Next::Wait };
            match left(&job, trine_clock::now()) {
                None => Next::Wait,
                Some(Duration::ZERO) => {
                    remove(&client, &key).await.unwrap_or_else(|error| retried("ttl-after-finished", &error))
                }
                Some(left) => Next::After(left),
            }
        }
    };
    queue.work(WORKERS, &cx.stop, look).await;
}

/// How long a Job may still stay; none if that has no end, or it goes already.
#[must_use]
pub fn left(job: &Job, now: Timestamp) -> Option<Duration> {
    let ttl = job.spec.as_ref()?.ttl_seconds_after_finished?;
    if job.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let since = end(job)?.last_transition_time.as_ref()?.0;
    let ttl = Duration::from_secs(u64::try_from(ttl).unwrap_or_default());
    let gone_by = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    Some(ttl.saturating_sub(gone_by))
}

/// Removes a Job with its Pods, if it is still to go: the time may have been changed.
async fn remove(client: &Client, key: &Key) -> Result<Next, ControllerError> {
    let api: Api<Job> = Api::namespaced(client.clone(), &key.namespace);
    let live = api.get_opt(&key.name).await.map_err(ControllerError::of("get Job", key.to_string()))?;
    let Some(job) = live else { return Ok(Next::Wait) };
    match left(&job, trine_clock::now()) {
        None => return Ok(Next::Wait),
        Some(left) if !left.is_zero() => return Ok(Next::After(left)),
        Some(_) => {}
    }
    let same = Preconditions { uid: job.uid(), resource_version: None };
    let params = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Foreground),
        preconditions: Some(same),
        ..Default::default()
    };
    match api.delete(&key.name, &params).await {
        Ok(_) => Ok(Next::Wait),
        Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(Next::Wait),
        Err(error) => Err(ControllerError::of("delete Job", key.to_string())(error)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn only_a_job_at_its_end_goes_and_only_in_time() {
        let now: Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
        let ended = |kind: &str, status: &str| json!([{"type": kind, "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        let rows = [
            ("complete", json!(60), ended("Complete", "True"), Some(0)),
            ("failed, not yet", json!(100), ended("Failed", "True"), Some(40)),
            ("at once", json!(0), ended("Complete", "True"), Some(0)),
            ("not complete", json!(0), ended("Complete", "False"), None),
            ("about to fail", json!(0), ended("FailureTarget", "True"), None),
            ("stays", Value::Null, ended("Complete", "True"), None),
        ];
        for (name, ttl, conditions, expected) in rows {
            let job = json!({"metadata": {}, "spec": {"ttlSecondsAfterFinished": ttl, "template": {}}, "status": {"conditions": conditions}});
            let found = left(&serde_json::from_value(job).unwrap(), now);
            assert_eq!(found, expected.map(Duration::from_secs), "{name}");
        }
    }
}
