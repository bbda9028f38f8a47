//! Who did what.

use crate::server::*;
use serde_json::{Value, json};
use trine_apiserver::AuditConfig;

const POLICY: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, nonResourceURLs: ["/version"]}
- {level: RequestResponse, resources: [{group: "", resources: [configmaps]}]}
- {level: Metadata, resources: [{group: "", resources: [secrets]}]}
"#;

#[tokio::test]
async fn requests_are_noted_as_the_policy_says() {
    let dir = tempfile::tempdir().unwrap();
    let (log, policy) = (dir.path().join("audit/log"), dir.path().join("policy.yaml"));
    std::fs::write(&policy, POLICY).unwrap();
    let audit = AuditConfig { log: Some(log.clone()), policy: Some(policy) };
    let server = start_with(dir.path(), audit).await;
    let api = Api { server, dir };
    api.make(CONFIG_MAPS, config_map("c", "v")).await;
    api.make(
        "/api/v1/namespaces/default/secrets",
        json!({"metadata": {"name": "s"}, "stringData": {"k": "hidden"}}),
    )
    .await;
    api.get("/version").await;
    api.make(PODS, pod("p")).await;
    let (code, _) = api.call_as(("alice", &["team"]), "GET", CONFIG_MAPS, Value::Null).await;
    assert_eq!(code, 403);
    let headers = [("audit-id", "mine"), ("user-agent", "test/1"), ("impersonate-user", "bob")];
    let response = api.send("GET", CONFIG_MAPS, &headers, "").await;
    assert_eq!(response.headers()["audit-id"], "mine");
    api.server.stop().await;
    let text = std::fs::read_to_string(&log).unwrap();
    let lines: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let short: Vec<String> = lines
        .iter()
        .map(|e| {
            let part = |v: &Value| v.as_str().unwrap_or_default().to_owned();
            format!(
                "{} {} {} {}",
                part(&e["level"]),
                part(&e["user"]["username"]),
                part(&e["verb"]),
                part(&e["objectRef"]["resource"])
            )
        })
        .collect();
    let wanted = [
        "RequestResponse admin create configmaps",
        "Metadata admin create secrets",
        "RequestResponse alice list configmaps",
        "RequestResponse admin list configmaps",
    ];
    assert_eq!(short, wanted);
    assert!(
        !text.contains("hidden") && !text.contains("aGlkZGVu"),
        "no secret is noted at the level Metadata"
    );
    let made = &lines[0];
    assert_eq!((&made["kind"], &made["apiVersion"]), (&"Event".into(), &"audit.k8s.io/v1".into()));
    assert_eq!((&made["stage"], &made["responseStatus"]["code"]), (&"ResponseComplete".into(), &201.into()));
    assert_eq!(made["requestObject"]["data"]["key"], "v");
    assert!(!crate::server::text(&made["responseObject"]["metadata"]["uid"]).is_empty());
    assert_eq!(made["annotations"]["authorization.k8s.io/decision"], "allow");
    let refused = &lines[2];
    assert_eq!(refused["annotations"]["authorization.k8s.io/decision"], "forbid");
    assert_eq!(refused["responseStatus"]["reason"], "Forbidden");
    let other = &lines[3];
    assert_eq!(other["impersonatedUser"]["username"], "bob");
    assert_eq!((&other["auditID"], &other["userAgent"]), (&"mine".into(), &"test/1".into()));
}
