//! How long 30,000 Services take to load, and one change of them. Prints; asserts the goals in release builds only.
//! `cargo test -p trine-proxy --release --test scale -- --ignored --nocapture`

mod lab;

use std::net::IpAddr;
use std::time::{Duration, Instant};

use lab::Lab;
use trine_proxy::model::{EndpointSpec, Proto, ServiceKey, ServicePort, ServiceSpec, SliceSpec};

const SERVICES: u32 = 30_000;
const ENDPOINTS: u32 = 3;
const LOAD_GOAL: Duration = Duration::from_secs(2);
const CHANGE_GOAL: Duration = Duration::from_millis(2);

fn address(range: [u8; 4], number: u32) -> IpAddr {
    IpAddr::V4((u32::from_be_bytes(range) + number).into())
}

fn key(number: u32) -> ServiceKey {
    ServiceKey::new("default", &format!("service-{number}"))
}

fn service(number: u32) -> ServiceSpec {
    ServiceSpec {
        ports: vec![ServicePort { name: "web".into(), proto: Proto::Tcp, port: 80, node_port: None }],
        cluster_ips: vec![address([10, 96, 0, 0], number + 1)],
        ..ServiceSpec::default()
    }
}

fn slice(number: u32, generation: u32) -> SliceSpec {
    let endpoint = |n: u32| EndpointSpec {
        address: address([10, 128, 0, 0], number * ENDPOINTS + n + generation),
        ready: true,
        serving: true,
        terminating: false,
        node: Some("n2".into()),
        pod: None,
    };
    SliceSpec {
        service: key(number),
        ports: vec![("web".into(), Proto::Tcp, 8080)],
        endpoints: (0..ENDPOINTS).map(endpoint).collect(),
    }
}

#[test]
#[ignore = "a measurement"]
fn thirty_thousand_services_load_and_change() {
    if !trine_kernel::testing::root("thirty_thousand_services_load_and_change") {
        return;
    }
    let lab = Lab::new(false);
    let mut engine = trine_proxy::Engine::new(lab::config(&lab.host, false)).expect("an engine");
    for number in 0..SERVICES {
        engine.model.set_service(key(number), Some(service(number)));
        engine.model.set_slice(key(number), Some(slice(number, 0)));
    }
    let start = Instant::now();
    let loaded = engine.sync().expect("loaded");
    let load = start.elapsed();
    let mut times = |what: &str, change: &dyn Fn(&mut trine_proxy::Engine, u32)| {
        let mut times: Vec<Duration> = (0..51)
            .map(|n| {
                change(&mut engine, n);
                let start = Instant::now();
                engine.sync().expect("changed");
                start.elapsed()
            })
            .collect();
        times.sort_unstable();
        println!("{what}: p50 {:?}, max {:?}", times[times.len() / 2], times[times.len() - 1]);
        times[times.len() / 2]
    };
    println!("load of {SERVICES} Services x {ENDPOINTS} endpoints, {} elements: {load:?}", loaded.elements);
    let swap =
        times("three endpoints of one Service change", &|e, n| e.model.set_slice(key(n), Some(slice(n, 7))));
    let add = times("one Service is added", &|e, n| {
        e.model.set_service(key(SERVICES + n), Some(service(SERVICES + n)));
        e.model.set_slice(key(SERVICES + n), Some(slice(SERVICES + n, 0)));
    });
    let start = Instant::now();
    engine.verify().expect("verified");
    println!("verify: {:?}", start.elapsed());
    let start = Instant::now();
    trine_proxy::cleanup(lab::INSTANCE, Some(lab.host.path())).expect("cleaned up");
    println!("cleanup: {:?}", start.elapsed());
    if !cfg!(debug_assertions) {
        assert!(load < LOAD_GOAL, "{load:?}");
        assert!(swap < CHANGE_GOAL && add < CHANGE_GOAL, "{swap:?} {add:?}");
    }
}
