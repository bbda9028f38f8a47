//! Who may do what.

use crate::server::*;
use serde_json::{Value, json};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const ALICE: (&str, &[&str]) = ("alice", &["team"]);

fn role(name: &str, rule: Value) -> Value {
    json!({"metadata": {"name": name}, "rules": [rule]})
}

fn binding(name: &str, kind: &str, role: &str, subject: Value) -> Value {
    json!({"metadata": {"name": name}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        "subjects": [subject]})
}

fn inside(plural: &str) -> String {
    format!("{RBAC}/namespaces/default/{plural}")
}

#[tokio::test]
async fn nobody_may_more_than_a_role_says() {
    let api = Api::start().await;
    let (code, status) = api.call_as(ALICE, "GET", PODS, Value::Null).await;
    assert_eq!(code, 403);
    assert_eq!(
        status["message"],
        "pods is forbidden: User \"alice\" cannot list resource \"pods\" in API group \"\" in the namespace \"default\""
    );
    assert_eq!((&status["reason"], &status["details"]), (&"Forbidden".into(), &json!({"kind": "pods"})));
    let reads = json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]});
    api.make(&inside("roles"), role("reader", reads)).await;
    let group = json!({"kind": "Group", "name": "team"});
    api.make(&inside("rolebindings"), binding("readers", "Role", "reader", group)).await;
    assert_eq!(api.call_as(ALICE, "GET", PODS, Value::Null).await.0, 200, "at once");
    assert_eq!(api.call_as(ALICE, "GET", "/api/v1/pods", Value::Null).await.0, 403, "in its namespace only");
    assert_eq!(api.call_as(ALICE, "POST", PODS, pod("p")).await.0, 403);
    let (code, status) = api.call_as(ALICE, "DELETE", &format!("{PODS}/p"), Value::Null).await;
    let wanted = "pods \"p\" is forbidden: User \"alice\" cannot delete resource \"pods\" in API group \"\" in the \
                  namespace \"default\"";
    assert_eq!((code, &status["message"]), (403, &wanted.into()));
    api.call("DELETE", &format!("{}/readers", inside("rolebindings")), Value::Null).await;
    assert_eq!(api.call_as(ALICE, "GET", PODS, Value::Null).await.0, 403, "taken away at once");
    let (code, status) = api.call_as(ALICE, "GET", "/metrics", Value::Null).await;
    assert_eq!(
        (code, &status["message"]),
        (403, &"forbidden: User \"alice\" cannot get path \"/metrics\"".into())
    );
    assert_eq!(api.call_as(ALICE, "GET", "/apis", Value::Null).await.0, 200, "who is known may discover");
    assert_eq!(
        api.call_as(ALICE, "GET", "/apis/none/v1/things", Value::Null).await.0,
        403,
        "before it is looked for"
    );
}

