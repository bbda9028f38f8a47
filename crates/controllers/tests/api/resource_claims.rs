//! Claims of devices.

use serde_json::{Value, json};
use trine_typed::k8s_openapi::api::core::v1::Pod;
use trine_typed::k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use trine_typed::kube::api::{DeleteParams, Patch, PatchParams};

use crate::cluster::{Cluster, until};

fn template(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"spec": {"devices": {"requests": [
        {"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}}})
}

fn pod(name: &str, claim: &Value) -> Value {
    let mut claim = claim.clone();
    claim["name"] = json!("gpu");
    json!({"metadata": {"name": name}, "spec": {"resourceClaims": [claim], "containers": [
        {"name": "c", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}]}})
}

impl Cluster {
    /// The name of the claim that was made for a Pod.
    async fn made_for(&self, pod: &str) -> String {
        let name = async || {
            let statuses = self.get::<Pod>(pod).await["status"]["resourceClaimStatuses"].clone();
            statuses[0]["resourceClaimName"].as_str().map(str::to_owned)
        };
        until(&format!("{pod} has its claim"), async || name().await.is_some()).await;
        name().await.unwrap()
    }

    async fn set_claim_status(&self, name: &str, status: Value) {
        let patch =
            Patch::Merge(json!({"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}}));
        let claims = self.api::<ResourceClaim>();
        claims.patch(name, &PatchParams::default(), &patch).await.unwrap();
        let patch = Patch::Merge(json!({"status": status}));
        claims.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }
}

/// Devices, and the Pod that has them.
fn used_by(pod: &Value) -> Value {
    json!({"allocation": {"devices": {"results": [
            {"request": "r", "driver": "gpu.example.com", "pool": "n", "device": "gpu-0"}]}},
        "reservedFor": [{"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}]})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_is_made_of_a_template_as_soon_as_that_is_there_and_goes_with_its_pod() {
    let cluster = Cluster::start().await;
    cluster.create::<Pod>(pod("p", &json!({"resourceClaimTemplateName": "one-gpu"}))).await;
    until("it is told what is missing", async || {
        let told = cluster.told("p").await;
        told.iter().any(|line| line.starts_with("FailedResourceClaimCreation: PodResourceClaim gpu: "))
    })
    .await;
    cluster.create::<ResourceClaimTemplate>(template("one-gpu")).await;
    let name = cluster.made_for("p").await;
    assert!(name.starts_with("p-gpu-"), "{name}");
    let claim = cluster.get::<ResourceClaim>(&name).await;
    assert_eq!(claim["metadata"]["annotations"]["resource.kubernetes.io/pod-claim-name"], "gpu");
    assert_eq!(claim["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"], "gpu");

    // A claim that somebody removes is made again under another name.
    cluster.api::<ResourceClaim>().delete(&name, &DeleteParams::default()).await.unwrap();
    until("there is another", async || cluster.made_for("p").await != name).await;
    let name = cluster.made_for("p").await;

    // At the Pod's end its devices are given back, and the claim goes.
    let pod = cluster.get::<Pod>("p").await;
    cluster.set_claim_status(&name, used_by(&pod)).await;
    let ended = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
    cluster.api::<Pod>().patch_status("p", &PatchParams::default(), &ended).await.unwrap();
    until("it is gone", async || cluster.get::<ResourceClaim>(&name).await.is_null()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_was_made_by_hand_gives_its_devices_back_when_its_last_user_is_gone() {
    let cluster = Cluster::start().await;
    let spec = template("x")["spec"]["spec"].clone();
    cluster.create::<ResourceClaim>(json!({"metadata": {"name": "shared"}, "spec": spec})).await;
    cluster.create::<Pod>(pod("p", &json!({"resourceClaimName": "shared"}))).await;
    let pod = cluster.get::<Pod>("p").await;
    cluster.set_claim_status("shared", used_by(&pod)).await;
    cluster.api::<ResourceClaim>().delete("shared", &DeleteParams::default()).await.unwrap();
    let kept = cluster.get::<ResourceClaim>("shared").await;
    assert!(kept["status"]["allocation"].is_object(), "who uses it keeps it: {kept}");
    cluster.api::<Pod>().delete("p", &DeleteParams::default().grace_period(0)).await.unwrap();
    until("it is gone", async || cluster.get::<ResourceClaim>("shared").await.is_null()).await;
}
