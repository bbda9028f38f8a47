//! Jobs and CronJobs.

use serde_json::{Value, json};
use trine_typed::k8s_openapi::api::batch::v1::{CronJob, Job};
use trine_typed::k8s_openapi::api::core::v1::Pod;
use trine_typed::kube::ResourceExt;
use trine_typed::kube::api::{DeleteParams, PropagationPolicy};

use crate::cluster::{Cluster, until};
use crate::node::Node;

fn job(spec: &Value) -> Value {
    let mut job = json!({"metadata": {"name": "j"}, "spec": {"template": {"spec": {"restartPolicy": "Never",
        "containers": [{"name": "c", "image": "i"}]}}}});
    for (key, value) in spec.as_object().unwrap() {
        job["spec"][key] = value.clone();
    }
    job
}

impl Cluster {
    /// Lets a Pod end, as its node would say it.
    async fn end(&self, pod: &Pod, phase: &str, code: i32) {
        let state = json!({"terminated": {"exitCode": code}});
        let containers = json!([{"name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state}]);
        let status = json!({"status": {"phase": phase, "containerStatuses": containers,
            "conditions": [{"type": "Ready", "status": "False"}]}});
        use trine_typed::kube::api::{Patch, PatchParams};
        let patch = Patch::Merge(status);
        self.api::<Pod>().patch_status(&pod.name_any(), &PatchParams::default(), &patch).await.unwrap();
    }

    /// The Pods of the Job that have not ended, once there are so many.
    async fn running(&self, count: usize) -> Vec<Pod> {
        let running = async || {
            let mut pods = self.pods("job-name=j").await;
            let phase = |pod: &Pod| pod.status.as_ref().and_then(|s| s.phase.clone()).unwrap_or_default();
            pods.retain(|pod| !["Succeeded", "Failed"].contains(&phase(pod).as_str()));
            pods
        };
        until(&format!("{count} Pods run"), async || running().await.len() == count).await;
        running().await
    }

    async fn status(&self) -> Value {
        self.get::<Job>("j").await["status"].clone()
    }

    /// The types of the Job's true conditions, in their order.
    async fn conditions(&self) -> Vec<String> {
        let conditions = self.status().await["conditions"].as_array().cloned().unwrap_or_default();
        let truths = conditions.iter().filter(|c| c["status"] == "True");
        truths.map(|c| c["type"].as_str().unwrap().to_owned()).collect()
    }
}

fn index(pod: &Pod) -> String {
    pod.annotations()["batch.kubernetes.io/job-completion-index"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_runs_until_enough_pods_have_succeeded() {
    let cluster = Cluster::start().await;
    cluster.create::<Job>(job(&json!({"completions": 3, "parallelism": 2}))).await;
    for left in [2, 2, 1] {
        let pods = cluster.running(left).await;
        cluster.end(&pods[0], "Succeeded", 0).await;
    }
    until("it is complete", async || cluster.conditions().await == ["SuccessCriteriaMet", "Complete"]).await;
    let status = cluster.status().await;
    assert_eq!(status["succeeded"], 3);
    assert_eq!(status["uncountedTerminatedPods"], json!({}));
    assert!(status["active"].is_null() && status["completionTime"].is_string());
    let pods: Vec<Pod> = cluster.list("job-name=j").await;
    assert_eq!(pods.len(), 3);
    assert!(pods.iter().all(|pod| pod.finalizers().is_empty()), "nothing holds them");
    until("it is told", async || cluster.told("j").await.contains(&"Completed: Job completed".to_owned()))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_fails_when_its_pods_fail_too_often() {
    let cluster = Cluster::start().await;
    let _node = Node::join(&cluster, "n").await;
    cluster.create::<Job>(job(&json!({"completions": 2, "parallelism": 2, "backoffLimit": 0}))).await;
    let pods = cluster.running(2).await;
    cluster.end(&pods[0], "Failed", 1).await;
    until("it has failed", async || cluster.conditions().await == ["FailureTarget", "Failed"]).await;
    let status = cluster.status().await;
    assert_eq!((&status["failed"], &status["terminating"]), (&json!(2), &json!(0)));
    let failed =
        status["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "Failed").unwrap().clone();
    assert_eq!(
        (&failed["reason"], &failed["message"]),
        (&json!("BackoffLimitExceeded"), &json!("Job has reached the specified backoff limit"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn indexes_are_done_one_by_one_and_policies_decide() {
    let cluster = Cluster::start().await;
    let _node = Node::join(&cluster, "n").await;
    let rules =
        json!({"rules": [{"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [42]}}]});
    cluster
        .create::<Job>(job(&json!({"completionMode": "Indexed", "completions": 3, "parallelism": 3,
            "backoffLimitPerIndex": 2, "podFailurePolicy": rules})))
        .await;
    let mut pods = cluster.running(3).await;
    pods.sort_by_key(index);
    assert_eq!(pods.iter().map(index).collect::<Vec<_>>(), ["0", "1", "2"]);
    assert_eq!(pods[1].spec.as_ref().unwrap().hostname.as_deref(), Some("j-1"));
    cluster.end(&pods[1], "Failed", 42).await;
    cluster.end(&pods[0], "Succeeded", 0).await;
    until("one is done, one has failed", async || {
        let status = cluster.status().await;
        status["completedIndexes"] == "0" && status["failedIndexes"] == "1"
    })
    .await;
    cluster.end(&pods[2], "Succeeded", 0).await;
    until("it has failed for its index", async || cluster.conditions().await == ["FailureTarget", "Failed"])
        .await;
    assert_eq!(cluster.status().await["completedIndexes"], "0,2");
}

#[tokio::test(flavor = "multi_thread")]
async fn enough_indexes_end_the_job_and_stop_the_others() {
    let cluster = Cluster::start().await;
    let _node = Node::join(&cluster, "n").await;
    let policy = json!({"rules": [{"succeededIndexes": "1-2", "succeededCount": 1}]});
    cluster
        .create::<Job>(job(&json!({"completionMode": "Indexed", "completions": 3, "parallelism": 3, "successPolicy": policy})))
        .await;
    let mut pods = cluster.running(3).await;
    pods.sort_by_key(index);
    cluster.end(&pods[2], "Succeeded", 0).await;
    until("it is complete", async || cluster.conditions().await == ["SuccessCriteriaMet", "Complete"]).await;
    assert_eq!(cluster.status().await["completedIndexes"], "2");
    until("the others are gone", async || cluster.pods("job-name=j").await.len() == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_job_rests_and_goes_on() {
    let cluster = Cluster::start().await;
    let _node = Node::join(&cluster, "n").await;
    cluster.create::<Job>(job(&json!({"suspend": true}))).await;
    until("it rests", async || cluster.conditions().await == ["Suspended"]).await;
    assert!(cluster.status().await["startTime"].is_null());
    cluster.patch::<Job>("j", json!({"spec": {"suspend": false}})).await;
    cluster.running(1).await;
    cluster.patch::<Job>("j", json!({"spec": {"suspend": true}})).await;
    cluster.running(0).await;
    until("nothing is left", async || cluster.list::<Pod>("job-name=j").await.is_empty()).await;
    assert!(cluster.status().await["failed"].is_null(), "what was stopped has not failed");
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_are_taken_over_let_go_and_freed_with_their_job() {
    let cluster = Cluster::start().await;
    let _node = Node::join(&cluster, "n").await;
    let made: Job = cluster.create(job(&json!({}))).await;
    let pod = cluster.running(1).await.remove(0);
    let name = pod.name_any();
    cluster.patch::<Pod>(&name, json!({"metadata": {"ownerReferences": null}})).await;
    until("it is taken over again", async || {
        cluster.get::<Pod>(&name).await["metadata"]["ownerReferences"][0]["uid"] == json!(made.uid())
    })
    .await;
    cluster.patch::<Pod>(&name, json!({"metadata": {"labels": null}})).await;
    until("it is let go", async || {
        let pod = cluster.get::<Pod>(&name).await;
        pod["metadata"]["ownerReferences"].is_null() && pod["metadata"]["finalizers"].is_null()
    })
    .await;
    let orphan =
        DeleteParams { propagation_policy: Some(PropagationPolicy::Orphan), ..DeleteParams::default() };
    let stays = cluster.running(1).await.remove(0);
    cluster.api::<Job>().delete("j", &orphan).await.unwrap();
    until("nothing holds what is left behind", async || {
        let pod = cluster.get::<Pod>(&stays.name_any()).await;
        pod["metadata"]["finalizers"].is_null() && pod["metadata"]["ownerReferences"].is_null()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_goes_in_time_after_its_end() {
    let cluster = Cluster::start().await;
    let _node = Node::join(&cluster, "n").await;
    cluster.create::<Job>(job(&json!({"ttlSecondsAfterFinished": 1}))).await;
    let pods = cluster.running(1).await;
    cluster.end(&pods[0], "Succeeded", 0).await;
    until("it is gone", async || cluster.get::<Job>("j").await.is_null()).await;
    until("its Pod, too", async || cluster.list::<Pod>("job-name=j").await.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cron_job_makes_jobs_and_keeps_few() {
    let cluster = Cluster::start().await;
    let template = json!({"spec": job(&json!({}))["spec"]});
    cluster
        .create::<CronJob>(json!({"metadata": {"name": "c"}, "spec": {"schedule": "@every 1s", "successfulJobsHistoryLimit": 0,
            "concurrencyPolicy": "Forbid", "jobTemplate": template}}))
        .await;
    let jobs = async || cluster.list::<Job>("").await;
    until("there is one", async || jobs().await.len() == 1).await;
    let made = jobs().await.remove(0);
    let status = async || cluster.get::<CronJob>("c").await["status"].clone();
    until("it says so", async || status().await["active"][0]["name"] == json!(made.name_any())).await;
    assert!(status().await["lastScheduleTime"].is_string());
    let selector = format!("job-name={}", made.name_any());
    until("it has a Pod", async || cluster.pods(&selector).await.len() == 1).await;
    let pod = cluster.pods(&selector).await.remove(0);
    cluster.end(&pod, "Succeeded", 0).await;
    until("it is gone", async || jobs().await.iter().all(|job| job.uid() != made.uid())).await;
    until("it says when", async || status().await["lastSuccessfulTime"].is_string()).await;
    let completed = format!("SawCompletedJob: Saw completed job: {}, condition: Complete", made.name_any());
    until("it is told", async || cluster.told("c").await.contains(&completed)).await;
}
