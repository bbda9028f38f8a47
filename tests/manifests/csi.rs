//! A CSI driver by its released manifests, with upstream's sidecars and snapshot controller: what its users do with it.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use trine_tests::{go, until};

use super::Stage;
use super::mounts::Shared;

/// The images that the manifests name.
const IMAGES: [&str; 8] = [
    "hostpathplugin",
    "csi-node-driver-registrar",
    "livenessprobe",
    "csi-attacher",
    "csi-provisioner",
    "csi-resizer",
    "csi-snapshotter",
    "snapshot-controller",
];
const DRIVER: &str = "hostpath.csi.k8s.io";

/// The manifests as they are released, for this kubelet's folder and a folder of data that goes with the test.
fn manifests(stage: &Stage, root: &Path) -> String {
    let kubernetes = go::module("tests/upstream/images", "k8s.io/kubernetes");
    let released = kubernetes.join("test/e2e/testing-manifests/storage-csi");
    let text = std::fs::read_to_string(Stage::folder("csi/kustomization.yaml")).unwrap();
    let folder = root.join("csi");
    std::fs::create_dir_all(&folder).unwrap();
    let text = text.replace("MANIFESTS", &released.display().to_string()).replace("NODE", &node(stage));
    std::fs::write(folder.join("kustomization.yaml"), text).unwrap();
    let words = ["kustomize", "--load-restrictor=LoadRestrictionsNone", &folder.display().to_string()];
    let kubelet = format!("{}/", stage.cluster.dir().join("kubelet").display());
    let data = format!("{}/", root.join("data").display());
    let text = stage.said(&words).replace("/var/lib/kubelet/", &kubelet);
    let path = folder.join("all.yaml");
    std::fs::write(&path, text.replace("/var/lib/csi-hostpath-data/", &data)).unwrap();
    path.display().to_string()
}

/// The driver's node. The second one is a machine of its own, on which mounts propagate whatever this one's root does.
fn node(stage: &Stage) -> String {
    let nodes = stage.said(&["get", "nodes", "-o", "jsonpath={.items[*].metadata.name}"]);
    nodes.split_whitespace().find(|name| name.ends_with("-2")).unwrap().to_owned()
}

fn drivers(stage: &Stage) -> Vec<Value> {
    let nodes: Value = serde_json::from_str(&stage.said(&["get", "csinodes", "-o", "json"])).unwrap();
    let all = nodes["items"].as_array().cloned().unwrap_or_default();
    let drivers = all.iter().flat_map(|node| node["spec"]["drivers"].as_array().cloned().unwrap_or_default());
    drivers.filter(|driver| driver["name"] == DRIVER).collect()
}

fn note(stage: &Stage, pod: &str, path: &str) -> String {
    let command = format!("read note < {path}; echo $note");
    stage.said(&["exec", pod, "--", "sh", "-c", &command]).trim().to_owned()
}

/// Waits until nothing of a kind is left.
fn none_left(stage: &Stage, kind: &str) {
    until(&format!("there is no {kind}"), || {
        let left = stage.said(&["get", kind, "-A", "-o", "name"]);
        let left: Vec<&str> = left.lines().filter(|name| !name.contains("csi-hostpath-snapclass")).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    });
}

/// The driver's loop devices; of a test that fails midway nobody takes them back.
struct Devices(PathBuf);

impl Drop for Devices {
    fn drop(&mut self) {
        let names =
            |path: &Path| std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
        let volumes: Vec<_> = names(&self.0).filter_map(|path| Some(path.file_name()?.to_owned())).collect();
        for device in names(Path::new("/sys/block")) {
            let file = std::fs::read_to_string(device.join("loop/backing_file")).unwrap_or_default();
            let file = Path::new(file.split_whitespace().next().unwrap_or_default()).file_name();
            if let (Some(file), Some(name)) = (file, device.file_name())
                && volumes.iter().any(|volume| volume == file)
            {
                let _ = Command::new("losetup").arg("-d").arg(Path::new("/dev").join(name)).status();
            }
        }
    }
}

/// A volume of blocks is written, grows, and comes back from its snapshot as it was.
fn blocks(stage: &Stage) {
    let read = |pod: &str| {
        let command = "dd if=/dev/volume bs=512 skip=4096 count=1 2>/dev/null | head -c 5";
        stage.said(&["exec", pod, "--", "sh", "-c", command])
    };
    let write = |word: &str| {
        let command =
            format!("printf {word} | dd of=/dev/volume bs=512 seek=4096 conv=notrunc,fsync 2>/dev/null");
        let _ = stage.said(&["exec", "blocks", "--", "sh", "-c", &command]);
    };
    stage.apply("csi/blocks.yaml", &[]);
    stage.wait("pod/blocks", "Ready");
    write("first");
    stage.apply("csi/blocks-snapshot.yaml", &[]);
    let ready = "--for=jsonpath={.status.readyToUse}=true";
    let _ = stage.said(&["wait", "volumesnapshot/blocks", ready, "--timeout=90s"]);
    write("later");
    let command = "blockdev --getsize64 /dev/volume";
    let size = |pod: &str| stage.said(&["exec", pod, "--", "sh", "-c", command]);
    assert_eq!(size("blocks").trim(), (100_u64 << 20).to_string());
    let larger = r#"{"spec": {"resources": {"requests": {"storage": "200Mi"}}}}"#;
    let _ = stage.said(&["patch", "pvc", "blocks", "-p", larger]);
    until("the device has grown under its Pod", || {
        let now = size("blocks");
        if now.trim() == (200_u64 << 20).to_string() { Ok(()) } else { Err(now) }
    });
    stage.apply("csi/blocks-copy.yaml", &[]);
    stage.wait("pod/blocks-copy", "Ready");
    assert_eq!((read("blocks").as_str(), read("blocks-copy").as_str()), ("later", "first"));
}

