//! `/stats/summary`: what the node, its Pods and their volumes use, as one document.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use jiff::Timestamp;
use serde_json::{Value, json};
use trine_kernel::filesystem::{self, Room};

use super::metrics::readings::{self, ContainerReading, Readings};
use super::server::Server;

/// `GET /stats/summary`.
pub async fn summary(State(server): State<Server>) -> Response {
    match readings::read(&server).await {
        Ok(readings) => Json(document(&server.config.node_name, &readings)).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.chain()).into_response(),
    }
}

fn time(seconds: i64) -> String {
    Timestamp::from_second(seconds).unwrap_or_default().to_string()
}

fn document(node: &str, readings: &Readings) -> Value {
    let now = time(readings.at.as_second());
    let of_node = &readings.node;
    let room = |room: &filesystem::Usage| {
        json!({
            "time": now,
            "availableBytes": room.available_bytes,
            "capacityBytes": room.total_bytes,
            "usedBytes": room.used_bytes,
            "inodes": room.total_inodes,
            "inodesFree": room.free_inodes,
            "inodesUsed": room.total_inodes.saturating_sub(room.free_inodes),
        })
    };
    let taken = |taken: Room| {
        let of_disk = of_node.disk.as_ref();
        json!({
            "time": now,
            "usedBytes": taken.bytes,
            "inodesUsed": taken.inodes,
            "availableBytes": of_disk.map(|disk| disk.available_bytes),
            "capacityBytes": of_disk.map(|disk| disk.total_bytes),
            "inodes": of_disk.map(|disk| disk.total_inodes),
            "inodesFree": of_disk.map(|disk| disk.free_inodes),
        })
    };
    let use_of = |containers: &[&ContainerReading]| {
        let sum = |value: fn(&ContainerReading) -> u64| containers.iter().map(|c| value(c)).sum::<u64>();
        json!({
            "cpu": {"time": now, "usageCoreNanoSeconds": sum(|c| c.cpu)},
            "memory": {
                "time": now,
                "usageBytes": sum(|c| c.usage),
                "workingSetBytes": sum(|c| c.working_set),
                "rssBytes": sum(|c| c.rss),
                "pageFaults": sum(|c| c.faults.0),
                "majorPageFaults": sum(|c| c.faults.1),
            },
            "startTime": time(containers.iter().map(|c| c.created).min().unwrap_or_default() / 1_000_000_000),
        })
    };
    let pods = readings.pods().into_values().filter_map(|containers| {
        let first = *containers.first()?;
        let mut pod = use_of(&containers);
        pod["podRef"] = json!({"name": first.pod, "namespace": first.namespace, "uid": first.uid});
        let files = readings.files.get(&first.uid);
        if let Some(used) = files {
            pod["ephemeral-storage"] = taken(used.disk());
        }
        let each = containers.iter().map(|container| {
            let mut one = use_of(&[*container]);
            one["name"] = container.name.clone().into();
            if let Some(of_files) = files.and_then(|used| used.containers.get(&container.name)) {
                one["rootfs"] = taken(of_files.root);
                one["logs"] = taken(of_files.logs);
            }
            one
        });
        pod["containers"] = each.collect();
        let volumes = readings.volumes.iter().filter(|v| v.claim.uid == first.uid).map(|v| {
            let mut one = room(&v.room);
            one["name"] = v.claim.volume.clone().into();
            one["pvcRef"] = json!({"name": v.claim.claim, "namespace": v.claim.namespace});
            one
        });
        let own = files.iter().flat_map(|used| &used.volumes).map(|(name, room)| {
            let mut one = taken(*room);
            one["name"] = name.clone().into();
            one
        });
        let volumes: Vec<Value> = volumes.chain(own).collect();
        if !volumes.is_empty() {
            pod["volume"] = volumes.into();
        }
        Some(pod)
    });
    let pods: Vec<Value> = pods.collect();
    let mut whole = json!({
        "node": {
            "nodeName": node,
            "startTime": time(i64::try_from(of_node.booted).unwrap_or_default()),
            "cpu": {"time": now, "usageCoreNanoSeconds": of_node.cpu},
            "memory": {
                "time": now,
                "availableBytes": of_node.available,
                "usageBytes": of_node.memory.saturating_sub(of_node.available),
                "workingSetBytes": of_node.memory.saturating_sub(of_node.available),
            },
        },
        "pods": pods,
    });
    if let Some(disk) = &of_node.disk {
        whole["node"]["fs"] = room(disk);
    }
    whole
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::api::metrics::readings::NodeReading;
    use crate::eviction::usage::{ContainerUse, PodUse};

    #[test]
    fn a_pod_is_the_sum_of_its_containers() {
        let container = |name: &str, cpu| ContainerReading {
            name: name.into(),
            pod: "p".into(),
            namespace: "ns".into(),
            uid: "u".into(),
            cpu,
            created: 7_000_000_000,
            ..ContainerReading::default()
        };
        let room = |bytes| Room { bytes, inodes: 1 };
        let used = PodUse {
            pod: Arc::default(),
            containers: [("a".to_owned(), ContainerUse { memory: 0, root: room(7), logs: room(1) })].into(),
            volumes: [("v".to_owned(), room(30))].into(),
        };
        let readings = Readings {
            node: NodeReading { memory: 100, available: 30, ..NodeReading::default() },
            containers: vec![container("a", 2), container("b", 3)],
            files: [("u".to_owned(), used)].into(),
            ..Readings::default()
        };
        let document = document("n", &readings);
        assert_eq!(document["node"]["memory"]["workingSetBytes"], 70);
        let pod = &document["pods"][0];
        assert_eq!((&pod["cpu"]["usageCoreNanoSeconds"], &pod["podRef"]["name"]), (&json!(5), &json!("p")));
        assert_eq!(pod["containers"][1]["cpu"]["usageCoreNanoSeconds"], 3);
        assert_eq!(pod["ephemeral-storage"]["usedBytes"], 38);
        assert_eq!((&pod["volume"][0]["name"], &pod["volume"][0]["inodesUsed"]), (&json!("v"), &json!(1)));
        let of_a = &pod["containers"][0];
        assert_eq!((&of_a["rootfs"]["usedBytes"], &of_a["logs"]["usedBytes"]), (&json!(7), &json!(1)));
        assert_eq!(pod["startTime"], "1970-01-01T00:00:07Z");
    }
}
