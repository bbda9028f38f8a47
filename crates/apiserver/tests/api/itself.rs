//! What the server says of itself: health, counts, and everything it keeps.

use crate::server::*;
use http_body_util::BodyExt;
use serde_json::Value;

async fn fetch(api: &Api, path: &str) -> (u16, String) {
    let (code, text) = api.call("GET", path, Value::Null).await;
    (code, text.as_str().map_or_else(|| text.to_string(), str::to_owned))
}

#[tokio::test]
async fn health_is_told_check_by_check() {
    let api = Api::start().await;
    for endpoint in ["livez", "readyz", "healthz"] {
        assert_eq!(fetch(&api, &format!("/{endpoint}")).await, (200, "ok".to_owned()));
        assert_eq!(fetch(&api, &format!("/{endpoint}/ping")).await, (200, "ok".to_owned()));
        assert_eq!(fetch(&api, &format!("/{endpoint}/nothing")).await.0, 404);
    }
    let wanted = "[+]ping ok\n[+]cache ok\n[+]store excluded: ok\n[+]store-lag ok\n[+]shutdown ok\nreadyz check passed\n";
    assert_eq!(fetch(&api, "/readyz?verbose&exclude=store").await, (200, wanted.to_owned()));
}

#[tokio::test]
async fn metrics_count_requests_objects_and_writes() {
    let api = Api::start().await;
    for name in ["a", "b"] {
        api.make(CONFIG_MAPS, config_map(name, "1")).await;
    }
    api.call("GET", &format!("{CONFIG_MAPS}/missing"), Value::Null).await;
    let _watch = api.watch(&format!("{CONFIG_MAPS}?watch=1")).await;
    let (code, text) = fetch(&api, "/metrics").await;
    assert_eq!(code, 200);
    // One ConfigMap is there from the beginning.
    let head = "component=\"apiserver\",dry_run=\"\",group=\"\",resource=\"configmaps\"";
    let lines = [
        format!(
            "apiserver_request_total{{code=\"201\",{head},scope=\"namespace\",subresource=\"\",verb=\"POST\",version=\"v1\"}} 2"
        ),
        format!(
            "apiserver_request_total{{code=\"404\",{head},scope=\"resource\",subresource=\"\",verb=\"GET\",version=\"v1\"}} 1"
        ),
        format!(
            "apiserver_request_duration_seconds_count{{{head},scope=\"namespace\",subresource=\"\",verb=\"WATCH\",version=\"v1\"}} 1"
        ),
        "apiserver_storage_objects{resource=\"configmaps\"} 3".to_owned(),
        "apiserver_resource_objects{group=\"\",resource=\"configmaps\"} 3".to_owned(),
        "apiserver_registered_watchers{group=\"\",resource=\"configmaps\"} 1".to_owned(),
        "etcd_request_duration_seconds_count{operation=\"create\",type=\"configmaps\"} 3".to_owned(),
        "apiserver_current_inflight_requests{request_kind=\"mutating\"} 0".to_owned(),
        "trine_store_lag_revisions 0".to_owned(),
    ];
    for line in lines {
        assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
    }
    for name in [
        "process_resident_memory_bytes",
        "process_cpu_seconds_total",
        "process_open_fds",
        "process_start_time_seconds",
    ] {
        let value = text.lines().find_map(|l| l.strip_prefix(&format!("{name} ")));
        assert!(value.is_some_and(|v| v.parse::<f64>().unwrap() > 0.0), "{name}");
    }
    // Each family is announced once.
    let mut families: Vec<&str> = text.lines().filter(|l| l.starts_with("# TYPE")).collect();
    families.sort_unstable();
    let count = families.len();
    families.dedup();
    assert_eq!(families.len(), count);
}

#[tokio::test]
async fn a_snapshot_of_the_store_is_given_to_masters_alone() {
    let api = Api::start().await;
    let made = api.make(CONFIG_MAPS, config_map("a", "1")).await;
    let response = api.send("GET", "/trine/snapshot", &[], "").await;
    assert_eq!(response.status(), 200);
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let snapshot = trine_store::backup::decode(&bytes[..]).unwrap();
    let entry = snapshot.entries.iter().find(|e| &*e.key == "/core/configmaps/default/a").unwrap();
    assert_eq!(entry.revision, revision(&made));
    assert!(snapshot.revision >= entry.revision);
    let request = http::Request::get("/trine/snapshot").body(axum::body::Body::empty()).unwrap();
    let other = tower::ServiceExt::oneshot(api.server.service("someone", &[]), request).await.unwrap();
    assert_eq!(other.status(), 403);
}
