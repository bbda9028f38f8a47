//! `/metrics` and what is below it.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use trine_contracts::cri;

use super::families::{self, Own};
use super::readings;
use crate::api::server::Server;
use crate::error::KubeletError;
use crate::node::object::VERSION;
use crate::pod::spec;
use crate::resize::{Numbers, plan};

/// The form's name.
const FORM: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Ticks of `/proc/self/stat` in a second.
const TICKS: u64 = 100;
/// Bytes of a page in `/proc/self/statm`.
const PAGE: u64 = 4096;

fn answer(text: Result<String, KubeletError>) -> Response {
    match text {
        Ok(text) => ([(header::CONTENT_TYPE, FORM)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.chain()).into_response(),
    }
}

/// The kubelet itself, and the room in volumes.
pub async fn own(State(server): State<Server>) -> Response {
    answer(tell_own(&server).await)
}

async fn tell_own(server: &Server) -> Result<String, KubeletError> {
    let readings = readings::rooms(server).await;
    let (sandboxes, containers) =
        tokio::try_join!(server.runtime.sandboxes(None), server.runtime.containers(None))?;
    let ready = sandboxes.iter().filter(|s| s.state == cri::PodSandboxState::SandboxReady as i32).count();
    let mut states = BTreeMap::new();
    for container in &containers {
        let state = match cri::ContainerState::try_from(container.state) {
            Ok(cri::ContainerState::ContainerCreated) => "created",
            Ok(cri::ContainerState::ContainerRunning) => "running",
            Ok(cri::ContainerState::ContainerExited) => "exited",
            _ => "unknown",
        };
        *states.entry(state).or_default() += 1;
    }
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let (cpu, since_boot) = times(&read("/proc/self/stat"));
    let pages = read("/proc/self/statm");
    let resident = pages.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok()).unwrap_or_default();
    let own = Own {
        node: server.config.node_name.clone(),
        version: VERSION.to_owned(),
        running_pods: ready as u64,
        containers: states,
        desired_pods: server.pods.all().len() as u64,
        cpu,
        resident: resident * PAGE,
        started: readings.node.booted + since_boot,
        files: std::fs::read_dir("/proc/self/fd").map(Iterator::count).unwrap_or_default() as u64,
    };
    Ok(families::own(&own, &readings))
}

/// Of `/proc/self/stat`: processor time, nanoseconds; start, seconds since boot.
fn times(stat: &str) -> (u64, u64) {
    // The name in brackets may have spaces in it.
    let fields: Vec<u64> = stat
        .rsplit_once(')')
        .map(|(_, rest)| rest.split_whitespace().map(|n| n.parse().unwrap_or_default()).collect())
        .unwrap_or_default();
    // proc(5) counts from 1; the first two are before the bracket.
    let field = |number: usize| fields.get(number - 3).copied().unwrap_or_default();
    ((field(14) + field(15)) * (1_000_000_000 / TICKS), field(22) / TICKS)
}

/// What the node, its Pods and its containers use.
pub async fn resource(State(server): State<Server>) -> Response {
    answer(readings::usage(&server).await.map(|readings| families::resource(&readings)))
}

/// The same in cAdvisor's names.
pub async fn cadvisor(State(server): State<Server>) -> Response {
    let limits: BTreeMap<(String, String), Numbers> = server
        .pods
        .all()
        .iter()
        .flat_map(|pod| {
            let of_pod = plan::numbers(pod, server.machine.memory, server.machine.cgroup_2);
            let uid = spec::uid(pod).to_owned();
            of_pod.into_iter().map(move |(name, numbers)| ((uid.clone(), name), numbers))
        })
        .collect();
    let readings = readings::usage(&server).await;
    answer(readings.map(|readings| families::cadvisor(&readings, &limits, server.machine.cpus)))
}

/// How often each probe said what.
pub async fn probes(State(server): State<Server>) -> Response {
    answer(Ok(families::probes(&server.probes.counts())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_found_behind_a_name_with_brackets() {
        let stat = "42 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 9 0 700 0 0";
        assert_eq!(times(stat), (2_000_000_000, 7));
        assert_eq!(times(""), (0, 0));
    }
}
