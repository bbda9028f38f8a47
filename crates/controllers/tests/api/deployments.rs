//! Deployments.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use trine_typed::k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use trine_typed::k8s_openapi::api::core::v1::Pod;
use trine_typed::kube::ResourceExt;

use crate::cluster::{Cluster, until};
use crate::node::{BROKEN, Node, SLOW, image};

const REVISION: &str = "deployment.kubernetes.io/revision";

fn deployment(replicas: i32, surge: &Value, unavailable: &Value) -> Value {
    json!({"metadata": {"name": "d"}, "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "d"}},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}},
        "template": template("one")}})
}

fn template(image: &str) -> Value {
    json!({"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "c", "image": image}],
        "terminationGracePeriodSeconds": 1}})
}

impl Cluster {
    async fn set_image(&self, image: &str) {
        self.patch::<Deployment>("d", json!({"spec": {"template": template(image)}})).await;
    }

    /// Waits until the rollout is done, as `kubectl rollout status` does.
    async fn rolled_out(&self) {
        until("the rollout is done", async || {
            let d = self.get::<Deployment>("d").await;
            let (status, wanted) = (&d["status"], &d["spec"]["replicas"]);
            status["observedGeneration"] == d["metadata"]["generation"]
                && ["replicas", "updatedReplicas", "availableReplicas"].iter().all(|k| status[*k] == *wanted)
        })
        .await;
    }

