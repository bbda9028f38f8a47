//! `/stats/summary`: what the node, its Pods and their volumes use, as one document.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use jiff::Timestamp;
use serde_json::{Value, json};
use trine_kernel::filesystem;

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
        let each = containers.iter().map(|container| {
            let mut one = use_of(&[*container]);
            one["name"] = container.name.clone().into();
            one
        });
        pod["containers"] = each.collect();
        let volumes = readings.volumes.iter().filter(|v| v.claim.uid == first.uid).map(|v| {
            let mut one = room(&v.room);
            one["name"] = v.claim.volume.clone().into();
            one["pvcRef"] = json!({"name": v.claim.claim, "namespace": v.claim.namespace});
            one
        });
        let volumes: Vec<Value> = volumes.collect();
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
    use super::*;
    use crate::api::metrics::readings::NodeReading;

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
        let readings = Readings {
            node: NodeReading { memory: 100, available: 30, ..NodeReading::default() },
            containers: vec![container("a", 2), container("b", 3)],
            ..Readings::default()
        };
        let document = document("n", &readings);
        assert_eq!(document["node"]["memory"]["workingSetBytes"], 70);
        let pod = &document["pods"][0];
        assert_eq!((&pod["cpu"]["usageCoreNanoSeconds"], &pod["podRef"]["name"]), (&json!(5), &json!("p")));
        assert_eq!(pod["containers"][1]["cpu"]["usageCoreNanoSeconds"], 3);
        assert_eq!(pod["startTime"], "1970-01-01T00:00:07Z");
    }
}
