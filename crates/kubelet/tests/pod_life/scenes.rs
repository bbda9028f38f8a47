//! What is shown, one scene after the other on one cluster.

use std::time::Instant;

use serde_json::json;
use tokio::io::AsyncReadExt;
use trine_typed::k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod};
use trine_typed::kube::api::{AttachParams, DeleteParams, LogParams};

use crate::cluster::Cluster;
use crate::{devices, shortage};

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|s| s.phase.as_deref()).unwrap_or_default()
}

fn ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|s| s.conditions.iter().flatten());
    conditions.into_iter().any(|c| c.type_ == "Ready" && c.status == "True")
}

fn waiting(pod: &Pod) -> String {
    let statuses = pod.status.iter().flat_map(|s| s.container_statuses.iter().flatten());
    let mut reasons = statuses.filter_map(|c| c.state.as_ref()?.waiting.as_ref()?.reason.clone());
    reasons.next().unwrap_or_default()
}

fn container_id(pod: &Pod) -> Option<String> {
    pod.status.as_ref()?.container_statuses.as_ref()?.first()?.container_id.clone()
}

/// All scenes.
pub async fn all() {
    let mut cluster = Cluster::start().await;
    println!("node ready after {:?}", cluster.node_ready().await);
    a_pod_with_everything(&cluster).await;
    a_restart_of_the_kubelet_changes_nothing(&mut cluster).await;
    devices::a_pod_has_its_device_until_it_is_gone(&mut cluster).await;
    faults_say_what_is_wrong(&cluster).await;
    shortage::who_takes_too_much_leaves_and_who_says_too_much_is_cut_short(&cluster).await;
    data_outlives_its_pod(&cluster).await;
    shortage::a_node_with_too_little_left_ends_pods_and_takes_no_more(&mut cluster).await;
    everything_goes(&cluster).await;
    speed(&cluster).await;
    cluster.finish().await;
}

async fn a_pod_with_everything(cluster: &Cluster) {
    cluster.create::<ConfigMap>(json!({"metadata": {"name": "cm"}, "data": {"key": "from-map"}})).await;
    cluster
        .create::<PersistentVolumeClaim>(json!({"metadata": {"name": "claim"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "32Mi"}}}}))
        .await;
    let started = Instant::now();
    cluster
        .pod("web", json!({
            "securityContext": {"fsGroup": 2000},
            "initContainers": [{"name": "init", "image": crate::cluster::IMAGE, "command": ["sh", "-c", "echo kept > /tmpdir/init"],
                "volumeMounts": [{"name": "tmp", "mountPath": "/tmpdir"}]}],
            "containers": [{"name": "c",
                "command": ["sh", "-c", "echo $(GREETING) $KEY; cat /cm/key /tmpdir/init /part/key; echo; echo saved > /data/file; sync; mkdir /www; echo ok > /www/index.html; exec httpd -f -p 8080 -h /www"],
                "env": [{"name": "GREETING", "value": "hello"},
                    {"name": "KEY", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "key"}}}],
                "readinessProbe": {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1},
                "livenessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 1},
                "lifecycle": {"preStop": {"exec": {"command": ["sh", "-c", "cat /tmpdir/init > /data/stopped"]}}},
                "volumeMounts": [{"name": "data", "mountPath": "/data"}, {"name": "tmp", "mountPath": "/tmpdir"},
                    {"name": "memory", "mountPath": "/memory"}, {"name": "cm", "mountPath": "/cm"},
                    {"name": "cm", "mountPath": "/part/key", "subPath": "key"}]}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "claim"}},
                {"name": "tmp", "emptyDir": {}}, {"name": "memory", "emptyDir": {"medium": "Memory"}},
                {"name": "cm", "configMap": {"name": "cm"}}]}))
        .await;
    let pod = cluster.until("web", "ready", ready).await;
    println!(
        "a pod with a fresh volume, an init container and a probe is ready after {:?}",
        started.elapsed()
    );
    let status = pod.status.unwrap();
    assert!(status.pod_ip.unwrap().starts_with("10.77.0."));
    assert!(status.container_statuses.unwrap()[0].container_id.as_ref().unwrap().starts_with("trine://"));
    let conditions = status.conditions.unwrap();
    assert!(conditions.iter().all(|c| c.status == "True" && c.reason.is_none()), "{conditions:#?}");
    let log = cluster.pods().logs("web", &LogParams::default()).await.unwrap();
    assert_eq!(log, "hello from-map\nfrom-mapkept\nfrom-map\n");
    let tail = LogParams { tail_lines: Some(1), ..Default::default() };
    assert_eq!(cluster.pods().logs("web", &tail).await.unwrap(), "from-map\n");
    let exec = AttachParams::default().stdout(true).stderr(false);
    let mut attached = cluster.over_tls().await.exec("web", ["cat", "/data/file"], &exec).await.unwrap();
    let mut output = String::new();
    attached.stdout().unwrap().read_to_string(&mut output).await.unwrap();
    assert_eq!(output, "saved\n");
}