#[test]
#[ignore = "takes minutes; `cargo xtask manifests` makes its images and runs it"]
fn a_drivers_released_manifests_give_volumes_snapshots_clones_and_growth() {
    const TEST: &str = "a_drivers_released_manifests_give_volumes_snapshots_clones_and_growth";
    let Some(stage) = Stage::set(TEST) else { return };
    let shared = Shared::make(Path::new("/run").join(format!("trine-test-csi-{}", std::process::id())));
    let _devices = Devices(shared.0.join("data"));
    IMAGES.iter().for_each(|image| stage.import(image));
    let client =
        go::module("tests/upstream/sidecars", "github.com/kubernetes-csi/external-snapshotter/client/v8");
    let snapshotter =
        go::module("tests/upstream/sidecars", "github.com/kubernetes-csi/external-snapshotter/v8");
    let definitions = client.join("config/crd").display().to_string();
    let _ = stage.said(&["apply", "--server-side", "-k", &definitions]);
    stage.wait("crd/volumesnapshots.snapshot.storage.k8s.io", "Established");
    let controller = snapshotter.join("deploy/kubernetes/snapshot-controller").display().to_string();
    let _ = stage.said(&["apply", "-k", &controller]);
    let all = manifests(&stage, &shared.0);
    let _ = stage.said(&["apply", "-f", &all]);
    let _ = stage.said(&["rollout", "status", "statefulset/csi-hostpathplugin", "--timeout=120s"]);
    until("the driver is registered on one node", || match drivers(&stage).as_slice() {
        [driver] if driver["topologyKeys"] == json!(["topology.hostpath.csi/node"]) => Ok(()),
        other => Err(format!("{other:?}")),
    });
    let words = ["rollout", "status", "deployment/snapshot-controller", "-n", "kube-system"];
    let _ = stage.said(&[&words[..], &["--timeout=180s"]].concat());

    stage.apply("csi/claim.yaml", &[]);
    stage.wait("pod/writer", "Ready");
    assert_eq!(note(&stage, "writer", "/data/note"), "first");
    let larger = r#"{"spec": {"resources": {"requests": {"storage": "200Mi"}}}}"#;
    let _ = stage.said(&["patch", "pvc", "data", "-p", larger]);
    let grown = "--for=jsonpath={.status.capacity.storage}=200Mi";
    let _ = stage.said(&["wait", "pvc/data", grown, "--timeout=90s"]);

    stage.apply("csi/snapshot.yaml", &[]);
    let ready = "--for=jsonpath={.status.readyToUse}=true";
    let _ = stage.said(&["wait", "volumesnapshot/data", ready, "--timeout=90s"]);
    let _ = stage.said(&["exec", "writer", "--", "sh", "-c", "echo second > /data/note"]);
    stage.apply("csi/copies.yaml", &[]);
    stage.wait("pod/reader", "Ready");
    assert_eq!(note(&stage, "reader", "/restored/note"), "first");
    assert_eq!(note(&stage, "reader", "/cloned/note"), "second");

    // The driver is replaced under its users.
    let uid = || stage.said(&["get", "pod", "csi-hostpathplugin-0", "-o", "jsonpath={.metadata.uid}"]);
    let before = uid();
    let _ = stage.said(&["delete", "pod", "csi-hostpathplugin-0"]);
    until("another driver's Pod is there", || {
        let pod = stage.kubectl(&["get", "pod", "csi-hostpathplugin-0"]);
        if pod.ok && uid() != before { Ok(()) } else { Err(pod.err) }
    });
    stage.wait("pod/csi-hostpathplugin-0", "Ready");
    assert_eq!(note(&stage, "writer", "/data/note"), "second");
    stage.apply("csi/later.yaml", &[]);
    stage.wait("pod/later", "Ready");

    blocks(&stage);

    let volumes = || std::fs::read_dir(shared.0.join("data")).unwrap().count();
    let before = volumes();
    stage.apply("csi/inline.yaml", &[("NODE", &node(&stage))]);
    stage.wait("pod/inline", "Ready");
    assert_eq!(note(&stage, "inline", "/data/note"), "inline");
    let group = stage.said(&["exec", "inline", "--", "sh", "-c", "stat -c %g /data"]);
    // A folder, and a file that says what it is.
    assert_eq!((group.trim(), volumes()), ("4321", before + 2));
    let _ = stage.said(&["delete", "pod", "inline", "--timeout=90s"]);
    assert_eq!(volumes(), before, "the volume ends with its Pod");

    let _ = stage.said(&["delete", "pod", "-l", "used=here", "--timeout=90s"]);
    let _ = stage.said(&["delete", "volumesnapshot", "--all", "--timeout=90s"]);
    let _ = stage.said(&["delete", "pvc", "--all", "--timeout=90s"]);
    for kind in ["volumeattachment", "pv", "volumesnapshotcontent"] {
        none_left(&stage, kind);
    }
    let left: Vec<_> =
        std::fs::read_dir(shared.0.join("data")).unwrap().flatten().map(|e| e.path()).collect();
    assert!(left.iter().all(|path| path.ends_with("state.json")), "{left:?}");
    let _ = stage.said(&["delete", "-f", &all, "--timeout=90s"]);
    until("the driver is registered nowhere", || {
        let drivers = drivers(&stage);
        if drivers.is_empty() { Ok(()) } else { Err(format!("{drivers:?}")) }
    });
}
