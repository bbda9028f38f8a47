//! What a node pays for policies in a cluster of 10,000 Pods. Prints; asserts nothing.
//! `cargo test -p trine-policy --release --test scale -- --ignored --nocapture`

mod lab;

use std::net::IpAddr;
use std::time::{Duration, Instant};

use lab::{INSTANCE, Lab};
use serde_json::json;
use trine_kernel::nft::held::{self, Held};
use trine_policy::model::PodFacts;
use trine_policy::policy::Policy;

const PODS: u32 = 10_000;
const ON_NODE: u32 = 100;
const POLICIES: u32 = 50;
const TURNS: u32 = 51;

fn address(number: u32) -> IpAddr {
    IpAddr::V4((u32::from_be_bytes([10, 128, 0, 0]) + number).into())
}

fn pod(number: u32, on_node: bool) -> PodFacts {
    PodFacts {
        uid: format!("uid-{number}"),
        node: Some(if on_node { lab::NODE } else { "n2" }.to_owned()),
        labels: [("app".to_owned(), format!("app-{}", number % POLICIES))].into(),
        addresses: vec![address(number)],
        ..PodFacts::default()
    }
}

fn key(number: u32) -> (String, String) {
    ("x".to_owned(), format!("pod-{number}"))
}

/// Each of the apps may be asked by the next.
fn policy(number: u32) -> Policy {
    let app = |number: u32| json!({"matchLabels": {"app": format!("app-{}", number % POLICIES)}});
    let rule = json!({"from": [{"podSelector": app(number + 1)}], "ports": [{"port": 80}]});
    let object =
        json!({"metadata": {"namespace": "x"}, "spec": {"podSelector": app(number), "ingress": [rule]}});
    Policy::from_api(&serde_json::from_value(object).expect("a policy")).expect("a spec")
}

fn measure(what: &str, mut once: impl FnMut(u32)) {
    let mut times: Vec<Duration> = (0..TURNS)
        .map(|turn| {
            let start = Instant::now();
            once(turn);
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    println!("{what}: p50 {:?}, max {:?}", times[times.len() / 2], times[times.len() - 1]);
}

#[test]
#[ignore = "a measurement"]
fn ten_thousand_pods_and_fifty_policies() {
    if !trine_kernel::testing::root("ten_thousand_pods_and_fifty_policies") {
        return;
    }
    let mut lab = Lab::new();
    (0..PODS).for_each(|number| lab.engine.model.set_pod(&key(number), Some(pod(number, number < ON_NODE))));
    (0..POLICIES).for_each(|n| lab.engine.model.set_policy(&("x".into(), format!("p{n}")), Some(policy(n))));
    let start = Instant::now();
    lab.turn();
    println!("load of {POLICIES} policies, {ON_NODE} of {PODS} Pods on the node: {:?}", start.elapsed());
    measure("a Pod elsewhere comes", |turn| {
        lab.engine.model.set_pod(&key(PODS + turn), Some(pod(PODS + turn, false)));
        lab.turn();
    });
    measure("nothing that matters changes", |_| lab.turn());
    let link = |turn: u32| Held {
        link: format!("v{turn}"),
        pod_uid: format!("uid-{}", 2 * PODS + turn),
        addresses: vec![address(2 * PODS + turn)],
    };
    lab.host
        .run(|| measure("a link is held", |turn| assert!(held::hold(INSTANCE, &link(turn)).expect("held"))))
        .expect("enters");
    lab.turn();
    measure("a Pod comes on the node, is held and let go", |turn| {
        let pod = PodFacts { addresses: Vec::new(), ..pod(2 * PODS + turn, true) };
        lab.engine.model.set_pod(&key(2 * PODS + turn), Some(pod));
        lab.turn();
    });
}
