//! What keeps the server from being asked for too much: seats and queues, times, sizes, and a stop that breaks nothing.

use crate::custom::until;
use crate::server::*;
use axum::body::{Body, Bytes};
use axum::response::Response;
use http::Request;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tower::ServiceExt;

const FLOWS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1";

/// A request of `user` that is answered when its body has come to its end, which it does when the sender is dropped.
fn slow(api: &Api, user: &str, path: &str) -> (mpsc::Sender<Bytes>, tokio::task::JoinHandle<Response>) {
    let (sender, receiver) = mpsc::channel(1);
    let body = Body::from_stream(futures::stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|bytes| (Ok::<_, Infallible>(bytes), receiver))
    }));
    let request = Request::post(path).header("content-type", "application/json").body(body).unwrap();
    let service = api.server.service(user, &["crowd"]);
    (sender, tokio::spawn(async move { service.oneshot(request).await.unwrap() }))
}

/// A level of few seats for the crowd, who may make ConfigMaps.
async fn crowd(api: &Api, queue_length: u64) -> (Value, Value) {
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "get"]}]);
    api.make(&format!("{rbac}/clusterroles"), json!({"metadata": {"name": "crowd"}, "rules": rules})).await;
    let subject = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "crowd"});
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "crowd"});
    let binding = json!({"metadata": {"name": "crowd"}, "subjects": [subject], "roleRef": role});
    api.make(&format!("{rbac}/clusterrolebindings"), binding).await;
    let queuing = json!({"queues": 64, "handSize": 4, "queueLengthLimit": queue_length});
    let limited = json!({"nominalConcurrencyShares": 1, "lendablePercent": 0, "borrowingLimitPercent": 0,
        "limitResponse": {"type": "Queue", "queuing": queuing}});
    let level = json!({"metadata": {"name": "tight"}, "spec": {"type": "Limited", "limited": limited}});
    let level = api.make(&format!("{FLOWS}/prioritylevelconfigurations"), level).await;
    let rules = json!([{"subjects": [{"kind": "Group", "group": {"name": "crowd"}}], "resourceRules": [
        {"verbs": ["create"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"]}]}]);
    let schema = json!({"metadata": {"name": "crowd"}, "spec": {"matchingPrecedence": 50, "rules": rules,
        "priorityLevelConfiguration": {"name": "tight"}, "distinguisherMethod": {"type": "ByUser"}}});
    (level, api.make(&format!("{FLOWS}/flowschemas"), schema).await)
}

async fn count(api: &Api, name: &str) -> u64 {
    let (_, page) = api.call("GET", "/metrics", Value::Null).await;
    let line = format!("apiserver_flowcontrol_{name}{{flow_schema=\"crowd\",priority_level=\"tight\"");
    let found = page.as_str().unwrap().lines().find(|l| l.starts_with(&line)).map(str::to_owned);
    found.and_then(|l| l.rsplit(' ').next()?.parse().ok()).unwrap_or_default()
}

#[tokio::test]
async fn a_flood_by_one_user_does_not_starve_another() {
    let api = Api::start().await;
    let (level, schema) = crowd(&api, 5).await;
    // More than the level's seats and the flow's queues take.
    let mut flood: Vec<_> = (0..40).map(|_| slow(&api, "flood", CONFIG_MAPS)).collect();
    until("seats are taken and queues full", async || count(&api, "rejected_requests_total").await > 0).await;
    let seats = count(&api, "current_executing_requests").await;
    assert!((1..5).contains(&seats), "{seats} of one share");
    until("the flood waits", async || count(&api, "current_inqueue_requests").await == 20).await;
    let refused = flood.iter().position(|(_, answer)| answer.is_finished()).unwrap();
    let (_, refused) = flood.remove(refused);
    let refused = refused.await.unwrap();
    assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (429, &"1".parse().unwrap()));
    let uid = |object: &Value| text(&object["metadata"]["uid"]);
    assert_eq!(refused.headers()["x-kubernetes-pf-flowschema-uid"], uid(&schema));
    assert_eq!(refused.headers()["x-kubernetes-pf-prioritylevel-uid"], uid(&level));
    assert_eq!(read(refused).await.1, "Too many requests, please try again later.\n");

    // Twenty of the flood wait, and came before it.
    let meek = api.call_as(("meek", &["crowd"]), "POST", CONFIG_MAPS, config_map("meek", "x"));
    let mut meek = std::pin::pin!(meek);
    assert!(tokio::time::timeout(Duration::from_millis(200), &mut meek).await.is_err(), "there is no seat");
    // Seats become free: those end that came first. Each of the flood's four queues may have its turn before.
    let mut freed = 0;
    let (code, said) = loop {
        let first = flood.iter().position(|(_, answer)| !answer.is_finished()).unwrap();
        drop(flood.remove(first).0);
        freed += 1;
        match tokio::time::timeout(Duration::from_secs(1), &mut meek).await {
            Ok(answer) => break answer,
            Err(_) => assert!(freed < 5, "the flood goes first"),
        }
    };
    assert_eq!(code, 201, "{said}");
    assert!(count(&api, "current_inqueue_requests").await >= 16);
    // Those who do not want to wait any more leave no trace.
    for (_, answer) in &flood {
        answer.abort();
    }
    drop(flood);
    until("nobody waits", async || {
        count(&api, "current_inqueue_requests").await == 0
            && count(&api, "current_executing_requests").await == 0
    })
    .await;
}

#[tokio::test]
async fn every_answer_says_how_its_request_was_sorted() {
    let api = Api::start().await;
    for (user, groups, schema, level) in [
        ("admin", &["system:masters"][..], "exempt", "exempt"),
        ("jane", &[], "global-default", "global-default"),
        ("system:serviceaccount:default:a", &["system:serviceaccounts"], "service-accounts", "workload-low"),
    ] {
        let service = api.server.service(user, groups);
        let answer = service.oneshot(Request::get(CONFIG_MAPS).body(Body::empty()).unwrap()).await.unwrap();
        for (header, kind, name) in [
            ("x-kubernetes-pf-flowschema-uid", "flowschemas", schema),
            ("x-kubernetes-pf-prioritylevel-uid", "prioritylevelconfigurations", level),
        ] {
            let object = api.get(&format!("{FLOWS}/{kind}/{name}")).await;
            assert_eq!(answer.headers()[header], text(&object["metadata"]["uid"]), "{user}");
        }
    }
}

#[tokio::test]
async fn a_request_that_takes_too_long_is_given_up() {
    let api = Api::start().await;
    let (body, answer) = slow(&api, "admin", &format!("{CONFIG_MAPS}?timeout=200ms"));
    let (code, said) = read(answer.await.unwrap()).await;
    // The crowd may nothing here.
    assert_eq!(code, 403, "{said}");
    drop(body);
    crowd(&api, 5).await;
    let (body, answer) = slow(&api, "admin", &format!("{CONFIG_MAPS}?timeout=200ms"));
    let (code, said) = read(answer.await.unwrap()).await;
    let wanted = "Timeout: request did not complete within the allotted timeout";
    assert_eq!((code, &said["reason"], &said["message"]), (504, &json!("Timeout"), &json!(wanted)));
    drop(body);
    let (code, said) = api.call("GET", &format!("{CONFIG_MAPS}?timeout=soon"), Value::Null).await;
    assert_eq!(code, 400);
    assert!(text(&said["message"]).starts_with("invalid timeout specified in the request URL"), "{said}");
    // A watch lasts longer than that.
    let mut watch = api.watch(&format!("{CONFIG_MAPS}?watch=true&timeout=100ms")).await;
    assert!(watch.quiet().await);
    api.make(CONFIG_MAPS, config_map("late", "x")).await;
    assert_eq!(watch.seen().await.0, "ADDED");
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused() {
    let api = Api::start().await;
    let large = json!({"data": {"a": "x".repeat(3 << 20)}});
    let (code, said) = api.call("POST", CONFIG_MAPS, large).await;
    assert_eq!((code, &said["reason"]), (413, &json!("RequestEntityTooLarge")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_lets_what_was_begun_come_to_its_end() {
    let api = Api::start().await;
    let addr = api.server.addr();
    let mut stream = crate::network::as_admin(&api).await;
    let mut watching = crate::network::as_admin(&api).await;
    let head = format!("GET {CONFIG_MAPS}?watch=true HTTP/1.1\r\nhost: x\r\n\r\n");
    watching.write_all(head.as_bytes()).await.unwrap();
    let mut first = [0; 12];
    watching.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    let object = config_map("last", "x").to_string();
    let (before, after) = object.split_at(10);
    let head = format!(
        "POST {CONFIG_MAPS} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{before}",
        object.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let stopping = tokio::spawn(api.server.stop());
    let mut rest = Vec::new();
    tokio::time::timeout(DEADLINE, watching.read_to_end(&mut rest)).await.expect("watches end").ok();
    assert!(!stopping.is_finished(), "a request is not answered yet");
    assert!(tokio::net::TcpStream::connect(addr).await.is_err(), "nobody new is let in");
    stream.write_all(after.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    tokio::time::timeout(DEADLINE, stream.read_to_end(&mut answer)).await.unwrap().ok();
    assert!(answer.starts_with(b"HTTP/1.1 201 "), "{}", String::from_utf8_lossy(&answer));
    tokio::time::timeout(DEADLINE, stopping).await.unwrap().unwrap();
}
