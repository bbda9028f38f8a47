//! The daemon, which is API server, controllers, kubelet and driver in one, dies by `kill -9` at every place where the controllers and
//! the kubelet have done one thing to a volume and not yet the next. The next daemon carries on, who writes meanwhile loses no
//! synced record, and nothing is left.

use std::path::PathBuf;

use trine_kernel::testing::deaths;
use trine_tests::{Cluster, kubectl, until};

use crate::stage::Stage;

/// Who writes all the time: a record is said aloud once it is synced.
const WRITER: &str = r#"
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec:
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 64Mi}}
---
apiVersion: v1
kind: Pod
metadata: {name: writer}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: trine.local/busybox:1
    command:
    - /bin/busybox
    - sh
    - -c
    - "n=0; while true; do n=$((n+1)); echo $n $((n*7+3)) >> /data/log; /bin/busybox sync; echo $n; /bin/busybox sleep 0.2; done"
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
"#;

/// A claim and its Pod, which are made and go around each death.
const SUBJECT: &str = r#"
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: NAME}
spec:
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 16Mi}}
---
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: trine.local/busybox:1
    command: [/bin/busybox, sleep, '10000']
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: NAME}}]
"#;

/// On the way up, and on the way down.
const UP: [&str; 10] = [
    "provision: intended",
    "provision: created",
    "provision: object",
    "attach: intended",
    "attach: published",
    "attach: said",
    "stage: noted",
    "stage: done",
    "publish: noted",
    "publish: done",
];
const DOWN: [&str; 8] = [
    "unpublish: done",
    "unpublish: target",
    "unstage: done",
    "unstage: folder",
    "unstage: forgotten",
    "detach: unpublished",
    "detach: let go",
    "reclaim: deleted",
];

struct Deaths {
    stage: Stage,
    folder: PathBuf,
}

impl Deaths {
    fn start(&self) {
        self.stage.cluster.start_with(&[("TRINE_TEST_DIES", self.folder.to_str().unwrap())]);
    }

    /// Does `act` in a daemon that dies at `place` because of it, and starts the next one.
    fn dies(&self, place: &str, act: impl Fn()) {
        let pid = self.stage.cluster.pid();
        deaths::arm(&self.folder, place, 1).unwrap();
        act();
        until(&format!("the daemon dies at {place:?}"), || {
            let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            if state.is_empty() || state.contains(") Z ") { Ok(()) } else { Err(state) }
        });
        assert!(deaths::died(&self.folder).unwrap(), "it died elsewhere than at {place:?}");
        self.start();
    }

    fn asked(&self, words: &[&str]) {
        // The daemon may die in the middle of it.
        let _ = kubectl::run(&self.stage.kubectl, &self.stage.cluster, words);
    }

    fn made(&self, name: &str) {
        let path = self.folder.join("subject.yaml");
        std::fs::write(&path, SUBJECT.replace("NAME", name)).unwrap();
        self.asked(&["apply", "-f", &path.display().to_string()]);
    }

    fn gone(&self, name: &str) {
        for what in [format!("pod/{name}"), format!("pvc/{name}")] {
            self.asked(&["delete", &what, "--wait=false", "--ignore-not-found"]);
        }
    }

    /// All records that the writer has said aloud are in its volume, in their order.
    fn check(&self, here: &str) -> u64 {
        let said = self.stage.said(&["logs", "writer", "--tail=1"]);
        let said: u64 = said.trim().parse().unwrap_or_else(|_| panic!("{here}: {said:?}"));
        let log = self.stage.inside("writer", "/bin/busybox cat /data/log");
        let whole = log.lines().zip(1_u64..).take_while(|(l, n)| *l == format!("{n} {}", n * 7 + 3)).count();
        assert!(whole as u64 >= said, "{here}: {whole} of {said} synced records");
        said
    }

    fn nothing_of(&self, name: &str) {
        until(&format!("there is nothing of {name}"), || {
            let left = self.stage.said(&["get", "pod,pvc,pv,volumeattachment", "-o", "name"]);
            let left: Vec<&str> = left.lines().collect();
            // The writer's: a Pod, a claim, a volume, an attachment.
            if left.len() == 4 { Ok(()) } else { Err(left.join(" ")) }
        });
    }
}

#[test]
fn a_daemon_that_dies_anywhere_in_a_volumes_life_loses_and_leaves_nothing() {
    const TEST: &str = "a_daemon_that_dies_anywhere_in_a_volumes_life_loses_and_leaves_nothing";
    let Some(kubectl) = kubectl::build(TEST) else { return };
    if !trine_kernel::testing::root(TEST) || !trine_kernel::testing::program(TEST, "busybox") {
        return;
    }
    if !cfg!(debug_assertions) {
        trine_kernel::testing::skip(TEST, "a release has no places to die at");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let deaths = Deaths {
        stage: Stage { cluster: Cluster::prepared(), kubectl },
        folder: folder.path().canonicalize().unwrap(),
    };
    deaths.start();
    deaths.stage.cluster.build_busybox();
    deaths.stage.apply(WRITER);
    let ready = ["--for=condition=Ready", "--timeout=60s"];
    let _ = deaths.stage.said(&["wait", "pod/writer", ready[0], ready[1]]);
    // Each death takes seconds: all of them in `cargo xtask churn`.
    let step = if std::env::var_os("TRINE_TEST_ALL_DEATHS").is_some() { 1 } else { 3 };
    let mut count = 0;
    for (n, place) in UP.iter().chain(&DOWN).enumerate().step_by(step) {
        count += 1;
        let name = format!("subject{n}");
        let up = UP.contains(place);
        if up {
            deaths.dies(place, || deaths.made(&name));
        }
        deaths.made(&name);
        let _ = deaths.stage.said(&["wait", &format!("pod/{name}"), ready[0], ready[1]]);
        assert_eq!(deaths.stage.inside(&name, "echo kept > /data/note; /bin/busybox cat /data/note"), "kept");
        if !up {
            deaths.dies(place, || deaths.gone(&name));
        }
        deaths.gone(&name);
        deaths.nothing_of(&name);
        deaths.check(place);
    }
    let records = deaths.check("the end");
    println!("{count} deaths, {records} records");
    for what in ["pod", "pvc"] {
        let _ = deaths.stage.said(&["delete", what, "--all", "--timeout=60s"]);
    }
    for kind in ["pv", "volumeattachment"] {
        deaths.stage.none_left(kind);
    }
    deaths.stage.nothing_in_the_pool();
}
