//! Bundles of authorities, and certificates of Pods: who may write them.

use crate::server::*;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

const GROUP: &str = "/apis/certificates.k8s.io/v1";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// Lets a user do something, everywhere.
async fn allow(api: &Api, user: &str, rules: Value) {
    api.make(&format!("{RBAC}/clusterroles"), json!({"metadata": {"name": user}, "rules": rules})).await;
    let subject = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user});
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user});
    let binding = json!({"metadata": {"name": user}, "subjects": [subject], "roleRef": role});
    api.make(&format!("{RBAC}/clusterrolebindings"), binding).await;
}

#[tokio::test]
async fn who_writes_a_signers_bundle_may_attest_for_it() {
    let api = Api::start().await;
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let anchor = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().pem();
    let bundle = |name: &str, signer: &str| json!({"metadata": {"name": name}, "spec": {"signerName": signer, "trustBundle": anchor}});
    let write = json!({"apiGroups": ["certificates.k8s.io"], "resources": ["clustertrustbundles"], "verbs": ["create", "list"]});
    allow(&api, "ann", json!([write])).await;
    let path = format!("{GROUP}/clustertrustbundles");
    let post = async |object: Value| api.call_as(("ann", &[]), "POST", &path, object).await;
    assert_eq!(post(bundle("plain", "")).await.0, 201);
    let (code, said) = post(bundle("example.com:x:a", "example.com/x")).await;
    assert_eq!(code, 403);
    assert!(
        text(&said["message"]).contains("user not permitted to attest for signerName \"example.com/x\""),
        "{said}"
    );
    let attest = json!({"apiGroups": ["certificates.k8s.io"], "resources": ["signers"], "resourceNames": ["example.com/*"],
        "verbs": ["attest"]});
    allow(&api, "bob", json!([write, attest])).await;
    let (code, _) =
        api.call_as(("bob", &[]), "POST", &path, bundle("example.com:x:a", "example.com/x")).await;
    assert_eq!(code, 201);
    let found = api.get(&format!("{path}?fieldSelector=spec.signerName%3Dexample.com%2Fx")).await;
    assert_eq!(found["items"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn a_node_asks_for_its_pods_and_a_signer_answers() {
    let api = Api::start().await;
    let node = api.make("/api/v1/nodes", json!({"metadata": {"name": "n1"}})).await;
    let mut object = pod("web");
    object["spec"]["nodeName"] = "n1".into();
    let running = api.make(PODS, object).await;
    let account = api.get("/api/v1/namespaces/default/serviceaccounts/default").await;
    let uid = |object: &Value| object["metadata"]["uid"].clone();
    let key = rcgen::KeyPair::generate().unwrap();
    let stub = rcgen::CertificateParams::default().serialize_request(&key).unwrap();
    let request = |pod_uid: Value| {
        json!({"metadata": {"name": "r"}, "spec": {"signerName": "example.com/x", "podName": "web", "podUID": pod_uid,
            "serviceAccountName": "default", "serviceAccountUID": uid(&account), "nodeName": "n1", "nodeUID": uid(&node),
            "stubPKCS10Request": STANDARD.encode(stub.der())}})
    };
    let path = format!("{GROUP}/namespaces/default/podcertificaterequests");
    let of = |name: &'static str| (name, &["system:nodes"] as &[&str]);
    let (code, said) = api.call_as(of("system:node:n2"), "POST", &path, request(uid(&running))).await;
    assert_eq!(code, 403);
    assert!(text(&said["message"]).contains("which is not the requesting node \"n2\""), "{said}");
    let (code, said) = api.call_as(of("system:node:n1"), "POST", &path, request("other".into())).await;
    assert_eq!(code, 403, "{said}");
    let (code, made) = api.call_as(of("system:node:n1"), "POST", &path, request(uid(&running))).await;
    assert_eq!((code, &made["spec"]["maxExpirationSeconds"]), (201, &json!(86_400)), "{made}");
    let denied = json!({"status": {"conditions": [{"type": "Denied", "status": "True", "reason": "No", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    let part = json!({"apiGroups": ["certificates.k8s.io"], "resources": ["podcertificaterequests/status"], "verbs": ["patch"]});
    allow(&api, "ann", json!([part])).await;
    let answer = async |user: &str, body: Value| {
        api.typed_as((user, &[]), "PATCH", &format!("{path}/r/status"), "application/merge-patch+json", body)
            .await
    };
    let (code, said) = answer("ann", denied.clone()).await;
    assert_eq!(code, 403);
    assert!(
        text(&said["message"]).contains("is not permitted to \"sign\" for signer \"example.com/x\""),
        "{said}"
    );
    let sign = json!({"apiGroups": ["certificates.k8s.io"], "resources": ["signers"], "verbs": ["sign"]});
    allow(&api, "bob", json!([part, sign])).await;
    assert_eq!(answer("bob", denied).await.0, 200);
    let (code, _) = answer("bob", json!({"status": {"conditions": null}})).await;
    assert_eq!(code, 422, "what was answered stays");
}
