//! A DaemonSet whose mounts other Pods of its nodes see.

use std::path::Path;

use trine_tests::until;

use super::Stage;
use super::mounts::Shared;

#[test]
fn what_an_agent_mounts_other_pods_of_its_node_see_until_it_goes() {
    let folder = Path::new("/run").join(format!("trine-test-agent-{}", std::process::id()));
    let Some(stage) = Stage::set("what_an_agent_mounts_other_pods_of_its_node_see_until_it_goes") else {
        return;
    };
    let shared = Shared::make(folder);
    stage.apply("agent/agent.yaml", &[("HOST_FOLDER", &shared.path())]);
    let _ =
        stage.said(&["rollout", "status", "daemonset/agent", "--namespace=agent-system", "--timeout=60s"]);
    let _ = stage.said(&["rollout", "status", "deployment/reader", "--timeout=60s"]);
    let note = "read note < /shared/mnt/note; echo $note";
    let node = stage.said(&["get", "pod", "-l", "app=reader", "-o", "jsonpath={.items[0].spec.nodeName}"]);
    let seen = stage.said(&["exec", "deploy/reader", "--", "sh", "-c", note]);
    assert_eq!(seen.trim(), format!("from {node}"));

    let _ = stage.said(&["delete", "daemonset", "agent", "--namespace=agent-system"]);
    until("the mount is gone", || {
        let there = stage.kubectl(&["exec", "deploy/reader", "--", "sh", "-c", "test -e /shared/mnt/note"]);
        if there.ok { Err(format!("{there:?}")) } else { Ok(()) }
    });
    let _ = stage.said(&["delete", "deployment", "reader"]);
}
