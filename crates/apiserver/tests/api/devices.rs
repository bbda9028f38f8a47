//! Claims of devices in all their versions, what drivers offer, and what quotas count of it.

use serde_json::{Value, json};

use crate::server::*;

const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
const OLD_CLAIMS: &str = "/apis/resource.k8s.io/v1beta1/namespaces/default/resourceclaims";
const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";
const OLD_SLICES: &str = "/apis/resource.k8s.io/v1beta1/resourceslices";

fn claim(name: &str, class: &str, count: u32) -> Value {
    json!({"metadata": {"name": name}, "spec": {"devices": {"requests": [
        {"name": "r", "exactly": {"deviceClassName": class, "allocationMode": "ExactCount", "count": count}}]}}})
}

#[tokio::test]
async fn a_claim_of_an_older_version_is_one_of_the_newest() {
    let api = Api::start().await;
    let old = json!({"metadata": {"name": "c"}, "spec": {"devices": {"requests": [{"name": "r", "deviceClassName": "gold"}]}}});
    let made = api.make(OLD_CLAIMS, old).await;
    assert_eq!(made["apiVersion"], "resource.k8s.io/v1beta1");
    let request = &made["spec"]["devices"]["requests"][0];
    assert_eq!(
        (&request["allocationMode"], &request["count"]),
        (&json!("ExactCount"), &json!(1)),
        "filled in"
    );
    let new = api.get(&format!("{CLAIMS}/c")).await;
    assert_eq!(new["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"], "gold");
    let between = api.get(&format!("{}/c", CLAIMS.replace("/v1/", "/v1beta2/"))).await;
    assert_eq!((&between["apiVersion"], &between["spec"]), (&json!("resource.k8s.io/v1beta2"), &new["spec"]));
    let change = json!({"metadata": {"labels": {"seen": "yes"}}});
    let (code, changed) = api.patch(&format!("{OLD_CLAIMS}/c"), change).await;
    assert_eq!((code, &changed["spec"]), (200, &made["spec"]), "{changed}");
    let list = api.get(&format!("{OLD_CLAIMS}?labelSelector=seen=yes")).await;
    assert_eq!((&list["kind"], &list["items"][0]["spec"]), (&json!("ResourceClaimList"), &made["spec"]));
    let groups = api.get("/apis/resource.k8s.io").await;
    let versions: Vec<&str> =
        groups["versions"].as_array().unwrap().iter().map(|v| v["version"].as_str().unwrap()).collect();
    assert_eq!(
        (versions, &groups["preferredVersion"]["version"]),
        (vec!["v1", "v1beta2", "v1beta1"], &json!("v1"))
    );
    for version in ["v1beta1", "v1beta2"] {
        let document = api.get(&format!("/openapi/v3/apis/resource.k8s.io/{version}")).await;
        let name = format!("io.k8s.api.resource.{version}.ResourceClaim");
        assert!(document["components"]["schemas"][&name].is_object(), "{version}");
    }
}

#[tokio::test]
async fn slices_are_chosen_by_node_driver_and_pool_in_all_versions() {
    let api = Api::start().await;
    for (name, node, pool) in [("one", "n", "fast"), ("two", "n", "slow"), ("three", "m", "fast")] {
        let pool = json!({"name": pool, "generation": 1, "resourceSliceCount": 1});
        let devices = json!([{"name": "d", "basic": {"attributes": {"size": {"int": 3}}}}]);
        let spec = json!({"driver": "d.io", "nodeName": node, "pool": pool, "devices": devices});
        api.make(OLD_SLICES, json!({"metadata": {"name": name}, "spec": spec})).await;
    }
    let one = api.get(&format!("{SLICES}/one")).await;
    assert_eq!(one["spec"]["devices"][0]["attributes"]["size"]["int"], 3);
    for (fields, expected) in [
        ("spec.pool.name=fast", "one three"),
        ("spec.pool.name=fast,spec.nodeName=n", "one"),
        ("spec.driver=d.io,spec.pool.name!=fast", "two"),
        ("spec.driver=e.io", ""),
    ] {
        for root in [SLICES, OLD_SLICES] {
            let fields = fields.replace('=', "%3D").replace(',', "%2C").replace('!', "%21");
            let list = api.get(&format!("{root}?fieldSelector={fields}")).await;
            let names: Vec<&str> = list["items"]
                .as_array()
                .unwrap()
                .iter()
                .map(|i| i["metadata"]["name"].as_str().unwrap())
                .collect();
            assert_eq!(names.join(" "), expected, "{root} {fields}");
        }
    }
}

#[tokio::test]
async fn a_quota_limits_devices_by_class_whatever_the_version() {
    let api = Api::start().await;
    let class = json!({"metadata": {"name": "gold"}, "spec": {"extendedResourceName": "x.io/gpu"}});
    api.make("/apis/resource.k8s.io/v1/deviceclasses", class).await;
    let hard = json!({"gold.deviceclass.resource.k8s.io/devices": "4", "requests.x.io/gpu": "3"});
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    api.make(quotas, json!({"metadata": {"name": "q"}, "spec": {"hard": hard}})).await;
    let zero = json!({"gold.deviceclass.resource.k8s.io/devices": "0", "requests.x.io/gpu": "0"});
    api.patch(&format!("{quotas}/q/status"), json!({"status": {"hard": hard, "used": zero}})).await;
    api.make(CLAIMS, claim("one", "gold", 2)).await;
    api.make(CLAIMS, claim("other", "iron", 9)).await;
    let quota = api.get(&format!("{quotas}/q")).await;
    assert_eq!(quota["status"]["used"]["gold.deviceclass.resource.k8s.io/devices"], "2");
    assert_eq!(quota["status"]["used"]["requests.x.io/gpu"], "2");
    let old = json!({"metadata": {"name": "two"}, "spec": {"devices": {"requests": [
        {"name": "r", "deviceClassName": "gold", "allocationMode": "ExactCount", "count": 2}]}}});
    let (code, refused) = api.call("POST", OLD_CLAIMS, old).await;
    let why = "exceeded quota: q, requested: requests.x.io/gpu=2, used: requests.x.io/gpu=2, limited: requests.x.io/gpu=3";
    assert!(code == 403 && refused["message"].as_str().unwrap().ends_with(why), "{refused}");
}
