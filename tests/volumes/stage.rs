//! What the tests of volumes share: a cluster with kubectl, and copies of claims.

use std::path::PathBuf;

use serde_json::Value;
use trine_tests::{Cluster, kubectl, until};

/// A claim with the data of something, and who reads it.
pub fn copy(name: &str, source: &str, size: &str) -> String {
    format!(
        r"
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: {name}}}
spec:
  accessModes: [ReadWriteOnce]
  dataSource: {{{source}}}
  resources: {{requests: {{storage: {size}}}}}
---
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: trine.local/busybox:1
    command: [/bin/busybox, sleep, '10000']
    volumeMounts: [{{name: data, mountPath: /data}}]
  volumes: [{{name: data, persistentVolumeClaim: {{claimName: {name}}}}}]
"
    )
}

/// A cluster and who speaks to it.
pub struct Stage {
    pub cluster: Cluster,
    pub kubectl: PathBuf,
}

impl Stage {
    pub fn said(&self, words: &[&str]) -> String {
        kubectl::run(&self.kubectl, &self.cluster, words).expect_ok()
    }

    pub fn apply(&self, manifests: &str) {
        let path = self.cluster.dir().join("run/volumes.yaml");
        std::fs::write(&path, manifests).unwrap();
        let _ = self.said(&["apply", "-f", &path.display().to_string()]);
    }

    pub fn inside(&self, pod: &str, words: &str) -> String {
        self.said(&["exec", pod, "--", "/bin/busybox", "sh", "-c", words]).trim().to_owned()
    }

    /// The size of what is mounted, MiB.
    pub fn mebibytes(&self, pod: &str) -> u64 {
        let said = self.inside(pod, "/bin/busybox df -m /data | /bin/busybox tail -n 1");
        said.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("{said}"))
    }

    pub fn none_left(&self, kind: &str) {
        until(&format!("there is no {kind}"), || {
            let left = self.said(&["get", kind, "-A", "-o", "name"]);
            if left.trim().is_empty() { Ok(()) } else { Err(left) }
        });
    }

    /// An object, or all of a kind.
    pub fn read(&self, what: &str) -> Value {
        serde_json::from_str(&self.said(&["get", what, "-o", "json"])).unwrap()
    }

    /// Nothing of any volume lies in the driver's folder.
    pub fn nothing_in_the_pool(&self) {
        let pool = self.cluster.dir().join("volumes");
        let named = |dir: &std::path::Path| -> Vec<String> {
            let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
        };
        let own = ["lock", "targets.ledger", "own", "own.disk", "own.disk.record"];
        let mut left = named(&pool);
        left.retain(|name| !own.contains(&name.as_str()));
        // What lies on a disk of its own, if this machine's pool has one.
        left.extend(named(&pool.join("own")));
        assert_eq!(left, Vec::<String>::new(), "{}", pool.display());
    }
}
