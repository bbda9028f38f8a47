//! The finalizer of Pods whose end is to be counted: it goes when that is done, and when nobody counts any more.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use trine_typed::k8s_openapi::api::batch::v1::Job;
use trine_typed::k8s_openapi::api::core::v1::Pod;
use trine_typed::kube::api::{Patch, PatchParams};
use trine_typed::kube::{self, Api, Client, ResourceExt};
use trine_typed::mirror::{Key, Mirror, controller_of};
use trine_typed::work_queue::{Next, WorkQueue};

use super::template::{TRACKED, is_tracked};
use super::{is_finished, is_foreign};
use crate::frame::{ControllerError, retried};
use crate::workload::wake;

/// Pods that are released at a time.
const WORKERS: usize = 4;

/// Why the finalizer of a Pod goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// Its end is noted, or nobody counts it.
    Noted,
    /// It does not count, for it has not ended. If it has meanwhile, its end would be lost: it must be as it was seen.
    DoesNotCount,
}

/// Takes the finalizer from a Pod; one that is gone is success.
pub(super) async fn release(
    client: &Client,
    mirror: &Mirror<Pod>,
    pod: &Pod,
    why: Why,
) -> Result<(), ControllerError> {
    if !is_tracked(pod) {
        return Ok(());
    }
    let api: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
    let patch = Patch::Strategic(letting_go(pod, why));
    match api.patch(&pod.name_any(), &PatchParams::default(), &patch).await {
        Ok(released) => {
            // The last finalizer of a Pod that is to go holds it no longer.
            if released.finalizers().is_empty()
                && released.metadata.deletion_timestamp.is_some()
                && released.metadata.deletion_grace_period_seconds == Some(0)
            {
                mirror.forget(&Key::of(&pod.metadata), &pod.uid().unwrap_or_default());
            } else {
                mirror.learn(&released);
            }
            Ok(())
        }
        // 409 may be said of another one of its name, but also of a lost race, after which the Pod is still there.
        Err(kube::Error::Api(status)) if status.code == 404 => {
            mirror.forget(&Key::of(&pod.metadata), &pod.uid().unwrap_or_default());
            Ok(())
        }
        Err(error) => Err(ControllerError::of("release Pod", pod.name_any())(error)),
    }
}

fn letting_go(pod: &Pod, why: Why) -> Value {
    let mut meta = json!({"uid": pod.uid(), "$deleteFromPrimitiveList/finalizers": [TRACKED]});
    if why == Why::DoesNotCount {
        meta["resourceVersion"] = json!(pod.resource_version());
    }
    json!({"metadata": meta})
}

/// Whether nobody counts a Pod that has the finalizer: it has no controller, or its Job is gone or at its end. Pods of other
/// kinds that have the finalizer, and those of Jobs of other controllers, are none of ours.
fn is_left_behind(pod: &Pod, jobs: &Mirror<Job>) -> bool {
    if !is_tracked(pod) {
        return false;
    }
    let Some(owner) = controller_of(&pod.metadata) else { return true };
    if owner.kind != "Job" || owner.api_version != "batch/v1" {
        return false;
    }
    wake::resolve(jobs, &pod.metadata, owner).is_none_or(|job| is_finished(&job) && !is_foreign(&job))
}

/// Releases Pods that are left behind, until `stop`.
pub(super) async fn run(client: Client, jobs: Mirror<Job>, pods: Mirror<Pod>, stop: &CancellationToken) {
    let queue = Arc::new(WorkQueue::default());
    let _pods_change = {
        let (queue, jobs) = (Arc::clone(&queue), jobs.clone());
        pods.subscribe(move |_, new| {
            if let Some(pod) = new.filter(|pod| is_left_behind(pod, &jobs)) {
                queue.add(Key::of(&pod.metadata));
            }
        })
    };
    let _jobs_end = {
        let (queue, pods) = (Arc::clone(&queue), pods.clone());
        jobs.subscribe(move |old, new| {
            let ended = new.is_none_or(|job| is_finished(job));
            let Some(job) = old.or(new).filter(|_| ended) else { return };
            for pod in pods.controlled_by(job.uid().as_deref().unwrap_or_default()) {
                if is_tracked(&pod) {
                    queue.add(Key::of(&pod.metadata));
                }
            }
        })
    };
    let free = |key: Key| {
        let (client, jobs, pods) = (client.clone(), jobs.clone(), pods.clone());
        async move {
            let pod = pods.get(&key.namespace, &key.name).filter(|pod| is_left_behind(pod, &jobs));
            let Some(pod) = pod else { return Next::Wait };
            match release(&client, &pods, &pod, Why::Noted).await {
                Ok(()) => Next::Wait,
                Err(error) => retried("job", &error),
            }
        }
    };
    queue.work(WORKERS, stop, free).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_that_does_not_count_is_let_go_only_as_it_was_seen() {
        let pod: Pod =
            serde_json::from_value(json!({"metadata": {"uid": "u", "resourceVersion": "7"}})).unwrap();
        let version = |why| letting_go(&pod, why)["metadata"]["resourceVersion"].clone();
        assert_eq!((version(Why::DoesNotCount), version(Why::Noted)), (json!("7"), Value::Null));
    }
}
