//! What is owned goes with its owner or is left behind, and quotas are counted.

use std::time::Duration;

use serde_json::{Value, json};
use trine_typed::k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use trine_typed::k8s_openapi::api::core::v1::{ConfigMap, Pod, ResourceQuota};
use trine_typed::k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use trine_typed::kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, PropagationPolicy};
use trine_typed::kube::{Api, ResourceExt};

use crate::cluster::{Cluster, until};

impl Cluster {
    fn maps(&self) -> Api<ConfigMap> {
        Api::default_namespaced(self.client.clone())
    }

    /// A ConfigMap that these own; each blocks its owner's end.
    async fn map(&self, name: &str, owners: &[&ConfigMap]) -> ConfigMap {
        let owners: Vec<Value> = owners
            .iter()
            .map(|o| {
                json!({"apiVersion": "v1", "kind": "ConfigMap", "name": o.name_any(), "uid": o.uid(),
                    "blockOwnerDeletion": true})
            })
            .collect();
        let map = json!({"metadata": {"name": name, "ownerReferences": owners}});
        self.maps().create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap()
    }

    async fn delete(&self, name: &str, policy: PropagationPolicy) {
        let params = DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() };
        self.maps().delete(name, &params).await.unwrap();
    }

    async fn gone(&self, name: &str) {
        until(name, async || self.maps().get_opt(name).await.unwrap().is_none()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_owned_follows_its_owner_unless_it_has_another() {
    let cluster = Cluster::start().await;
    let (a, b) = (cluster.map("a", &[]).await, cluster.map("b", &[]).await);
    let child = cluster.map("child", &[&a]).await;
    cluster.map("grandchild", &[&child]).await;
    cluster.map("shared", &[&a, &b]).await;
    cluster.delete("a", PropagationPolicy::Background).await;
    cluster.gone("child").await;
    cluster.gone("grandchild").await;
    let of_b = async || {
        let shared = cluster.maps().get("shared").await.unwrap();
        let owners: Vec<String> = shared.owner_references().iter().map(|o| o.name.clone()).collect();
        owners == ["b"]
    };
    until("only b owns what was shared", of_b).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_waits_for_what_it_owns_or_leaves_it_behind() {
    let cluster = Cluster::start().await;
    let first = cluster.map("first", &[]).await;
    let held = cluster.map("held", &[&first]).await;
    let hold = async |finalizers: Value| {
        let patch = Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
        cluster.maps().patch("held", &PatchParams::default(), &patch).await.unwrap()
    };
    hold(json!(["example.org/hold"])).await;
    cluster.delete("first", PropagationPolicy::Foreground).await;
    until("what is held is being deleted", async || {
        cluster.maps().get("held").await.unwrap().metadata.deletion_timestamp.is_some()
    })
    .await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let waiting = cluster.maps().get("first").await.unwrap();
    assert_eq!(waiting.finalizers(), ["foregroundDeletion"], "it waits");
    assert!(held.uid().is_some());
    hold(json!(null)).await;
    cluster.gone("held").await;
    cluster.gone("first").await;

    let second = cluster.map("second", &[]).await;
    cluster.map("left", &[&second]).await;
    cluster.delete("second", PropagationPolicy::Orphan).await;
    cluster.gone("second").await;
    let left = cluster.maps().get("left").await.unwrap();
    assert!(left.owner_references().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_never_was_is_noticed_and_one_of_an_unknown_kind_is_left_alone() {
    let cluster = Cluster::start().await;
    let owned = |name: &str, api_version: &str, kind: &str| -> ConfigMap {
        let owner = json!([{"apiVersion": api_version, "kind": kind, "name": "nobody", "uid": "11111111-1111-1111-1111-111111111111"}]);
        serde_json::from_value(json!({"metadata": {"name": name, "ownerReferences": owner}})).unwrap()
    };
    for map in [owned("unknown", "example.org/v1", "Thing"), owned("dangling", "v1", "Secret")] {
        cluster.maps().create(&PostParams::default(), &map).await.unwrap();
    }
    cluster.gone("dangling").await;
    assert!(cluster.maps().get_opt("unknown").await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_owned_follows_its_owner_though_another_groups_server_is_away() {
    let away = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1.away.example.org"},
        "spec": {"group": "away.example.org", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1,
            "service": {"namespace": "default", "name": "away"}, "insecureSkipTLSVerify": true}});
    let cluster = Cluster::start_after(async |client| {
        let services: Api<APIService> = Api::all(client.clone());
        services
            .create(&PostParams::default(), &serde_json::from_value(away.clone()).unwrap())
            .await
            .unwrap();
    })
    .await;
    let owner = cluster.map("owner", &[]).await;
    cluster.map("owned", &[&owner]).await;
    cluster.delete("owner", PropagationPolicy::Background).await;
    cluster.gone("owned").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployments_sets_and_pods_go_with_it() {
    let cluster = Cluster::start().await;
    let deployments: Api<Deployment> = Api::default_namespaced(cluster.client.clone());
    let sets: Api<ReplicaSet> = Api::default_namespaced(cluster.client.clone());
    let pods: Api<Pod> = Api::default_namespaced(cluster.client.clone());
    let body = json!({"metadata": {"name": "w"}, "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "w"}},
        "template": {"metadata": {"labels": {"app": "w"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    deployments.create(&PostParams::default(), &serde_json::from_value(body).unwrap()).await.unwrap();
    let count = async || pods.list(&ListParams::default()).await.unwrap().items.len();
    until("it has Pods", async || count().await == 2).await;
    deployments.delete("w", &DeleteParams::foreground()).await.unwrap();
    until("the Pods are gone", async || count().await == 0).await;
    until("the set is gone", async || sets.list(&ListParams::default()).await.unwrap().items.is_empty())
        .await;
    until("the deployment is gone", async || deployments.get_opt("w").await.unwrap().is_none()).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(count().await, 0, "and stay away");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_is_counted_up_and_down() {
    let cluster = Cluster::start().await;
    let quotas: Api<ResourceQuota> = Api::default_namespaced(cluster.client.clone());
    let body = json!({"metadata": {"name": "q"}, "spec": {"hard": {"configmaps": "3", "count/deployments.apps": "1"}}});
    quotas.create(&PostParams::default(), &serde_json::from_value(body).unwrap()).await.unwrap();
    let used = async |resource: &str| {
        let quota = json!(quotas.get("q").await.unwrap());
        quota["status"]["used"][resource].as_str().map(str::to_owned)
    };
    // Every namespace has one of its own: kube-root-ca.crt.
    until("what is there is counted", async || used("configmaps").await.as_deref() == Some("1")).await;
    cluster.map("a", &[]).await;
    assert_eq!(used("configmaps").await.as_deref(), Some("2"), "at once");
    cluster.map("b", &[]).await;
    let third: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "c"}})).unwrap();
    let refused = cluster.maps().create(&PostParams::default(), &third).await.unwrap_err().to_string();
    assert!(
        refused.contains(
            "exceeded quota: q, requested: configmaps=1, used: configmaps=3, limited: configmaps=3"
        ),
        "{refused}"
    );
    cluster.delete("a", PropagationPolicy::Background).await;
    until("what is gone is given back", async || used("configmaps").await.as_deref() == Some("2")).await;
    assert_eq!(used("count/deployments.apps").await.as_deref(), Some("0"));
}
