//! HorizontalPodAutoscalers. The metrics server is played by a custom kind of its group.

use std::time::Duration;

use serde_json::{Value, json};
use trine_typed::k8s_openapi::api::apps::v1::Deployment;
use trine_typed::k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use trine_typed::k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use trine_typed::k8s_openapi::jiff::Timestamp;
use trine_typed::kube::ResourceExt;
use trine_typed::kube::api::{Api, DynamicObject, PostParams};
use trine_typed::kube::discovery::ApiResource;

use crate::cluster::{Cluster, until};
use crate::node::Node;

impl Cluster {
    async fn autoscaler_says(&self, kind: &str, reason: &str) {
        until(&format!("{kind} {reason}"), async || {
            let conditions = self.get::<HorizontalPodAutoscaler>("h").await["status"]["conditions"].clone();
            conditions.as_array().into_iter().flatten().any(|c| c["type"] == kind && c["reason"] == reason)
        })
        .await;
    }

    async fn play_metrics(&self) -> Api<DynamicObject> {
        let any =
            json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        let definition = json!({"metadata": {"name": "pods.metrics.k8s.io", "annotations": {"api-approved.kubernetes.io": "unapproved, played"}},
            "spec": {"group": "metrics.k8s.io", "scope": "Namespaced",
                "names": {"kind": "PodMetrics", "plural": "pods", "singular": "podmetric", "listKind": "PodMetricsList"},
                "versions": [{"name": "v1beta1", "served": true, "storage": true, "schema": any}]}});
        let definitions: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        definitions
            .create(&PostParams::default(), &serde_json::from_value(definition).unwrap())
            .await
            .unwrap();
        let kind = ApiResource {
            group: "metrics.k8s.io".into(),
            version: "v1beta1".into(),
            api_version: "metrics.k8s.io/v1beta1".into(),
            kind: "PodMetrics".into(),
            plural: "pods".into(),
        };
        let api = Api::namespaced_with(self.client.clone(), "default", &kind);
        until("it is served", async || api.list(&Default::default()).await.is_ok()).await;
        api
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_follows_what_is_measured_of_its_pods() {
    let cluster = Cluster::start().await;
    let _node = Node::join(&cluster, "n").await;
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}});
    cluster
        .create::<Deployment>(json!({"metadata": {"name": "d"}, "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "d"}},
            "template": {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [container]}}}}))
        .await;
    let target = json!({"type": "Utilization", "averageUtilization": 50});
    cluster
        .create::<HorizontalPodAutoscaler>(
            json!({"metadata": {"name": "h"}, "spec": {"minReplicas": 2, "maxReplicas": 3,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]}}),
        )
        .await;
    let replicas = async || cluster.get::<Deployment>("d").await["spec"]["replicas"].clone();
    until("there are as many as have to be", async || replicas().await == 2).await;
    cluster.autoscaler_says("AbleToScale", "SucceededRescale").await;
    until("both run", async || cluster.get::<Deployment>("d").await["status"]["readyReplicas"] == 2).await;
    // A change makes it look at once.
    cluster.patch::<HorizontalPodAutoscaler>("h", json!({"spec": {"maxReplicas": 4}})).await;
    cluster.autoscaler_says("ScalingActive", "FailedGetResourceMetric").await;

    let metrics = cluster.play_metrics().await;
    let later = Timestamp::now() + Duration::from_secs(60);
    for pod in cluster.pods("app=d").await {
        let sample: Value = json!({"apiVersion": "metrics.k8s.io/v1beta1", "kind": "PodMetrics",
            "metadata": {"name": pod.name_any(), "labels": pod.labels()}, "timestamp": later, "window": "1s",
            "containers": [{"name": "c", "usage": {"cpu": "200m", "memory": "1Mi"}}]});
        metrics.create(&PostParams::default(), &serde_json::from_value(sample).unwrap()).await.unwrap();
    }
    cluster.patch::<HorizontalPodAutoscaler>("h", json!({"spec": {"maxReplicas": 3}})).await;
    until("there are as many as may be", async || replicas().await == 3).await;
    cluster.autoscaler_says("ScalingActive", "ValidMetricFound").await;
    cluster.autoscaler_says("ScalingLimited", "TooManyReplicas").await;
    let status = cluster.get::<HorizontalPodAutoscaler>("h").await["status"].clone();
    let current = &status["currentMetrics"][0]["resource"]["current"];
    assert_eq!(*current, json!({"averageUtilization": 200, "averageValue": "200m"}));
    until("it is told", async || {
        let told = cluster.told("h").await;
        told.contains(&"SuccessfulRescale: New size: 3; reason: cpu resource utilization (percentage of request) above target".to_owned())
    })
    .await;
}
