//! ReplicaSets and ReplicationControllers.

use serde_json::{Value, json};
use trine_typed::k8s_openapi::api::apps::v1::ReplicaSet;
use trine_typed::k8s_openapi::api::core::v1::{Pod, ReplicationController, ResourceQuota};
use trine_typed::k8s_openapi::api::policy::v1::PodDisruptionBudget;
use trine_typed::kube::ResourceExt;
use trine_typed::kube::api::DeleteParams;

use crate::cluster::{Cluster, until};
use crate::node::Node;

fn template(app: &str) -> Value {
    json!({"metadata": {"labels": {"app": app}}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

fn set(name: &str, replicas: i32) -> Value {
    json!({"metadata": {"name": name}, "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}},
        "template": template(name)}})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_set_keeps_its_number_of_pods() {
    let cluster = Cluster::start().await;
    let _node = Node::join(&cluster, "n").await;
    cluster.create::<ReplicaSet>(set("rs", 3)).await;
    let counts = async |expected: Value| {
        let status = cluster.get::<ReplicaSet>("rs").await["status"].clone();
        ["replicas", "readyReplicas", "availableReplicas", "fullyLabeledReplicas"].map(|k| status[k].clone())
            == [(); 4].map(|()| expected.clone())
    };
    until("three are ready", async || counts(json!(3)).await).await;
    let pod = cluster.pods("app=rs").await.remove(0);
    assert!(pod.name_any().starts_with("rs-"));
    cluster.api::<Pod>().delete(&pod.name_any(), &DeleteParams::default()).await.unwrap();
    until("another one stands in", async || {
        let pods = cluster.pods("app=rs").await;
        pods.len() == 3 && pods.iter().all(|p| p.uid() != pod.uid())
    })
    .await;
    cluster.patch::<ReplicaSet>("rs", json!({"spec": {"replicas": 1}})).await;
    until("one is left", async || counts(json!(1)).await && cluster.pods("app=rs").await.len() == 1).await;
    until("it is told", async || {
        let told = cluster.told("rs").await;
        let with = |start: &str| told.iter().filter(|line| line.starts_with(start)).count();
        (with("SuccessfulCreate: Created pod: rs-"), with("SuccessfulDelete: Deleted pod: rs-")) == (4, 2)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_are_taken_over_and_let_go_by_their_labels() {
    let cluster = Cluster::start().await;
    let _node = Node::join(&cluster, "n").await;
    let mut orphan = template("rs");
    orphan["metadata"]["name"] = "orphan".into();
    let orphan: Pod = cluster.create(orphan).await;
    // The controllers share one copy of the Pods: once a budget counts it, the ReplicaSet sees it, too.
    let budget = json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 0, "selector": {"matchLabels": {"app": "rs"}}}});
    cluster.create::<PodDisruptionBudget>(budget).await;
    until("it is seen", async || {
        cluster.get::<PodDisruptionBudget>("b").await["status"]["expectedPods"] == 1
    })
    .await;
    cluster.create::<ReplicaSet>(set("rs", 1)).await;
    let owner = async |name: &str| {
        let pod = cluster.get::<Pod>(name).await;
        pod["metadata"]["ownerReferences"][0]["name"].as_str().unwrap_or("nobody").to_owned()
    };
    until("it is taken over", async || owner("orphan").await == "rs").await;
    assert_eq!(cluster.pods("").await.len(), 1, "and no other is made");
    cluster.patch::<Pod>("orphan", json!({"metadata": {"labels": {"app": "free"}}})).await;
    until("it is let go", async || owner("orphan").await == "nobody").await;
    until("another stands in", async || cluster.pods("app=rs").await.len() == 1).await;
    let now = cluster.get::<Pod>("orphan").await;
    assert_eq!(now["metadata"]["uid"], json!(orphan.uid()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replication_controller_says_why_it_has_too_few_pods() {
    let cluster = Cluster::start().await;
    let _node = Node::join(&cluster, "n").await;
    cluster
        .create::<ResourceQuota>(json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "2"}}}))
        .await;
    until("the quota is counted", async || {
        cluster.get::<ResourceQuota>("q").await["status"]["used"]["pods"] == "0"
    })
    .await;
    let controller = json!({"metadata": {"name": "rc"}, "spec": {"replicas": 3, "selector": {"app": "rc"}, "template": template("rc")}});
    cluster.create::<ReplicationController>(controller).await;
    let condition = async || {
        let status = cluster.get::<ReplicationController>("rc").await["status"].clone();
        status["conditions"][0].clone()
    };
    until("it says so", async || condition().await["type"] == "ReplicaFailure").await;
    let said = condition().await;
    assert_eq!((&said["status"], &said["reason"]), (&json!("True"), &json!("FailedCreate")));
    let message = said["message"].as_str().unwrap();
    assert!(
        message.starts_with("pods \"rc-") && message.contains("is forbidden: exceeded quota: q"),
        "{message}"
    );
    cluster.patch::<ReplicationController>("rc", json!({"spec": {"replicas": 2}})).await;
    until("it is over", async || condition().await.is_null()).await;
    assert_eq!(cluster.pods("app=rc").await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn hundreds_of_pods_are_made_and_removed_exactly() {
    let cluster = Cluster::start().await;
    cluster.create::<ReplicaSet>(set("rs", 300)).await;
    let told = async |count: i32| cluster.get::<ReplicaSet>("rs").await["status"]["replicas"] == count;
    until("all are there", async || told(300).await).await;
    assert_eq!(cluster.pods("app=rs").await.len(), 300, "not one more");
    cluster.patch::<ReplicaSet>("rs", json!({"spec": {"replicas": 5}})).await;
    until("five are left", async || told(5).await).await;
    assert_eq!(cluster.pods("app=rs").await.len(), 5, "not one fewer");
}
