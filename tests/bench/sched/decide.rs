//! How long a decision takes by itself, in this process: no API server, no binding.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use trine_scheduler::cache::{Cache, Change};
use trine_scheduler::framework::{Decision, attempt};
use trine_scheduler::profile::{Config, Profile};
use trine_typed::k8s_openapi::api::core::v1::{Node, Pod};

use crate::Size;
use crate::load::Kind;
use crate::table::Row;

const NOW: Duration = Duration::ZERO;

/// Decides for as many Pods of a kind as are measured with the server, too.
pub fn run(size: &Size, kind: Kind, pods: u32) -> anyhow::Result<Row> {
    let profile = Profile::default();
    let mut cache = Cache::new(&Config::default());
    for n in 0..size.nodes {
        let name = format!("n{n:05}");
        let labels =
            json!({"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": format!("z{}", n % 3)});
        let node: Node = serde_json::from_value(json!({"metadata": {"name": name, "labels": labels},
            "status": {"allocatable": {"cpu": "4", "memory": "32Gi", "pods": "110"}}}))?;
        cache.apply([Change::Node((None, Some(Arc::new(node))))], NOW);
    }
    for n in 0..pods {
        let mut pod = kind.pod(n, "default-scheduler", size.nodes);
        pod["metadata"]["uid"] = n.to_string().into();
        pod["metadata"]["namespace"] = "d".into();
        let pod: Pod = serde_json::from_value(pod)?;
        cache.apply([Change::Pod((None, Some(Arc::new(pod))))], NOW);
    }
    let (mut turn, mut placed) = (0, 0);
    let since = Instant::now();
    while let Some(pod) = cache.queue.next(NOW) {
        turn += 1;
        cache.snapshot.prepare(&pod, &profile);
        let attempt = attempt(&pod, &cache.snapshot, &profile, turn);
        let nodes = cache.snapshot.nodes.len().max(1);
        cache.snapshot.start = (cache.snapshot.start + attempt.looked_at) % nodes;
        match attempt.decision {
            Decision::Place { node, .. } => {
                cache.assume(&pod, &node, &Default::default());
                placed += 1;
            }
            _ => cache.set_aside(pod.uid(), attempt.rejected_by, NOW),
        }
    }
    let rate = f64::from(pods) / since.elapsed().as_secs_f64();
    anyhow::ensure!(placed == pods, "only {placed} of {pods} Pods {} found a node", kind.name());
    Ok(Row::figure(&format!("decisions alone, {pods} Pods {}", kind.name()), rate, "Pods/s"))
}
