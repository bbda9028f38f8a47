//! Bugs that others had with networks that are slow, fail, or are gone.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use trine_contracts::cri::*;

use crate::harness::{Node, inside, script};
use crate::scenario::{attempt, sandbox};
use crate::world::{self, World};

/// A plugin behind ours that does what files in its folder say.
const PLUGIN: &str = r#"#!/bin/sh
cat > /dev/null
here=$(dirname "$0")
refuse() { echo '{"cniVersion": "1.0.0", "code": 999, "msg": "as it was told"}'; exit 1; }
echo "$CNI_COMMAND $CNI_CONTAINERID" >> "$here/calls"
case $CNI_COMMAND in
    ADD) while test -e "$here/hold-add"; do sleep 0.01; done; test -e "$here/fail-add" && refuse; exit 0;;
    DEL) test -e "$here/fail-del" && refuse; exit 0;;
    VERSION) echo '{"cniVersion": "1.0.0", "supportedVersions": ["1.0.0"]}';;
esac
"#;

struct Stage {
    node: Node,
    plugin: PathBuf,
    base: World,
}

impl Stage {
    async fn set(test: &str, pod_cidr: &str) -> Option<Self> {
        let node = Node::start(test).await?;
        let plugin = node.dir.path().join("bin");
        std::fs::create_dir_all(&plugin).unwrap();
        std::fs::write(plugin.join("doubtful"), PLUGIN).unwrap();
        std::fs::set_permissions(plugin.join("doubtful"), PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::create_dir_all(&node.config.cni_conf_dir).unwrap();
        let ours = json!({"type": "routed", "instance": node.config.instance, "ipam": {
            "type": "host-local", "ranges": [[{"subnet": pod_cidr}]], "dataDir": node.config.cni_state_dir.join("networks"),
        }});
        let plugins = [ours, json!({"type": "doubtful"})];
        let conflist = json!({"cniVersion": "1.0.0", "name": "trine", "loadOnlyInlinedPlugins": true, "plugins": plugins});
        std::fs::write(node.config.cni_conf_dir.join("50-two.conflist"), conflist.to_string()).unwrap();
        let mut stage = Self { node, plugin, base: World::new() };
        // The first use makes folders that stay.
        let first = stage.node.run_pod(&attempt(&stage.node, 9, true)).await;
        stage.remove(&first).await.unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
        stage.base = world::calm(&stage.node).await;
        Some(stage)
    }

    fn tell(&self, word: &str) {
        std::fs::write(self.plugin.join(word), "").unwrap();
    }

    fn take_back(&self, word: &str) {
        std::fs::remove_file(self.plugin.join(word)).unwrap();
    }

    fn calls(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.plugin.join("calls")).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    async fn called(&self, call: &str, times: usize) {
        for _ in 0..1000 {
            if self.calls().iter().filter(|line| line.starts_with(call)).count() >= times {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("{call} is not called: {:?}", self.calls());
    }

    fn addresses(&self) -> usize {
        std::fs::read_dir(self.node.config.cni_state_dir.join("networks/trine"))
            .unwrap()
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().parse::<std::net::IpAddr>().is_ok())
            .count()
    }

    async fn run(&self, number: u32) -> Result<String, tonic::Status> {
        let request = RunPodSandboxRequest {
            config: Some(attempt(&self.node, number, true)),
            runtime_handler: String::new(),
        };
        Ok(self.node.client().run_pod_sandbox(request).await?.into_inner().pod_sandbox_id)
    }

    async fn stop(&self, pod: &str) -> Result<(), tonic::Status> {
        let request = StopPodSandboxRequest { pod_sandbox_id: pod.to_owned() };
        self.node.client().stop_pod_sandbox(request).await.map(drop)
    }

    async fn remove(&self, pod: &str) -> Result<(), tonic::Status> {
        let request = RemovePodSandboxRequest { pod_sandbox_id: pod.to_owned() };
        self.node.client().remove_pod_sandbox(request).await.map(drop)
    }

    async fn is_as_before(&self) {
        world::again(&self.node, &self.base).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_asks_again_while_the_network_is_slow_gets_the_sandbox_that_is_being_made() {
    let test = "network_bugs::who_asks_again_while_the_network_is_slow_gets_the_sandbox_that_is_being_made";
    if !inside(test) {
        return;
    }
    let Some(stage) = Stage::set(test, "10.89.0.0/24").await else { return };
    stage.tell("hold-add");
    let given_up = tokio::time::timeout(Duration::from_millis(100), stage.run(0)).await;
    assert!(given_up.is_err());
    // Others are made meanwhile, and everything is listed.
    let other = stage.node.run_pod(&stage.node.pod("other")).await;
    let id = stage.node.run(&other, script("main", "exec sleep 1000")).await;
    assert_eq!(stage.node.stdout(&id, "echo hi").await, "hi");
    let again = futures::future::join_all((0..4).map(|_| stage.run(0)));
    let release = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        stage.take_back("hold-add");
    };
    let (answers, ()) = tokio::join!(again, release);
    let first = answers[0].as_ref().unwrap().clone();
    assert!(answers.into_iter().all(|answer| answer.unwrap() == first));
    let adds = stage.calls().iter().filter(|call| **call == format!("ADD {first}")).count();
    assert_eq!(adds, 1, "{:?}", stage.calls());
    stage.remove(&first).await.unwrap();
    stage.remove(&other).await.unwrap();
    stage.is_as_before().await;
    stage.node.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_fails_after_its_client_has_gone_is_undone() {
    let test = "network_bugs::what_fails_after_its_client_has_gone_is_undone";
    if !inside(test) {
        return;
    }
    let Some(stage) = Stage::set(test, "10.90.0.0/24").await else { return };
    stage.tell("hold-add");
    stage.tell("fail-add");
    let given_up = tokio::time::timeout(Duration::from_millis(200), stage.run(0)).await;
    assert!(given_up.is_err());
    assert_eq!(stage.addresses(), 1);
    stage.take_back("hold-add");
    stage.called("DEL", 2).await;
    stage.is_as_before().await;
    stage.node.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sandbox_is_kept_and_seen_until_its_network_lets_it_go_also_over_a_restart() {
    let test = "network_bugs::a_sandbox_is_kept_and_seen_until_its_network_lets_it_go_also_over_a_restart";
    if !inside(test) {
        return;
    }
    let Some(mut stage) = Stage::set(test, "10.91.0.0/24").await else { return };
    stage.tell("fail-add");
    stage.tell("fail-del");
    let refused = stage.run(0).await.unwrap_err();
    assert!(refused.message().contains("as it was told"), "{refused:?}");
    let listed = || async {
        let mut client = stage.node.client();
        client.list_pod_sandbox(ListPodSandboxRequest::default()).await.unwrap().into_inner().items
    };
    let seen = listed().await;
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert_eq!(seen[0].state(), PodSandboxState::SandboxNotready);
    // The name is free, and nobody has to ask for what failed to go.
    stage.take_back("fail-add");
    let second = stage.run(0).await.unwrap();
    assert_ne!(second, seen[0].id);
    stage.node.end_daemon().await;
    stage.node.serve().await;
    assert!(sandbox(&stage.node, &seen[0].id).await.is_some(), "it is kept over a restart");
    stage.take_back("fail-del");
    stage.remove(&second).await.unwrap();
    // What is seen belongs to whoever sees it: the next daemon lets go of it, and it goes when it is removed.
    stage.remove(&seen[0].id).await.unwrap();
    stage.is_as_before().await;
    stage.node.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_does_not_let_go_keeps_no_process_alive_and_is_asked_again() {
    let test = "network_bugs::a_network_that_does_not_let_go_keeps_no_process_alive_and_is_asked_again";
    if !inside(test) {
        return;
    }
    let Some(stage) = Stage::set(test, "10.92.0.0/24").await else { return };
    let pod = stage.run(0).await.unwrap();
    let id = stage.node.run(&pod, script("main", "exec sleep 1000")).await;
    stage.tell("fail-del");
    let refused = stage.stop(&pod).await.unwrap_err();
    assert!(refused.message().contains("as it was told"), "{refused:?}");
    assert_eq!(stage.node.status(&id).await.state(), ContainerState::ContainerExited);
    assert!(!trine_cri::keeper::spawn::lives(&folder(&stage.node, &pod)));
    assert!(stage.remove(&pod).await.is_err());
    stage.take_back("fail-del");
    stage.stop(&pod).await.unwrap();
    stage.remove(&pod).await.unwrap();
    stage.is_as_before().await;
    // One that could not be made goes by itself once the network lets it.
    stage.tell("fail-add");
    stage.tell("fail-del");
    stage.run(0).await.unwrap_err();
    stage.take_back("fail-del");
    stage.is_as_before().await;
    stage.node.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_that_others_see_or_that_is_gone_keeps_no_pod() {
    let test = "network_bugs::a_namespace_that_others_see_or_that_is_gone_keeps_no_pod";
    if !inside(test) {
        return;
    }
    let Some(stage) = Stage::set(test, "10.93.0.0/24").await else { return };
    let node = &stage.node;
    let seen = stage.run(0).await.unwrap();
    let watcher = node.run_pod(&node.pod("watcher")).await;
    let sandboxes = node.config.state_dir.join("sandboxes").to_string_lossy().into_owned();
    let mount = Mount { container_path: "/seen".into(), host_path: sandboxes, ..Default::default() };
    let config = ContainerConfig { mounts: vec![mount], ..script("main", "exec sleep 1000") };
    let id = node.run(&watcher, config).await;
    let pinned = format!("grep -c {seen}/netns /proc/self/mountinfo || true");
    assert_eq!(node.stdout(&id, &pinned).await, "1", "the pin is mounted there, too");
    stage.stop(&seen).await.unwrap();
    stage.remove(&seen).await.unwrap();
    let gone = stage.run(1).await.unwrap();
    trine_kernel::netns::delete(&folder(node, &gone).join("netns")).unwrap();
    assert_eq!(sandbox(node, &gone).await.unwrap().state(), PodSandboxState::SandboxReady);
    stage.stop(&gone).await.unwrap();
    stage.remove(&gone).await.unwrap();
    stage.remove(&watcher).await.unwrap();
    stage.is_as_before().await;
    stage.node.finish().await;
}

fn folder(node: &Node, pod: &str) -> PathBuf {
    Path::new(&node.config.state_dir).join("sandboxes").join(pod)
}
