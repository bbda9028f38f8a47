//! What happens when Pods take more than they may, or the node has too little left.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::json;
use trine_typed::k8s_openapi::api::core::v1::{Event, Node, Pod};
use trine_typed::kube::Api;
use trine_typed::kube::api::{ListParams, LogParams};

use crate::cluster::Cluster;

fn evicted(pod: &Pod) -> Option<&str> {
    let status = pod.status.as_ref().filter(|s| s.reason.as_deref() == Some("Evicted"))?;
    (status.phase.as_deref() == Some("Failed")).then(|| status.message.as_deref().unwrap_or_default())
}

fn running(pod: &Pod) -> bool {
    pod.status.as_ref().is_some_and(|s| s.phase.as_deref() == Some("Running"))
}

pub async fn who_takes_too_much_leaves_and_who_says_too_much_is_cut_short(cluster: &Cluster) {
    let filling = |dir: &str| format!("cat /bin/sh /bin/cat > {dir}/file && exec sleep 1000");
    let pod = |name: &str, resources, volume, script: String| {
        let spec = json!({
            "containers": [{"name": "c", "command": ["sh", "-c", script], "resources": resources,
                "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
            "volumes": [{"name": "v", "emptyDir": volume}]});
        (name.to_owned(), spec)
    };
    let limit = json!({"limits": {"ephemeral-storage": "1Mi"}});
    for (name, spec) in [
        pod("full-volume", json!({}), json!({"sizeLimit": "1Mi"}), filling("/v")),
        pod("full-root", limit.clone(), json!({}), filling("/tmp")),
        pod("within", limit, json!({"sizeLimit": "1Mi"}), "echo small > /v/file; exec sleep 1000".to_owned()),
        pod(
            "talkative",
            json!({}),
            json!({}),
            "i=0; while [ $i -lt 3000 ]; do echo $i a line that is not short at all; i=$((i+1)); done; \
             while true; do sleep 1; echo more; done"
                .to_owned(),
        ),
    ] {
        cluster.pod(&name, spec).await;
    }
    for (name, words) in [
        ("full-volume", "Usage of EmptyDir volume \"v\" exceeds the limit \"1Mi\". "),
        ("full-root", "Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. "),
    ] {
        let pod = cluster.until(name, "evicted", |p| evicted(p).is_some()).await;
        assert_eq!(evicted(&pod), Some(words));
        let conditions = pod.status.as_ref().and_then(|s| s.conditions.as_ref()).unwrap();
        let target = conditions.iter().find(|c| c.type_ == "DisruptionTarget").unwrap();
        assert_eq!(
            (target.status.as_str(), target.reason.as_deref(), target.message.as_deref()),
            ("True", Some("TerminationByKubelet"), Some(words))
        );
        let events = cluster.events(name).await;
        assert!(events.contains(&format!("Evicted {words}")), "{events}");
        cluster.delete(name).await;
    }
    assert!(running(&cluster.until("within", "Running", running).await));
    the_log_is_rotated(cluster).await;
    cluster.delete("within").await;
    cluster.delete("talkative").await;
}

async fn the_log_is_rotated(cluster: &Cluster) {
    let pod = cluster.pods().get("talkative").await.unwrap();
    let folder = cluster
        .root()
        .join("logs")
        .join(format!("default_talkative_{}", pod.metadata.uid.unwrap()))
        .join("c");
    let started = Instant::now();
    let older = loop {
        let files = std::fs::read_dir(&folder).unwrap().flatten().map(|e| e.path());
        let older: Vec<PathBuf> = files.filter(|f| f.extension().is_some_and(|e| e != "log")).collect();
        if !older.is_empty() {
            break older;
        }
        assert!(started.elapsed() < Duration::from_secs(30), "the log is not rotated");
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    let text = std::fs::read_to_string(&older[0]).unwrap();
    assert!(text.contains("2999 a line that is not short at all"), "the older file has what was said before");
    while !cluster.pods().logs("talkative", &LogParams::default()).await.unwrap().ends_with("more\n") {
        assert!(started.elapsed() < Duration::from_secs(30), "nothing is written after the rotation");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let now = cluster.pods().logs("talkative", &LogParams::default()).await.unwrap();
    assert!(!now.contains("not short"), "what was rotated is not read again");
}

pub async fn a_node_with_too_little_left_ends_pods_and_takes_no_more(cluster: &mut Cluster) {
    cluster.pod("greedy", json!({"containers": [{"name": "c", "command": ["sleep", "1000"]}]})).await;
    cluster
        .pod(
            "modest",
            json!({"containers": [{"name": "c", "command": ["sleep", "1000"],
                "resources": {"requests": {"memory": "1Gi"}}}]}),
        )
        .await;
    cluster.until("greedy", "Running", running).await;
    cluster.until("modest", "Running", running).await;
    // Nobody has this much left.
    cluster.restart_kubelet_with("memory.available<100%".parse().unwrap()).await;
    let pod = cluster.until("greedy", "evicted", |p| evicted(p).is_some()).await;
    let message = evicted(&pod).unwrap_or_default();
    assert!(message.starts_with("The node was low on resource: memory. Threshold quantity: "), "{message}");
    assert!(message.contains("Container c was using "), "{message}");
    assert!(
        evicted(&cluster.pods().get("modest").await.unwrap()).is_none(),
        "it is within what it asked for"
    );
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let conditions = nodes.get("node").await.unwrap().status.unwrap().conditions.unwrap();
    let pressure = conditions.iter().find(|c| c.type_ == "MemoryPressure").unwrap();
    assert_eq!(
        (pressure.status.as_str(), pressure.reason.as_deref()),
        ("True", Some("KubeletHasInsufficientMemory"))
    );
    let events: Api<Event> = Api::default_namespaced(cluster.client.clone());
    let all = events.list(&ListParams::default()).await.unwrap();
    let said = |e: &&Event| e.reason.as_deref() == Some("EvictionThresholdMet");
    let event = all.items.iter().find(said).expect("the node says that it is short");
    assert_eq!(event.message.as_deref(), Some("Attempting to reclaim memory"));
    // Past the scheduler, which keeps away from the node by its taint.
    cluster.pod("late", json!({"nodeName": "node", "containers": [{"name": "c"}]})).await;
    let late = cluster.until("late", "refused", |p| evicted(p).is_some()).await;
    assert_eq!(evicted(&late), Some("Pod was rejected: The node had condition: [MemoryPressure]. "));
    cluster.restart_kubelet_with(trine_kubelet::eviction::Thresholds::default()).await;
    for name in ["greedy", "modest", "late"] {
        cluster.delete(name).await;
    }
    cluster.untainted().await;
}
