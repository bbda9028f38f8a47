//! Nodes that are not ready, and Pods that leave them.

use serde_json::{Value, json};
use trine_typed::k8s_openapi::api::core::v1::{Node as NodeObject, Pod};
use trine_typed::kube::Api;
use trine_typed::kube::api::{Patch, PatchParams};

use crate::cluster::{Cluster, until};
use crate::node::Node;

impl Cluster {
    async fn node_says(&self, name: &str, ready: &str) {
        let nodes: Api<NodeObject> = Api::all(self.client.clone());
        let status = json!({"status": {"conditions": [{"type": "Ready", "status": ready}]}});
        nodes.patch_status(name, &PatchParams::default(), &Patch::Strategic(&status)).await.unwrap();
    }

    async fn taint(&self, name: &str, taints: Value) {
        let nodes: Api<NodeObject> = Api::all(self.client.clone());
        let spec = json!({"spec": {"taints": taints}});
        nodes.patch(name, &PatchParams::default(), &Patch::Merge(&spec)).await.unwrap();
    }

    async fn taints_are(&self, name: &str, expected: &[&str]) {
        let nodes: Api<NodeObject> = Api::all(self.client.clone());
        until(&format!("{name} is tainted {expected:?}"), async || {
            let taints = nodes.get(name).await.unwrap().spec.and_then(|s| s.taints).unwrap_or_default();
            let told: Vec<String> = taints.iter().map(|t| format!("{}:{}", t.key, t.effect)).collect();
            told == expected
        })
        .await;
    }

    async fn pods_are(&self, expected: &[&str]) {
        until(&format!("{expected:?} are left"), async || {
            let pods = self.api::<Pod>().list(&Default::default()).await.unwrap();
            pods.items.iter().filter_map(|pod| pod.metadata.name.clone()).collect::<Vec<_>>() == expected
        })
        .await;
    }

    async fn pod(&self, name: &str, tolerations: Value) {
        let spec = json!({"containers": [{"name": "c", "image": "i"}], "tolerations": tolerations});
        self.create::<Pod>(json!({"metadata": {"name": name}, "spec": spec})).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nodes_conditions_become_taints_and_its_pods_do_not_pass_for_ready() {
    let cluster = Cluster::start().await;
    let _nodes = (Node::join(&cluster, "n").await, Node::join(&cluster, "other").await);
    cluster.pod("p", json!([])).await;
    let ready = async |wanted: bool| {
        until("the Pod's readiness", async || {
            let pod: Pod = cluster.api().get("p").await.unwrap();
            pod.spec.as_ref().unwrap().node_name.is_some() && crate::node::is_ready(&pod) == wanted
        })
        .await;
    };
    ready(true).await;
    let pod: Pod = cluster.api().get("p").await.unwrap();
    let node = pod.spec.unwrap().node_name.unwrap();
    cluster.node_says(&node, "False").await;
    let not_ready = "node.kubernetes.io/not-ready";
    let both = [format!("{not_ready}:NoSchedule"), format!("{not_ready}:NoExecute")];
    cluster.taints_are(&node, &both.each_ref().map(String::as_str)).await;
    ready(false).await;
    cluster.node_says(&node, "True").await;
    cluster.taints_are(&node, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_no_node_is_ready_nobody_is_driven_off() {
    let cluster = Cluster::start().await;
    let _node = Node::join(&cluster, "n").await;
    cluster.node_says("n", "Unknown").await;
    cluster.taints_are("n", &["node.kubernetes.io/unreachable:NoSchedule"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_leave_a_tainted_node_when_what_they_tolerate_is_over() {
    let cluster = Cluster::start().await;
    let _node = Node::join(&cluster, "n").await;
    let tolerates = |seconds: Value| json!([{"key": "t", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}]);
    cluster.pod("always", tolerates(Value::Null)).await;
    cluster.pod("long", tolerates(json!(3600))).await;
    cluster.pod("never", json!([])).await;
    cluster.pod("short", tolerates(json!(3))).await;
    until("all run", async || {
        let pods = cluster.api::<Pod>().list(&Default::default()).await.unwrap();
        pods.items.iter().filter(|pod| crate::node::is_ready(pod)).count() == 4
    })
    .await;
    let begin = std::time::Instant::now();
    cluster.taint("n", json!([{"key": "t", "effect": "NoExecute"}])).await;
    cluster.pods_are(&["always", "long", "short"]).await;
    cluster.pods_are(&["always", "long"]).await;
    assert!(begin.elapsed().as_secs() >= 3, "{:?}", begin.elapsed());
    cluster.taint("n", Value::Null).await;
    until("the Pod stays", async || {
        let told = cluster.told("long").await;
        told.contains(&"TaintManagerEviction: Cancelling deletion of Pod default/long".to_owned())
    })
    .await;
}