async fn a_restart_of_the_kubelet_changes_nothing(cluster: &mut Cluster) {
    cluster.pod("orphan", json!({"containers": [{"name": "c"}]})).await;
    cluster.until("orphan", "ready", ready).await;
    let before = cluster.pods().get("web").await.unwrap();
    cluster.stop_kubelet().await;
    cluster.pods().delete("orphan", &DeleteParams::default().grace_period(0)).await.unwrap();
    cluster.start_kubelet();
    let started = Instant::now();
    let orphan = cluster.dir.path().join("kubelet/logs");
    let there = || {
        std::fs::read_dir(&orphan)
            .unwrap()
            .flatten()
            .any(|e| e.file_name().to_string_lossy().contains("orphan"))
    };
    while there() {
        assert!(started.elapsed().as_secs() < 40, "the orphan's logs stay");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let after = cluster.pods().get("web").await.unwrap();
    assert!(ready(&after));
    assert_eq!(container_id(&before), container_id(&after));
    assert_eq!(after.status.unwrap().container_statuses.unwrap()[0].restart_count, 0);
}

async fn faults_say_what_is_wrong(cluster: &Cluster) {
    let rows = [
        ("noimage", json!({"image": "localhost:1/none:1"}), "ImagePullBackOff", "localhost:1/none:1"),
        ("nocommand", json!({"command": ["/nope"]}), "RunContainerError", "/nope"),
        (
            "noconfig",
            json!({"envFrom": [{"configMapRef": {"name": "absent"}}]}),
            "CreateContainerConfigError",
            "absent",
        ),
        ("crash", json!({"command": ["false"]}), "CrashLoopBackOff", "Back-off restarting failed container"),
    ];
    for (name, fields, _, _) in &rows {
        let mut container = fields.clone();
        container["name"] = json!("c");
        cluster.pod(name, json!({"containers": [container]})).await;
    }
    for (name, _, reason, word) in &rows {
        cluster.until(name, reason, |p| waiting(p) == *reason).await;
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        let events = cluster.events(name).await;
        assert!(events.contains(word), "{name}: {events}");
        cluster.delete(name).await;
    }
    cluster
        .pod("done", json!({"restartPolicy": "Never", "containers": [{"name": "c", "command": ["true"]}]}))
        .await;
    cluster.pod("failed", json!({"restartPolicy": "Never",
        "containers": [{"name": "c", "command": ["sh", "-c", "echo last words > /dev/termination-log; exit 3"]}]})).await;
    cluster.until("done", "Succeeded", |p| phase(p) == "Succeeded").await;
    let failed = cluster.until("failed", "Failed", |p| phase(p) == "Failed").await;
    let state =
        failed.status.unwrap().container_statuses.unwrap()[0].state.clone().unwrap().terminated.unwrap();
    assert_eq!((state.exit_code, state.message.as_deref()), (3, Some("last words\n")));
    cluster.delete("done").await;
    cluster.delete("failed").await;
}

async fn data_outlives_its_pod(cluster: &Cluster) {
    println!("a pod with a volume is gone after {:?}", cluster.delete("web").await);
    cluster
        .pod(
            "reader",
            json!({"restartPolicy": "Never",
            "containers": [{"name": "c", "command": ["cat", "/data/file", "/data/stopped"],
                "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "claim"}}]}),
        )
        .await;
    cluster.until("reader", "Succeeded", |p| phase(p) == "Succeeded").await;
    assert_eq!(cluster.pods().logs("reader", &LogParams::default()).await.unwrap(), "saved\nkept\n");
    cluster.delete("reader").await;
}

async fn everything_goes(cluster: &Cluster) {
    cluster.delete_claim("claim").await;
    let names = |dir: std::path::PathBuf| std::fs::read_dir(dir).unwrap().flatten().map(|e| e.path());
    let left = || -> Vec<_> {
        let folders = names(cluster.root().join("pods")).chain(names(cluster.root().join("logs")));
        folders.chain(cluster.mounts()).collect()
    };
    // A Pod that has ended is deleted at once; what it had goes after it, and when a new kubelet never heard of it, with its
    // next look at the runtime.
    let started = Instant::now();
    while !left().is_empty() {
        assert!(started.elapsed().as_secs() < 40, "left behind: {:?}", left());
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

async fn speed(cluster: &Cluster) {
    let (mut up, mut down) = (Vec::new(), Vec::new());
    for index in 0..10 {
        let name = format!("speed{index}");
        let started = Instant::now();
        cluster
            .pod(
                &name,
                json!({"containers": [{"name": "c", "command": ["httpd", "-f", "-p", "8080"]}],
            "terminationGracePeriodSeconds": 0}),
            )
            .await;
        cluster.until(&name, "ready", ready).await;
        up.push(started.elapsed());
        down.push(cluster.delete(&name).await);
    }
    up.sort();
    down.sort();
    println!("apply -> ready p50 {:?}, delete -> gone p50 {:?}", up[5], down[5]);
}
