//! PodDisruptionBudgets.

use serde_json::{Value, json};
use trine_typed::k8s_openapi::api::apps::v1::Deployment;
use trine_typed::k8s_openapi::api::core::v1::Pod;
use trine_typed::k8s_openapi::api::policy::v1::PodDisruptionBudget;
use trine_typed::kube::api::EvictParams;

use crate::cluster::{Cluster, until};
use crate::node::Node;

impl Cluster {
    /// Waits until the budget says so: healthy, wanted, expected and allowed.
    async fn budget_is(&self, expected: [i32; 4]) {
        until(&format!("{expected:?}"), async || {
            let budget = self.get::<PodDisruptionBudget>("b").await;
            let number = |key: &str| budget["status"][key].clone();
            ["currentHealthy", "desiredHealthy", "expectedPods", "disruptionsAllowed"].map(number)
                == expected.map(|n| json!(n))
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_counts_what_the_controllers_of_its_pods_want() {
    let cluster = Cluster::start().await;
    let _node = Node::join(&cluster, "n").await;
    let template =
        json!({"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    cluster
        .create::<Deployment>(json!({"metadata": {"name": "d"}, "spec": {"replicas": 3,
            "selector": {"matchLabels": {"app": "d"}}, "template": template}}))
        .await;
    let budget = json!({"metadata": {"name": "b"}, "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "d"}}}});
    cluster.create::<PodDisruptionBudget>(budget).await;
    cluster.budget_is([3, 2, 3, 1]).await;

    let condition: Value = cluster.get::<PodDisruptionBudget>("b").await["status"]["conditions"][0].clone();
    assert_eq!(
        (&condition["type"], &condition["reason"]),
        (&json!("DisruptionAllowed"), &json!("SufficientPods"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_nobody_controls_count_by_their_number_and_only_what_is_allowed_is_evicted() {
    let cluster = Cluster::start().await;
    let _node = Node::join(&cluster, "n").await;
    for name in ["p1", "p2"] {
        let pod = json!({"metadata": {"name": name, "labels": {"app": "p"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        cluster.create::<Pod>(pod).await;
    }
    let budget = |spec: Value| {
        let mut spec = spec;
        spec["selector"] = json!({"matchLabels": {"app": "p"}});
        json!({"metadata": {"name": "b"}, "spec": spec})
    };
    cluster.create::<PodDisruptionBudget>(budget(json!({"minAvailable": 1}))).await;
    cluster.budget_is([2, 1, 2, 1]).await;
    cluster.patch::<PodDisruptionBudget>("b", json!({"spec": {"minAvailable": 2}})).await;
    cluster.budget_is([2, 2, 2, 0]).await;
    cluster
        .patch::<PodDisruptionBudget>("b", json!({"spec": {"minAvailable": null, "maxUnavailable": 1}}))
        .await;
    cluster.budget_is([2, 0, 0, 0]).await;
    until("it is told", async || {
        cluster.told("b").await.iter().any(|line| line.starts_with("UnmanagedPods: "))
    })
    .await;

    cluster
        .patch::<PodDisruptionBudget>("b", json!({"spec": {"minAvailable": 1, "maxUnavailable": null}}))
        .await;
    cluster.budget_is([2, 1, 2, 1]).await;
    let evict = async |name: &str| cluster.api::<Pod>().evict(name, &EvictParams::default()).await;
    evict("p1").await.unwrap();
    let refused = evict("p2").await.unwrap_err().to_string();
    assert!(
        refused.contains("Cannot evict pod as it would violate the pod's disruption budget."),
        "{refused}"
    );
    cluster.budget_is([1, 1, 1, 0]).await;
}