    /// The ReplicaSets as `image size revision`, by revision.
    async fn sets(&self) -> Vec<String> {
        let sets: Vec<ReplicaSet> = self.list("app=d").await;
        let mut sets: Vec<(i64, String)> = sets
            .iter()
            .map(|set| {
                let set = json!(set);
                let revision = set["metadata"]["annotations"][REVISION].as_str().unwrap_or_default();
                let image = set["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap();
                (
                    revision.parse().unwrap_or_default(),
                    format!("{image} {} {revision}", set["spec"]["replicas"]),
                )
            })
            .collect();
        sets.sort();
        sets.into_iter().map(|(_, text)| text).collect()
    }

    async fn condition(&self, kind: &str) -> String {
        let d = self.get::<Deployment>("d").await;
        let conditions = d["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.iter().find(|c| c["type"] == kind);
        found.map_or(String::new(), |c| {
            format!("{} {}", c["status"].as_str().unwrap(), c["reason"].as_str().unwrap())
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_keeps_its_limits_and_can_be_taken_back() {
    let cluster = Cluster::start().await;
    let node = Node::join(&cluster, "n").await;
    let begin = Instant::now();
    cluster.create::<Deployment>(deployment(6, &json!(2), &json!(1))).await;
    until("its Pods are there", async || cluster.pods("app=d").await.len() == 6).await;
    println!("six Pods {:?} after their Deployment", begin.elapsed());
    cluster.rolled_out().await;
    assert_eq!(cluster.condition("Progressing").await, "True NewReplicaSetAvailable");
    assert_eq!(cluster.condition("Available").await, "True MinimumReplicasAvailable");

    node.watch(6);
    cluster.set_image("two").await;
    cluster.rolled_out().await;
    let seen = node.seen();
    assert!(seen.most <= 8 && seen.fewest_ready >= Some(5), "{seen:?}");
    assert_eq!(cluster.sets().await, ["one 0 1", "two 6 2"]);
    let d = cluster.get::<Deployment>("d").await;
    assert_eq!(d["metadata"]["annotations"][REVISION], "2");

    cluster.set_image("one").await;
    cluster.rolled_out().await;
    assert_eq!(cluster.sets().await, ["two 0 2", "one 6 3"], "the first set is taken again");
    assert!(cluster.pods("app=d").await.iter().all(|pod| image(pod) == "one"));
    let told = cluster.told("d").await;
    let first = told.iter().any(|line| {
        line.starts_with("ScalingReplicaSet: Scaled up replica set d-") && line.ends_with(" from 0 to 6")
    });
    assert!(first, "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_that_hangs_is_resized_by_shares_and_replaced_by_a_good_one() {
    let cluster = Cluster::start().await;
    let _node = Node::join(&cluster, "n").await;
    cluster.create::<Deployment>(deployment(10, &json!(3), &json!(2))).await;
    cluster.rolled_out().await;
    cluster.set_image(BROKEN).await;
    let sets = async |expected: &[&str]| cluster.sets().await == expected;
    until("it hangs", async || sets(&["one 8 1", "broken 5 2"]).await).await;
    until("eight are available", async || {
        cluster.get::<Deployment>("d").await["status"]["availableReplicas"] == 8
    })
    .await;
    cluster.patch::<Deployment>("d", json!({"spec": {"replicas": 30}})).await;
    until("each grows by its share", async || sets(&["one 20 1", "broken 13 2"]).await).await;
    cluster.patch::<Deployment>("d", json!({"spec": {"replicas": 4}})).await;
    cluster.set_image("three").await;
    cluster.rolled_out().await;
    assert_eq!(cluster.sets().await, ["one 0 1", "broken 0 2", "three 4 3"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn recreation_never_has_old_and_new_pods_together() {
    let cluster = Cluster::start().await;
    let node = Node::join(&cluster, "n").await;
    let mut body = deployment(3, &json!(0), &json!(0));
    body["spec"]["strategy"] = json!({"type": "Recreate"});
    body["spec"]["template"] = template(SLOW);
    cluster.create::<Deployment>(body).await;
    cluster.rolled_out().await;
    node.watch(3);
    cluster.set_image("two").await;
    until("the old ones are on their way out", async || cluster.pods("app=d").await.is_empty()).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(cluster.list::<Pod>("app=d").await.len(), 3, "the new ones wait");
    assert_eq!(cluster.get::<Deployment>("d").await["status"]["terminatingReplicas"], 3);
    node.release();
    cluster.rolled_out().await;
    let together = node.seen().together;
    assert!(together.iter().all(|images| images.len() <= 1), "{together:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_set_that_is_there_already_is_taken_over_with_its_pods() {
    let cluster = Cluster::start().await;
    let _node = Node::join(&cluster, "n").await;
    let set = json!({"metadata": {"name": "first", "labels": {"app": "d"}, "annotations": {REVISION: "3546343826724305832"}},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "d"}}, "template": template("one")}});
    cluster.create::<ReplicaSet>(set).await;
    until("it has a Pod", async || {
        cluster.get::<ReplicaSet>("first").await["status"]["availableReplicas"] == 1
    })
    .await;
    let pod = cluster.pods("app=d").await.remove(0);

    let mut same = deployment(1, &json!(1), &json!(0));
    same["spec"]["revisionHistoryLimit"] = 0.into();
    cluster.create::<Deployment>(same).await;
    cluster.rolled_out().await;
    let pods = cluster.pods("app=d").await;
    assert_eq!((pods.len(), pods[0].uid()), (1, pod.uid()), "no other Pod");
    assert_eq!(cluster.sets().await, ["one 1 3546343826724305832"]);

    cluster.set_image("two").await;
    cluster.rolled_out().await;
    until("no history is kept", async || cluster.sets().await == ["two 1 3546343826724305833"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_holds_the_template_back_but_not_the_number() {
    let cluster = Cluster::start().await;
    let _node = Node::join(&cluster, "n").await;
    cluster.create::<Deployment>(deployment(2, &json!(1), &json!(0))).await;
    cluster.rolled_out().await;
    cluster
        .patch::<Deployment>(
            "d",
            json!({"spec": {"paused": true, "replicas": 3, "template": template("two")}}),
        )
        .await;
    until("it is larger", async || cluster.sets().await == ["one 3 1"]).await;
    until("it says that it is paused", async || {
        cluster.condition("Progressing").await == "Unknown DeploymentPaused"
    })
    .await;
    cluster.patch::<Deployment>("d", json!({"spec": {"paused": false}})).await;
    cluster.rolled_out().await;
    assert_eq!(cluster.sets().await, ["one 0 1", "two 3 2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_without_progress_is_late() {
    let cluster = Cluster::start().await;
    let _node = Node::join(&cluster, "n").await;
    let mut body = deployment(1, &json!(1), &json!(0));
    body["spec"]["progressDeadlineSeconds"] = 2.into();
    body["spec"]["template"] = template(BROKEN);
    cluster.create::<Deployment>(body).await;
    until("it is late", async || cluster.condition("Progressing").await == "False ProgressDeadlineExceeded")
        .await;
    assert_eq!(cluster.condition("Available").await, "False MinimumReplicasUnavailable");
    cluster.set_image("good").await;
    cluster.rolled_out().await;
    until("it is done", async || cluster.condition("Progressing").await == "True NewReplicaSetAvailable")
        .await;
}
