//! StatefulSets.

use serde_json::{Value, json};
use trine_typed::k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use trine_typed::k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use trine_typed::kube::ResourceExt;
use trine_typed::kube::api::{DeleteParams, Patch, PatchParams};

use crate::cluster::{Cluster, until};
use crate::node::{BROKEN, Node, image};

fn set(more: &Value) -> Value {
    let mut set = json!({"metadata": {"name": "w"}, "spec": {"replicas": 3, "serviceName": "s", "selector": {"matchLabels": {"app": "w"}},
        "template": template("one")}});
    for (key, value) in more.as_object().unwrap() {
        set["spec"][key] = value.clone();
    }
    set
}

fn template(image: &str) -> Value {
    json!({"metadata": {"labels": {"app": "w"}}, "spec": {"containers": [{"name": "c", "image": image}]}})
}

impl Cluster {
    /// The Pods as `name image`.
    async fn members(&self) -> Vec<String> {
        let pods = self.pods("app=w").await;
        let mut members: Vec<String> =
            pods.iter().map(|pod| format!("{} {}", pod.name_any(), image(pod))).collect();
        members.sort();
        members
    }

    async fn members_are(&self, expected: &[&str]) {
        until(&format!("{expected:?}"), async || {
            let set = self.get::<StatefulSet>("w").await;
            let status = &set["status"];
            let all = |key: &str| status[key].as_u64().unwrap_or(0) == expected.len() as u64;
            self.members().await == expected
                && all("readyReplicas")
                && all("replicas")
                && status["observedGeneration"] == set["metadata"]["generation"]
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_come_and_go_in_order() {
    let cluster = Cluster::start().await;
    let _node = Node::join(&cluster, "n").await;
    cluster.create::<StatefulSet>(set(&json!({}))).await;
    cluster.members_are(&["w-0 one", "w-1 one", "w-2 one"]).await;
    let pods = cluster.pods("app=w").await;
    let made = |name: &str| {
        let pod = pods.iter().find(|pod| pod.name_any() == name).unwrap();
        pod.resource_version().unwrap().parse::<u64>().unwrap()
    };
    assert!(made("w-0") < made("w-1") && made("w-1") < made("w-2"), "one after the other");
    assert_eq!(pods[0].spec.as_ref().unwrap().subdomain.as_deref(), Some("s"));
    let uid =
        |pods: &[Pod], name: &str| pods.iter().find(|p| p.name_any() == name).and_then(ResourceExt::uid);

    cluster.api::<Pod>().delete("w-1", &DeleteParams::default()).await.unwrap();
    until("it has come again", async || {
        let now = cluster.pods("app=w").await;
        uid(&now, "w-1").is_some()
            && uid(&now, "w-1") != uid(&pods, "w-1")
            && uid(&now, "w-2") == uid(&pods, "w-2")
    })
    .await;
    cluster.patch::<StatefulSet>("w", json!({"spec": {"replicas": 1}})).await;
    cluster.members_are(&["w-0 one"]).await;
    until("it is told", async || {
        let told = cluster.told("w").await;
        told.contains(&"SuccessfulCreate: Create Pod w-2 in StatefulSet w successful".to_owned())
            && told.contains(&"SuccessfulDelete: Delete Pod w-2 in StatefulSet w successful".to_owned())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_stops_at_the_partition_and_what_is_broken_is_in_the_way() {
    let cluster = Cluster::start().await;
    let _node = Node::join(&cluster, "n").await;
    let partition = |partition: i32| json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": partition}}});
    cluster.create::<StatefulSet>(set(&partition(2))).await;
    cluster.members_are(&["w-0 one", "w-1 one", "w-2 one"]).await;
    cluster.patch::<StatefulSet>("w", json!({"spec": {"template": template("two")}})).await;
    cluster.members_are(&["w-0 one", "w-1 one", "w-2 two"]).await;
    until("the status counts both revisions", async || {
        let status = cluster.get::<StatefulSet>("w").await["status"].clone();
        status["currentRevision"] != status["updateRevision"]
            && (&status["currentReplicas"], &status["updatedReplicas"]) == (&json!(2), &json!(1))
    })
    .await;
    cluster.patch::<StatefulSet>("w", json!({"spec": partition(0)})).await;
    cluster.members_are(&["w-0 two", "w-1 two", "w-2 two"]).await;
    until("the update is done", async || {
        let status = cluster.get::<StatefulSet>("w").await["status"].clone();
        status["currentRevision"] == status["updateRevision"] && status["currentReplicas"] == 3
    })
    .await;

    cluster.patch::<StatefulSet>("w", json!({"spec": {"template": template(BROKEN)}})).await;
    until("the highest is broken", async || cluster.members().await == ["w-0 two", "w-1 two", "w-2 broken"])
        .await;
    cluster.patch::<StatefulSet>("w", json!({"spec": {"template": template("two")}})).await;
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert_eq!(cluster.members().await, ["w-0 two", "w-1 two", "w-2 broken"], "somebody has to remove it");
    cluster.api::<Pod>().delete("w-2", &DeleteParams::default()).await.unwrap();
    cluster.members_are(&["w-0 two", "w-1 two", "w-2 two"]).await;
    let revisions: Vec<ControllerRevision> = cluster.list("app=w").await;
    let mut numbers: Vec<_> = revisions.iter().filter_map(|r| r.revision).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 3, 4], "the one that was gone back to is the highest");
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_stay_or_go_as_the_policy_says() {
    let cluster = Cluster::start().await;
    let _node = Node::join(&cluster, "n").await;
    let claim = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}});
    cluster
        .create::<StatefulSet>(set(
            &json!({"podManagementPolicy": "Parallel", "volumeClaimTemplates": [claim],
            "persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete", "whenDeleted": "Retain"}}),
        ))
        .await;
    cluster.members_are(&["w-0 one", "w-1 one", "w-2 one"]).await;
    let claims = async || {
        let claims: Vec<PersistentVolumeClaim> = cluster.list("app=w").await;
        let mut names: Vec<String> = claims.iter().map(ResourceExt::name_any).collect();
        names.sort();
        names
    };
    assert_eq!(claims().await, ["data-w-0", "data-w-1", "data-w-2"]);
    cluster.patch::<StatefulSet>("w", json!({"spec": {"replicas": 1}})).await;
    cluster.members_are(&["w-0 one"]).await;
    until("those of Pods that are gone go", async || claims().await == ["data-w-0"]).await;
    cluster.patch::<StatefulSet>("w", json!({"spec": {"replicas": 2}})).await;
    cluster.members_are(&["w-0 one", "w-1 one"]).await;
    cluster.api::<StatefulSet>().delete("w", &DeleteParams::foreground()).await.unwrap();
    until("all Pods are gone", async || cluster.list::<Pod>("app=w").await.is_empty()).await;
    assert_eq!(claims().await, ["data-w-0", "data-w-1"], "they stay");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_thrown_out_comes_again_under_its_name() {
    let cluster = Cluster::start().await;
    let _node = Node::join(&cluster, "n").await;
    cluster.create::<StatefulSet>(set(&json!({"replicas": 1}))).await;
    cluster.members_are(&["w-0 one"]).await;
    let before = cluster.pods("app=w").await.remove(0).uid();
    let patch = Patch::Merge(json!({"status": {"phase": "Failed"}}));
    cluster.api::<Pod>().patch_status("w-0", &PatchParams::default(), &patch).await.unwrap();
    until("another one is there", async || {
        cluster.pods("app=w").await.first().is_some_and(|pod| pod.uid() != before)
    })
    .await;
    cluster.members_are(&["w-0 one"]).await;
}
