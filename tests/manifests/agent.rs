//! A DaemonSet whose mounts other Pods of its nodes see.

use std::path::{Path, PathBuf};
use std::process::Command;

use trine_tests::until;

use super::Stage;

/// A folder of the host from which mounts propagate, as everything does on a machine with systemd.
struct Shared(PathBuf);

impl Shared {
    fn make(path: PathBuf) -> Self {
        std::fs::create_dir_all(&path).unwrap();
        let shared = Self(path);
        shared.run("mount", &["--bind", &shared.path(), &shared.path()]);
        shared.run("mount", &["--make-shared", &shared.path()]);
        shared
    }

    fn path(&self) -> String {
        self.0.display().to_string()
    }

    fn run(&self, program: &str, words: &[&str]) {
        assert!(Command::new(program).args(words).status().unwrap().success(), "{program} {words:?}");
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--recursive").arg(&self.0).status();
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

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
