//! The plugin that does for a foreign kubelet what Trine's does by itself, called as a runtime calls it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use trine_tests::{Cluster, until};

use super::{ASKED, Bridge, definition, status, subnet};

/// A container's namespace, removed at the end.
struct Netns(String);

impl Netns {
    fn new() -> Self {
        let name = format!("trn-{}", std::process::id());
        assert!(Command::new("ip").args(["netns", "add", &name]).status().unwrap().success());
        Self(name)
    }

    fn path(&self) -> PathBuf {
        Path::new("/run/netns").join(&self.0)
    }

    fn ip(&self, words: &str) -> String {
        let output = Command::new("ip").args(["-n", &self.0]).args(words.split(' ')).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "delete", &self.0]).status();
    }
}

/// Executes the plugin: what it prints, and whether it succeeded.
fn call(bin: &Path, command: &str, netns: &Netns, uid: &str, config: &Value) -> (bool, Value) {
    let args = format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=waits;K8S_POD_UID={uid}");
    let mut child = Command::new(bin.join("trine-networks"))
        .envs([
            ("CNI_COMMAND", command),
            ("CNI_CONTAINERID", "c1"),
            ("CNI_IFNAME", "eth0"),
            ("CNI_ARGS", &args),
        ])
        .env("CNI_NETNS", netns.path())
        .env("CNI_PATH", bin)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(config.to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    (output.status.success(), serde_json::from_slice(&output.stdout).unwrap_or(Value::Null))
}

#[test]
fn a_foreign_kubelets_pods_are_on_the_networks_that_they_name_by_a_plugin() {
    let test = "a_foreign_kubelets_pods_are_on_the_networks_that_they_name_by_a_plugin";
    if !trine_kernel::testing::root(test) || !trine_kernel::testing::program(test, "ip") {
        return;
    }
    let cluster = Cluster::up();
    let (bridge, netns) = (Bridge(format!("trf{}", std::process::id() % 100_000)), Netns::new());
    let (bin, state) = (cluster.dir().join("foreign/bin"), cluster.dir().join("foreign/state"));
    let _ = cluster.trine(&["cni", "install", "--dir", &bin.display().to_string()]).expect_ok();
    let (a, b) = (subnet(2), subnet(3));
    let ipam = |subnet: &str| {
        json!({"type": "host-local", "subnet": format!("{subnet}.0/24"),
        "routes": [{"dst": "0.0.0.0/0"}], "dataDir": state})
    };
    let delegate =
        json!({"cniVersion": "1.1.0", "name": "default", "plugins": [{"type": "ptp", "ipam": ipam(&a)}]});
    let config = |kubeconfig: PathBuf| {
        json!({"cniVersion": "1.1.0", "name": "node", "type": "trine-networks", "kubeconfig": kubeconfig,
            "cniDir": state.join("attached"), "binDir": bin, "delegates": [delegate]})
    };
    let (here, nowhere) = (config(cluster.dir().join("kubeconfig")), config("/nonexistent".into()));
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "waits", "annotations": {ASKED: "shared@data"}},
        "spec": {"schedulerName": "nobody", "containers": [{"name": "c", "image": "trine.local/none:1"}]}});
    let _ = cluster.apply(&pod.to_string()).expect_ok();
    let uid = cluster.get("pod/waits")["metadata"]["uid"].as_str().unwrap().to_owned();

    let (ok, why) = call(&bin, "ADD", &netns, &uid, &here);
    let words = "cannot find a network-attachment-definition (shared) in namespace (default)";
    assert!(!ok && why["msg"].as_str().unwrap().contains(words), "{why}");
    assert_eq!(netns.ip("-br link").lines().count(), 1, "nothing was made");
    let shared = json!({"cniVersion": "0.4.0", "type": "bridge", "bridge": bridge.0, "ipam": ipam(&b)});
    until("the network is defined", || {
        let outcome = cluster.apply(&definition("shared", &shared));
        if outcome.ok { Ok(()) } else { Err(outcome.err) }
    });
    let (ok, why) = call(&bin, "ADD", &netns, "another", &here);
    assert!(!ok && why["msg"].as_str().unwrap().contains("expected pod UID \"another\""), "{why}");

    let add = || {
        let (ok, result) = call(&bin, "ADD", &netns, &uid, &here);
        assert!(ok, "{result}");
        result
    };
    let result = add();
    assert!(
        result["ips"][0]["address"].as_str().unwrap().starts_with(&a),
        "it is the default network's: {result}"
    );
    let all = status(&cluster, "waits");
    assert_eq!((&all[0]["name"], &all[0]["default"]), (&json!("default"), &json!(true)), "{all}");
    assert_eq!((&all[1]["name"], &all[1]["interface"]), (&json!("default/shared"), &json!("data")), "{all}");
    assert_eq!(netns.ip("-br link").lines().count(), 3);
    assert!(call(&bin, "CHECK", &netns, &uid, &here).0);
    assert!(call(&bin, "STATUS", &netns, &uid, &nowhere).0);

    // Its end asks no API, and may come twice.
    let gone = || {
        let taken = ["default", "shared"]
            .into_iter()
            .flat_map(|network| std::fs::read_dir(state.join(network)).unwrap());
        let taken = taken.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        let taken: Vec<String> = taken.filter(|name| name.starts_with("10.")).collect();
        let records = std::fs::read_dir(state.join("attached/containers")).unwrap().count();
        assert_eq!((taken, records), (Vec::new(), 0));
        // Links go behind the answer.
        until("all links are gone", || {
            let links = netns.ip("-br link");
            if links.lines().count() == 1 { Ok(()) } else { Err(links) }
        });
    };
    for _ in 0..2 {
        let (ok, why) = call(&bin, "DEL", &netns, &uid, &nowhere);
        assert!(ok, "{why}");
        gone();
    }
    // What nobody ends is found by what is still valid.
    let _ = add();
    let mut collect = nowhere.clone();
    collect["cni.dev/valid-attachments"] = json!([{"containerID": "c1", "ifname": "eth0"}]);
    assert!(call(&bin, "GC", &netns, &uid, &collect).0);
    assert!(call(&bin, "CHECK", &netns, &uid, &nowhere).0, "it is still there");
    collect["cni.dev/valid-attachments"] = json!([]);
    assert!(call(&bin, "GC", &netns, &uid, &collect).0);
    gone();
}
