//! What people do with kubectl, each flow judged by what it shows and by what is there afterwards.
//!
//! The flows are text (`*.flow`; the form is told in `trine_tests::flow`), the client is the current kubectl.

use trine_tests::api::Api;
use trine_tests::{Cluster, flow, kubectl};

/// What needs no node: against the API server and its controllers.
const SERVER: [&str; 7] = [
    include_str!("reading.flow"),
    include_str!("creating.flow"),
    include_str!("changing.flow"),
    include_str!("workloads.flow"),
    include_str!("deleting.flow"),
    include_str!("access.flow"),
    include_str!("itself.flow"),
];
/// What needs running Pods.
const CLUSTER: &str = include_str!("cluster.flow");

#[test]
fn kubectl_flows_hold_against_the_api_server() {
    let Some(program) = kubectl::build("kubectl_flows_hold_against_the_api_server") else { return };
    let api = Api::start();
    let flows: Vec<flow::Flow> = SERVER.iter().flat_map(|text| flow::parse(text)).collect();
    flow::run(&program, api.kubeconfig(), &flows).hold();
}

#[test]
fn kubectl_flows_hold_against_a_cluster() {
    const TEST: &str = "kubectl_flows_hold_against_a_cluster";
    let Some(program) = kubectl::build(TEST) else { return };
    let Some(cluster) = Cluster::with_busybox(TEST) else { return };
    flow::run(&program, &cluster.dir().join("kubeconfig"), &flow::parse(CLUSTER)).hold();
}
