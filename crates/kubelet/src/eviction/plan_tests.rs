use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::eviction::usage::ContainerUse;
use trine_kernel::filesystem::Room;

const MIB: u64 = 1 << 20;

fn pod(name: &str, spec: Value) -> Arc<Pod> {
    let mut whole = json!({"containers": [{"name": "c"}]});
    for (key, value) in spec.as_object().unwrap() {
        whole[key] = value.clone();
    }
    Arc::new(serde_json::from_value(json!({"metadata": {"name": name, "uid": name}, "spec": whole})).unwrap())
}

fn used(pod: Arc<Pod>, memory: u64, disk: u64, volumes: &[(&str, u64)]) -> PodUse {
    let room = |bytes| Room { bytes, inodes: bytes / MIB };
    let container = ContainerUse { memory, root: room(disk), logs: Room::default() };
    let volumes = volumes.iter().map(|(name, bytes)| ((*name).to_owned(), room(*bytes)));
    PodUse { pod, containers: BTreeMap::from([("c".to_owned(), container)]), volumes: volumes.collect() }
}

fn container(resources: Value) -> Value {
    json!({"containers": [{"name": "c", "resources": resources}]})
}

#[test]
fn a_pod_leaves_for_the_limit_that_it_is_over() {
    let volume = |limit: &str| json!({"volumes": [{"name": "v", "emptyDir": {"sizeLimit": limit}}]});
    let most = |limit: &str| container(json!({"limits": {"ephemeral-storage": limit}}));
    let two = json!({"containers": [
        {"name": "c", "resources": {"limits": {"ephemeral-storage": "1Mi"}}},
        {"name": "d", "resources": {"limits": {"ephemeral-storage": "5Mi"}}}]});
    let rows: [(&str, Value, u64, u64, &str); 9] = [
        ("no limits", json!({}), 900 * MIB, 900 * MIB, ""),
        ("a volume within its limit", volume("2Mi"), 9 * MIB, 2 * MIB, ""),
        (
            "a full volume",
            volume("2Mi"),
            0,
            3 * MIB,
            "Usage of EmptyDir volume \"v\" exceeds the limit \"2Mi\". ",
        ),
        ("a volume without end", volume("0"), 0, 3 * MIB, ""),
        ("a container within its limit", most("4Mi"), 2 * MIB, 2 * MIB, ""),
        (
            "a container and its volume together",
            most("4Mi"),
            2 * MIB,
            3 * MIB,
            "Pod ephemeral local storage usage exceeds the total limit of containers 4Mi. ",
        ),
        (
            "one container of two",
            two.clone(),
            2 * MIB,
            0,
            "Container c exceeded its local ephemeral storage limit \"1Mi\". ",
        ),
        ("no container of two", two, MIB, 4 * MIB, ""),
        (
            "critical",
            json!({"priority": CRITICAL, "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}]}),
            0,
            9 * MIB,
            "",
        ),
    ];
    for (name, spec, disk, volume, message) in rows {
        let evicted = over_their_limits(&[used(pod("p", spec), 0, disk, &[("v", volume)])]);
        let messages: Vec<&str> = evicted.iter().map(|e| e.message.as_str()).collect();
        let expected: Vec<&str> = Some(message).filter(|m| !m.is_empty()).into_iter().collect();
        assert_eq!(messages, expected, "{name}");
    }
}

#[test]
fn only_pods_with_limits_are_measured() {
    assert!(!has_limits(&pod("p", json!({"volumes": [{"name": "v", "emptyDir": {}}]}))));
    assert!(has_limits(&pod("p", json!({"volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}]}))));
    assert!(has_limits(&pod("p", container(json!({"limits": {"ephemeral-storage": "1Gi"}})))));
    assert!(!has_limits(&pod("p", container(json!({"limits": {"memory": "1Gi"}})))));
}

#[test]
fn who_takes_more_than_it_asked_for_leaves_first_then_by_priority_then_by_excess() {
    let asks = |name: &str, memory: &str, priority: i32| {
        let mut spec = container(json!({"requests": {"memory": memory}}));
        spec["priority"] = priority.into();
        pod(name, spec)
    };
    let mut pods = vec![
        used(asks("within", "300Mi", 0), 200 * MIB, 0, &[]),
        used(asks("important", "100Mi", 1000), 900 * MIB, 0, &[]),
        used(asks("little above", "100Mi", 5), 101 * MIB, 0, &[]),
        used(asks("far above", "100Mi", 5), 400 * MIB, 0, &[]),
        used(asks("critical", "0", CRITICAL), 900 * MIB, 0, &[]),
    ];
    let mut order = Vec::new();
    while let Some(eviction) = first(Signal::Memory, 0, Left { all: 0, left: 0 }, &pods) {
        pods.retain(|used| spec::uid(&used.pod) != eviction.uid);
        order.push(eviction.uid);
    }
    assert_eq!(order, ["far above", "little above", "important", "within"]);
}

#[test]
fn the_disk_is_taken_by_containers_and_volumes_and_inodes_by_their_number() {
    let pods = [
        used(
            pod("few large files", json!({"volumes": [{"name": "v", "emptyDir": {}}]})),
            0,
            MIB,
            &[("v", 7 * MIB)],
        ),
        used(
            pod("in memory", json!({"volumes": [{"name": "v", "emptyDir": {"medium": "Memory"}}]})),
            0,
            MIB,
            &[("v", 99 * MIB)],
        ),
        PodUse {
            containers: BTreeMap::from([(
                "c".to_owned(),
                ContainerUse { logs: Room { bytes: MIB, inodes: 5000 }, ..ContainerUse::default() },
            )]),
            ..used(pod("many small files", json!({})), 0, 0, &[])
        },
    ];
    let uid = |signal| first(signal, 1, Left { all: 2, left: 0 }, &pods).unwrap().uid;
    assert_eq!(uid(Signal::Disk), "few large files");
    assert_eq!(uid(Signal::Inodes), "many small files");
    assert!(first(Signal::Disk, 1, Left { all: 2, left: 0 }, &[]).is_none());
}

#[test]
fn the_message_says_what_was_short_and_who_took_it() {
    let pod = pod("p", container(json!({"requests": {"memory": "50Mi"}})));
    let seen = Left { all: 1 << 34, left: 90 * MIB };
    let eviction = first(Signal::Memory, 100 * MIB, seen, &[used(pod.clone(), 80 * MIB, 0, &[])]).unwrap();
    assert_eq!(
        eviction.message,
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 90Mi. Container c was using \
         80Mi, request is 50Mi, has larger consumption of memory. "
    );
    let pids = first(Signal::Pids, 100, Left { all: 500, left: 7 }, &[used(pod, 80 * MIB, 0, &[])]).unwrap();
    assert_eq!(pids.message, "The node was low on resource: pids. Threshold quantity: 100, available: 7. ");
}

#[test]
fn a_node_under_pressure_takes_only_who_can_stand_it() {
    let tolerant =
        json!({"tolerations": [{"key": "node.kubernetes.io/memory-pressure", "operator": "Exists"}]});
    let memory = ["MemoryPressure"].as_slice();
    let both = ["MemoryPressure", "DiskPressure"].as_slice();
    let rows: [(&str, &[&str], Value, bool, &str); 7] = [
        ("no pressure", &[], json!({}), true, ""),
        ("memory, asks for some", memory, json!({}), false, ""),
        ("memory, asks for none", memory, json!({}), true, "The node had condition: [MemoryPressure]. "),
        ("memory, tolerates it", memory, tolerant.clone(), true, ""),
        ("disk", &["DiskPressure"], json!({}), false, "The node had condition: [DiskPressure]. "),
        (
            "both, tolerates one",
            both,
            tolerant,
            true,
            "The node had condition: [MemoryPressure DiskPressure]. ",
        ),
        ("critical", both, json!({"priority": CRITICAL}), true, ""),
    ];
    for (name, pressures, spec, best_effort, expected) in rows {
        let why = keeps_out(pressures, &pod("p", spec), best_effort);
        assert_eq!(why.unwrap_or_default(), expected, "{name}");
    }
}
