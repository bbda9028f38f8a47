//! From the API's events to the kernel's packets. The API is a script here: two lists, then what the test sends.

mod lab;

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::StreamBody;
use http_body_util::combinators::UnsyncBoxBody;
use lab::{Lab, tcp};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use trine_typed::kube::Client;
use trine_typed::kube::client::Body;

type Lines = mpsc::UnboundedReceiver<Bytes>;
const VIP: [u8; 4] = [10, 96, 0, 10];

/// Answers lists with what is given and the first watch of each kind with the lines that come.
struct Script {
    services: (Value, Mutex<Option<Lines>>),
    slices: (Value, Mutex<Option<Lines>>),
}

fn body(lines: Lines) -> UnsyncBoxBody<Bytes, Infallible> {
    let frames = futures::stream::unfold(lines, |mut lines| async {
        let line = lines.recv().await?;
        Some((Ok(http_body_frame(line)), lines))
    });
    UnsyncBoxBody::new(StreamBody::new(frames))
}

fn http_body_frame(line: Bytes) -> http_body::Frame<Bytes> {
    http_body::Frame::data(line)
}

impl Script {
    fn answer(&self, request: &http::Request<Body>) -> http::Response<UnsyncBoxBody<Bytes, Infallible>> {
        let uri = request.uri().to_string();
        let (kind, (items, lines)) = if uri.contains("/endpointslices") {
            ("EndpointSliceList", &self.slices)
        } else {
            ("ServiceList", &self.services)
        };
        let group = if kind == "ServiceList" { "v1" } else { "discovery.k8s.io/v1" };
        if uri.contains("watch=true") {
            let (_keep, none) = mpsc::unbounded_channel();
            let lines = lines.lock().expect("no panic").take().unwrap_or(none);
            return http::Response::new(body(lines));
        }
        let list = json!({
            "apiVersion": group, "kind": kind, "metadata": {"resourceVersion": "1"}, "items": items,
        });
        let (sender, lines) = mpsc::unbounded_channel();
        sender.send(list.to_string().into()).expect("the receiver is there");
        http::Response::new(body(lines))
    }
}

fn service() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "web", "namespace": "default", "resourceVersion": "2"},
        "spec": {"clusterIP": "10.96.0.10", "ports": [{"port": 80, "protocol": "TCP"}]},
    })
}

fn slice(version: &str, addresses: &[&str]) -> Value {
    let endpoint = |a: &&str| json!({"addresses": [a], "nodeName": lab::NODE, "conditions": {"ready": true}});
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": "web-1", "namespace": "default", "resourceVersion": version,
            "labels": {"kubernetes.io/service-name": "web"},
        },
        "addressType": "IPv4",
        "ports": [{"name": "", "port": 8080, "protocol": "TCP"}],
        "endpoints": addresses.iter().map(endpoint).collect::<Vec<_>>(),
    })
}

fn event(kind: &str, object: &Value) -> Bytes {
    format!("{}\n", json!({"type": kind, "object": object})).into()
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..40 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("{what}: not within two seconds");
}

#[test]
fn events_of_the_api_reach_the_kernel_and_the_rules_stay_at_the_end() {
    const NAME: &str = "events_of_the_api_reach_the_kernel_and_the_rules_stay_at_the_end";
    if !trine_kernel::testing::root(NAME) || !trine_kernel::testing::program(NAME, "ip") {
        return;
    }
    let lab = Lab::new(false);
    lab.serve("a", 8080);
    lab.serve("b", 8080);
    let (service_events, service_lines) = mpsc::unbounded_channel();
    let (slice_events, slice_lines) = mpsc::unbounded_channel();
    let script = Arc::new(Script {
        services: (json!([service()]), Mutex::new(Some(service_lines))),
        slices: (json!([slice("2", &["10.244.0.2"])]), Mutex::new(Some(slice_lines))),
    });
    let api = tower::service_fn(move |request: http::Request<Body>| {
        let answer = script.answer(&request);
        async move { Ok::<_, Infallible>(answer) }
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let client = {
        let _inside = runtime.enter();
        Client::new(api, "default")
    };
    let stop = CancellationToken::new();
    let config = lab::config(&lab.host, false);
    let running = {
        let stop = stop.clone();
        runtime.spawn(async move { trine_proxy::run(client, config, stop).await })
    };
    let says = |pod: &str| tcp(lab.pod("c"), (VIP, 80)).is_ok_and(|said| said.starts_with(pod));
    eventually("the lists", || says("a "));
    slice_events.send(event("MODIFIED", &slice("3", &["10.244.0.3"]))).expect("a watch");
    eventually("another endpoint", || says("b "));
    service_events.send(event("DELETED", &service())).expect("a watch");
    eventually("no Service", || tcp(lab.pod("c"), (VIP, 80)).is_err());
    service_events.send(event("ADDED", &service())).expect("a watch");
    eventually("the Service again", || says("b "));
    stop.cancel();
    let ended = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(5), running).await });
    ended.expect("in time").expect("no panic").expect("no error");
    assert!(says("b "), "the rules stay");
}