#[tokio::test]
async fn nobody_gives_away_more_than_he_has() {
    let api = Api::start().await;
    let writes = json!({"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"], "verbs": ["*"]});
    let mut maker = role("maker", writes);
    let reads = json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]});
    maker["rules"].as_array_mut().unwrap().push(reads.clone());
    maker["rules"].as_array_mut().unwrap()[0]["verbs"] = json!(["get", "create", "update", "patch"]);
    api.make(&inside("roles"), maker).await;
    let alice = json!({"kind": "User", "name": "alice"});
    api.make(&inside("rolebindings"), binding("makers", "Role", "maker", alice.clone())).await;
    let (code, made) = api.call_as(ALICE, "POST", &inside("roles"), role("same", reads)).await;
    assert_eq!(code, 201, "{made}");
    let more = json!({"apiGroups": [""], "resources": ["secrets", "pods"], "verbs": ["get", "list"]});
    let (code, status) = api.call_as(ALICE, "POST", &inside("roles"), role("more", more.clone())).await;
    assert_eq!(code, 403, "{status}");
    let message = text(&status["message"]);
    assert!(
        message.starts_with(
            "roles.rbac.authorization.k8s.io \"more\" is forbidden: user \"alice\" (groups=[\"team\" \
             \"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n"
        ),
        "{message}"
    );
    let secrets = r#"{APIGroups:[""], Resources:["secrets"], Verbs:["get" "list"]}"#;
    assert!(
        message.contains(secrets) && message.contains(r#"Resources:["pods"], Verbs:["list"]"#),
        "{message}"
    );
    let mine = binding("mine", "ClusterRole", "cluster-admin", alice.clone());
    assert_eq!(api.call_as(ALICE, "POST", &inside("rolebindings"), mine.clone()).await.0, 403);
    let patched = api.call_as(ALICE, "PUT", &format!("{}/same", inside("roles")), role("same", more)).await;
    assert_eq!(patched.0, 403, "not by an update either");
    let bind =
        json!({"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "verbs": ["bind"]});
    api.make(&format!("{RBAC}/clusterroles"), role("binder", bind)).await;
    api.make(&format!("{RBAC}/clusterrolebindings"), binding("binder", "ClusterRole", "binder", alice)).await;
    assert_eq!(api.call_as(ALICE, "POST", &inside("rolebindings"), mine).await.0, 201, "who may bind");
    let (code, status) =
        api.patch(&format!("{}/mine", inside("rolebindings")), json!({"roleRef": {"name": "view"}})).await;
    assert_eq!(code, 422);
    assert!(text(&status["message"]).contains("roleRef: Invalid value"), "{status}");
    assert!(text(&status["message"]).ends_with("cannot change roleRef"), "{status}");
}

#[tokio::test]
async fn the_roles_that_everybody_knows_are_there_and_come_back() {
    let api = Api::start().await;
    let admin = format!("{RBAC}/clusterroles/cluster-admin");
    assert_eq!(api.get(&admin).await["rules"][0]["verbs"], json!(["*"]));
    let roles = api.get(&format!("{RBAC}/clusterroles")).await;
    assert!(roles["items"].as_array().unwrap().len() > 70);
    for role in ["view", "edit", "admin", "system:node", "system:controller:job-controller"] {
        api.get(&format!("{RBAC}/clusterroles/{role}")).await;
    }
    api.get(&format!("{RBAC}/namespaces/kube-system/roles/extension-apiserver-authentication-reader")).await;
    let scheduler = format!("{RBAC}/clusterroles/system%3Akube-scheduler");
    api.call("DELETE", &scheduler, Value::Null).await;
    let mut discovery = api.get(&format!("{RBAC}/clusterroles/system:discovery")).await;
    discovery["rules"] = json!([{"nonResourceURLs": ["/mine"], "verbs": ["get"]}]);
    api.call("PUT", &format!("{RBAC}/clusterroles/system:discovery"), discovery).await;
    let api = api.restart().await;
    api.get(&scheduler).await;
    let discovery = api.get(&format!("{RBAC}/clusterroles/system:discovery")).await["rules"].to_string();
    assert!(discovery.contains("/mine") && discovery.contains("/apis/*"), "{discovery}");
}

#[tokio::test]
async fn a_node_sees_what_its_pods_need() {
    let api = Api::start().await;
    let node: (&str, &[&str]) = ("system:node:n1", &["system:nodes"]);
    let secret = "/api/v1/namespaces/default/secrets/s";
    api.make("/api/v1/namespaces/default/secrets", json!({"metadata": {"name": "s"}})).await;
    assert_eq!(api.call_as(node, "GET", secret, Value::Null).await.0, 403);
    let mut needs = pod("p");
    needs["spec"]["volumes"] = json!([{"name": "v", "secret": {"secretName": "s"}}]);
    needs["spec"]["nodeName"] = "n1".into();
    api.make(PODS, needs).await;
    assert_eq!(api.call_as(node, "GET", secret, Value::Null).await.0, 200);
    assert_eq!(api.call_as(("system:node:n2", &["system:nodes"]), "GET", secret, Value::Null).await.0, 403);
    let (code, status) = api.call_as(node, "GET", "/api/v1/pods", Value::Null).await;
    assert_eq!(code, 403);
    assert!(text(&status["message"]).ends_with("can only list/watch pods with spec.nodeName field selector"));
    assert_eq!(
        api.call_as(node, "GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1", Value::Null).await.0,
        200
    );
}

#[tokio::test]
async fn a_stream_into_a_container_needs_the_right_to_create_it() {
    let api = Api::start().await;
    api.make(PODS, pod("p")).await;
    let reads = json!({"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get"]});
    api.make(&inside("roles"), role("looks", reads)).await;
    let alice = json!({"kind": "User", "name": "alice"});
    api.make(&inside("rolebindings"), binding("looks", "Role", "looks", alice)).await;
    let path = format!("{PODS}/p/exec?command=id");
    let (code, status) = api.call_as(ALICE, "GET", &path, Value::Null).await;
    assert_eq!(code, 403);
    assert!(text(&status["message"]).contains("cannot create resource \"pods/exec\""), "{status}");
    let (code, _) = api
        .patch(
            &format!("{}/looks", inside("roles")),
            json!({"rules": [
        {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get", "create"]}]}),
        )
        .await;
    assert_eq!(code, 200);
    let (code, status) = api.call_as(ALICE, "GET", &path, Value::Null).await;
    assert_eq!((code, &status["reason"]), (400, &"BadRequest".into()), "it has no node yet");
}
