//! DaemonSets.

use serde_json::{Value, json};
use trine_typed::k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use trine_typed::k8s_openapi::api::core::v1::{Node as NodeObject, Pod};
use trine_typed::kube::ResourceExt;
use trine_typed::kube::api::{Api, Patch, PatchParams};

use crate::cluster::{Cluster, until};
use crate::node::{Node, image};

fn set(strategy: &Value) -> Value {
    json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"app": "d"}}, "updateStrategy": strategy,
        "template": template("one")}})
}

fn template(image: &str) -> Value {
    json!({"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "c", "image": image}]}})
}

impl Cluster {
    /// The Pods as `node image`, by node.
    async fn placed(&self) -> Vec<String> {
        let pods = self.pods("app=d").await;
        let node = |pod: &Pod| pod.spec.as_ref().and_then(|s| s.node_name.clone()).unwrap_or_default();
        let mut placed: Vec<String> =
            pods.iter().map(|pod| format!("{} {}", node(pod), image(pod))).collect();
        placed.sort();
        placed
    }

    async fn label_node(&self, name: &str, labels: Value) {
        let nodes: Api<NodeObject> = Api::all(self.client.clone());
        let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
        nodes.patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Waits until the status says that all Pods are new and available.
    async fn daemons_are_there(&self, count: i32) {
        until(&format!("{count} daemons are there"), async || {
            let d = self.get::<DaemonSet>("d").await;
            let status = &d["status"];
            status["observedGeneration"] == d["metadata"]["generation"]
                && [
                    "desiredNumberScheduled",
                    "currentNumberScheduled",
                    "numberReady",
                    "updatedNumberScheduled",
                    "numberAvailable",
                ]
                .iter()
                .all(|key| status[*key].as_i64().unwrap_or(0) == i64::from(count))
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_node_has_its_daemon_and_a_new_one_by_and_by() {
    let cluster = Cluster::start().await;
    let node = Node::join(&cluster, "a").await;
    let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}});
    cluster.create::<DaemonSet>(set(&rolling)).await;
    until("one is there", async || cluster.placed().await == ["a one"]).await;
    let _more = [Node::join(&cluster, "b").await, Node::join(&cluster, "c").await];
    cluster.daemons_are_there(3).await;
    assert_eq!(cluster.placed().await, ["a one", "b one", "c one"]);

    node.watch(3);
    cluster.patch::<DaemonSet>("d", json!({"spec": {"template": template("two")}})).await;
    cluster.daemons_are_there(3).await;
    assert_eq!(cluster.placed().await, ["a two", "b two", "c two"]);
    let seen = node.seen();
    assert!(seen.most <= 3 && seen.fewest_ready >= Some(2), "{seen:?}");

    // What is rolled back to has its revision again, and no third one is made.
    cluster.patch::<DaemonSet>("d", json!({"spec": {"template": template("one")}})).await;
    cluster.daemons_are_there(3).await;
    let revisions: Vec<ControllerRevision> = cluster.list("app=d").await;
    let mut numbers: Vec<_> = revisions.iter().filter_map(|r| r.revision).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [2, 3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_follows_the_labels_of_its_node() {
    let cluster = Cluster::start().await;
    let _nodes = [Node::join(&cluster, "a").await, Node::join(&cluster, "b").await];
    let mut body = set(&json!({"type": "OnDelete"}));
    body["spec"]["template"]["spec"]["nodeSelector"] = json!({"color": "blue"});
    cluster.create::<DaemonSet>(body).await;
    cluster.daemons_are_there(0).await;
    cluster.label_node("b", json!({"color": "blue"})).await;
    cluster.daemons_are_there(1).await;
    assert_eq!(cluster.placed().await, ["b one"]);
    cluster.label_node("b", json!({"color": "green"})).await;
    until("it is gone", async || cluster.placed().await.is_empty()).await;
    cluster.daemons_are_there(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_fails_is_replaced_and_one_that_surges_is_never_missing() {
    let cluster = Cluster::start().await;
    let node = Node::join(&cluster, "a").await;
    let _other = Node::join(&cluster, "b").await;
    let surging = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}});
    cluster.create::<DaemonSet>(set(&surging)).await;
    cluster.daemons_are_there(2).await;
    node.watch(2);
    cluster.patch::<DaemonSet>("d", json!({"spec": {"template": template("two")}})).await;
    cluster.daemons_are_there(2).await;
    until("the old ones are gone", async || cluster.placed().await == ["a two", "b two"]).await;
    let seen = node.seen();
    assert!(seen.most <= 3 && seen.fewest_ready >= Some(2), "{seen:?}");

    let failed = cluster.pods("app=d").await.remove(0);
    let patch = Patch::Merge(json!({"status": {"phase": "Failed"}}));
    cluster.api::<Pod>().patch_status(&failed.name_any(), &PatchParams::default(), &patch).await.unwrap();
    until("another one stands in", async || {
        let pods = cluster.pods("app=d").await;
        pods.len() == 2 && pods.iter().all(|pod| pod.uid() != failed.uid())
    })
    .await;
    cluster.daemons_are_there(2).await;
    until("it is told", async || {
        let told = cluster.told("d").await;
        told.iter().any(|line| line.starts_with("FailedDaemonPod: Found failed daemon pod default/d-"))
    })
    .await;
}
