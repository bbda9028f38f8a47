//! Networks that cannot work.

use super::{Bystander, Expected, possible, simple};
use trine_tests::{Cluster, until};

const SLEEP: &str = "[/bin/busybox, sleep, '100000']";

fn conflist(cluster: &Cluster, plugin: &str, range: serde_json::Value) -> String {
    serde_json::json!({"cniVersion": "1.0.0", "name": "small", "plugins": [{"type": plugin,
        "ipam": {"type": "host-local", "dataDir": cluster.dir().join("cni/small"), "ranges": [[range]]}}]})
    .to_string()
}

#[test]
fn an_exhausted_pool_is_said_and_serves_again_when_an_address_is_free() {
    if !possible("an_exhausted_pool_is_said_and_serves_again_when_an_address_is_free") {
        return;
    }
    let cluster = Cluster::prepared();
    let conf = cluster.dir().join("cni/net.d");
    std::fs::create_dir_all(&conf).unwrap();
    let four = serde_json::json!(
        {"subnet": "10.198.77.0/24", "rangeStart": "10.198.77.10", "rangeEnd": "10.198.77.13"});
    std::fs::write(conf.join("10-small.conflist"), conflist(&cluster, "routed", four)).unwrap();
    cluster.start();
    cluster.build_busybox();
    for i in 0..4 {
        let _ = cluster.apply(&simple(&format!("full-{i}"), SLEEP)).expect_ok();
    }
    for i in 0..4 {
        cluster.wait_running(&format!("full-{i}"));
    }
    let _ = cluster.apply(&simple("starved", SLEEP)).expect_ok();
    let expected = Expected {
        pod: "starved",
        event: &["FailedCreatePodSandBox", "no IP addresses available", "in use)"],
        plane: "CNI",
        cause: &["ADD", "no IP addresses available"],
    };
    expected.check(&cluster);
    let _ = cluster.trine(&["delete", "pod/full-0"]).expect_ok();
    cluster.wait_running("starved");
}

#[test]
fn a_broken_conflist_and_a_missing_plugin_are_named_and_harm_nobody() {
    if !possible("a_broken_conflist_and_a_missing_plugin_are_named_and_harm_nobody") {
        return;
    }
    let cluster = Cluster::up();
    cluster.build_busybox();
    let bystander = Bystander::start(&cluster);
    let conf = cluster.dir().join("cni/net.d");

    // A broken file beside a good one takes nobody down.
    let broken = conf.join("05-broken.conflist");
    std::fs::write(&broken, "{ this is no JSON").unwrap();
    let _ = cluster.apply(&simple("beside-broken", SLEEP)).expect_ok();
    cluster.wait_running("beside-broken");
    std::fs::remove_file(&broken).unwrap();

    let missing = conf.join("05-missing.conflist");
    let range = serde_json::json!({"subnet": "10.198.78.0/24"});
    std::fs::write(&missing, conflist(&cluster, "no-such-plugin", range)).unwrap();
    let _ = cluster.apply(&simple("no-plugin", SLEEP)).expect_ok();
    let expected =
        Expected { pod: "no-plugin", event: &["no-such-plugin"], plane: "CNI", cause: &["no-such-plugin"] };
    expected.check(&cluster);
    std::fs::remove_file(&missing).unwrap();
    cluster.wait_running("no-plugin");

    // Nothing but a broken file: the node says so.
    let ours = conf.join("90-trine.conflist");
    let text = std::fs::read(&ours).unwrap();
    std::fs::write(&ours, "{ neither").unwrap();
    until("the node says that its network is broken", || {
        let node = cluster.trine(&["get", "nodes", "-o", "json"]).out;
        let told = node.contains("90-trine.conflist") && node.contains("\"False\"");
        if told { Ok(()) } else { Err(node.chars().take(3000).collect()) }
    });
    std::fs::write(&ours, text).unwrap();
    let _ = cluster.apply(&simple("after", SLEEP)).expect_ok();
    cluster.wait_running("after");
    bystander.check(&cluster);
}
