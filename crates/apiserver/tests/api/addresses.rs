//! Objects that show which Service has which address.

use crate::custom::until;
use crate::server::*;
use serde_json::{Value, json};

const ADDRESSES: &str = "/apis/networking.k8s.io/v1/ipaddresses";
const SERVICES: &str = "/api/v1/namespaces/default/services";

#[tokio::test]
async fn every_address_of_a_service_has_its_object_as_long_as_the_service_has_it() {
    let api = Api::start().await;
    let first = api.get(&format!("{ADDRESSES}/10.96.0.1")).await;
    let parent =
        |name: &str| json!({"group": "", "resource": "services", "namespace": "default", "name": name});
    assert_eq!(first["spec"]["parentRef"], parent("kubernetes"));
    assert_eq!(first["metadata"]["labels"]["ipaddress.kubernetes.io/managed-by"], "ipallocator.k8s.io");
    let service = json!({"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}});
    let made = api.make(SERVICES, service).await;
    let path = format!("{ADDRESSES}/{}", text(&made["spec"]["clusterIP"]));
    until("made", async || api.call("GET", &path, Value::Null).await.0 == 200).await;
    assert_eq!(api.get(&path).await["spec"]["parentRef"], parent("web"));
    assert_eq!(api.call("DELETE", &path, Value::Null).await.0, 200);
    until("made again", async || api.call("GET", &path, Value::Null).await.0 == 200).await;
    assert_eq!(api.call("DELETE", &format!("{SERVICES}/web"), Value::Null).await.0, 200);
    until("gone", async || api.call("GET", &path, Value::Null).await.0 == 404).await;
    let own = json!({"metadata": {"name": "192.0.2.7"}, "spec": {"parentRef": {"resource": "things", "name": "x"}}});
    api.make(ADDRESSES, own).await;
    let service = json!({"metadata": {"name": "other"}, "spec": {"ports": [{"port": 80}]}});
    let other = api.make(SERVICES, service).await;
    let path = format!("{ADDRESSES}/{}", text(&other["spec"]["clusterIP"]));
    until("made", async || api.call("GET", &path, Value::Null).await.0 == 200).await;
    assert_eq!(api.get(&format!("{ADDRESSES}/192.0.2.7")).await["spec"]["parentRef"]["name"], "x");
}
