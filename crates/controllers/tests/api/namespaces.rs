//! The end of a namespace.

use serde_json::{Value, json};
use trine_typed::k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use trine_typed::kube::Api;
use trine_typed::kube::api::{DeleteParams, Patch, PatchParams, PostParams};

use crate::cluster::{Cluster, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_goes_with_its_pods_first_and_says_what_holds_it_up() {
    let cluster = Cluster::start().await;
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), "n");
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), "n");
    let new = PostParams::default();
    let named = |value: Value| serde_json::from_value(value).unwrap();
    namespaces.create(&new, &named(json!({"metadata": {"name": "n"}}))).await.unwrap();
    let map = serde_json::from_value(json!({"metadata": {"name": "m"}})).unwrap();
    maps.create(&new, &map).await.unwrap();
    let pod = json!({"metadata": {"name": "p", "finalizers": ["x.io/wait"]},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    pods.create(&new, &serde_json::from_value(pod).unwrap()).await.unwrap();

    namespaces.delete("n", &DeleteParams::default()).await.unwrap();
    let condition = async |kind: &str| {
        let namespace = json!(namespaces.get("n").await.unwrap());
        let conditions = namespace["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|condition| condition["type"] == kind).unwrap_or_default()
    };
    let remaining = async || condition("NamespaceContentRemaining").await["status"] == "True";
    until("the Pod is told as what remains", remaining).await;
    assert_eq!(
        condition("NamespaceFinalizersRemaining").await["message"],
        "Some content in the namespace has finalizers remaining: x.io/wait in 1 resource instances"
    );
    assert_eq!(condition("NamespaceDeletionContentFailure").await["status"], "False");
    assert!(maps.get_opt("m").await.unwrap().is_some(), "the rest waits for the Pods");

    let released = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    pods.patch("p", &PatchParams::default(), &released).await.unwrap();
    until("the namespace is gone", async || namespaces.get_opt("n").await.unwrap().is_none()).await;
    assert!(maps.get_opt("m").await.unwrap().is_none());
}
