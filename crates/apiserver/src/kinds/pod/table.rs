//! How `kubectl get pods` sees a Pod.

use crate::kinds::Column;
use crate::kinds::columns::{age, name, or_none};
use crate::kinds::fields::{is_unset, items, text};
use serde_json::Value;
use trine_objects::{conditions, time};

/// The columns.
pub const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::text("Ready"),
    Column::text("Status"),
    Column::text("Restarts"),
    Column::AGE,
    Column::text("IP").wide(),
    Column::text("Node").wide(),
    Column::text("Nominated Node").wide(),
    Column::text("Readiness Gates").wide(),
];

/// The cells.
pub fn row(pod: &Value, now: i64) -> Vec<Value> {
    let (spec, status) = (&pod["spec"], &pod["status"]);
    let seen = look(pod);
    let restarts = match seen.last_restart {
        Some(at) if seen.restarts > 0 => format!("{} ({} ago)", seen.restarts, time::human(now - at)),
        _ => seen.restarts.to_string(),
    };
    let ip = items(status, "podIPs").first().map_or_else(|| text(status, "podIP"), |ip| text(ip, "ip"));
    vec![
        name(pod),
        format!("{}/{}", seen.ready, seen.total).into(),
        seen.reason.into(),
        restarts.into(),
        age(pod, now),
        or_none(ip),
        or_none(text(spec, "nodeName")),
        or_none(text(status, "nominatedNodeName")),
        or_none(&gates(pod)),
    ]
}

fn gates(pod: &Value) -> String {
    let gates = items(&pod["spec"], "readinessGates");
    let open = gates.iter().filter(|g| conditions::is_true(pod, text(g, "conditionType"))).count();
    if gates.is_empty() { String::new() } else { format!("{open}/{}", gates.len()) }
}

struct Seen {
    ready: usize,
    total: usize,
    reason: String,
    restarts: i64,
    last_restart: Option<i64>,
}

impl Seen {
    fn count_restarts(&mut self, container: &Value) {
        self.restarts += container["restartCount"].as_i64().unwrap_or(0);
        let finished = container["lastState"]["terminated"]["finishedAt"].as_str().and_then(time::parse);
        self.last_restart = self.last_restart.max(finished);
    }
}

fn look(pod: &Value) -> Seen {
    let (spec, status) = (&pod["spec"], &pod["status"]);
    let phase = text(status, "phase");
    let reason = if is_unset(&status["reason"]) { phase } else { text(status, "reason") };
    let gated = conditions::find(pod, "PodScheduled").is_some_and(|c| c["reason"] == "SchedulingGated");
    let reason = if gated { "SchedulingGated" } else { reason };
    let sidecars = items(spec, "initContainers").iter().filter(|c| is_sidecar(c)).count();
    let mut seen = Seen {
        ready: 0,
        total: items(spec, "containers").len() + sidecars,
        reason: reason.to_owned(),
        restarts: 0,
        last_restart: None,
    };
    let initializing = init_containers(pod, &mut seen);
    if !initializing || conditions::is_true(pod, "Initialized") {
        containers(pod, &mut seen);
    }
    if !pod["metadata"]["deletionTimestamp"].is_null() {
        if status["reason"] == "NodeLost" {
            seen.reason = "Unknown".to_owned();
        } else if !matches!(phase, "Succeeded" | "Failed") {
            seen.reason = "Terminating".to_owned();
        }
    }
    seen
}

fn is_sidecar(container: &Value) -> bool {
    container["restartPolicy"] == "Always"
}

/// Goes through the init containers up to the first that is not done; says whether there is one.
fn init_containers(pod: &Value, seen: &mut Seen) -> bool {
    let specs = items(&pod["spec"], "initContainers");
    for (i, container) in items(&pod["status"], "initContainerStatuses").iter().enumerate() {
        seen.count_restarts(container);
        let terminated = &container["state"]["terminated"];
        let sidecar = specs.iter().any(|c| c["name"] == container["name"] && is_sidecar(c));
        if terminated.is_object() && terminated["exitCode"].as_i64().unwrap_or(0) == 0 {
            continue;
        }
        if sidecar && container["started"] == true {
            seen.ready += usize::from(container["ready"] == true);
            continue;
        }
        let waiting = text(&container["state"]["waiting"], "reason");
        seen.reason = if terminated.is_object() {
            format!("Init:{}", ending(terminated))
        } else if !waiting.is_empty() && waiting != "PodInitializing" {
            format!("Init:{waiting}")
        } else {
            format!("Init:{i}/{}", specs.len())
        };
        return true;
    }
    false
}

/// How a container ended: its reason, or the signal or code.
fn ending(terminated: &Value) -> String {
    let (reason, signal) = (text(terminated, "reason"), terminated["signal"].as_i64().unwrap_or(0));
    if !reason.is_empty() {
        reason.to_owned()
    } else if signal != 0 {
        format!("Signal:{signal}")
    } else {
        format!("ExitCode:{}", terminated["exitCode"].as_i64().unwrap_or(0))
    }
}

/// The first container that has something to say gives the reason; only its restarts and those of sidecars count.
fn containers(pod: &Value, seen: &mut Seen) {
    (seen.restarts, seen.last_restart) = (0, None);
    let sidecars = items(&pod["spec"], "initContainers").iter().filter(|c| is_sidecar(c));
    let sidecar_names: Vec<&Value> = sidecars.map(|c| &c["name"]).collect();
    for container in items(&pod["status"], "initContainerStatuses") {
        if sidecar_names.contains(&&container["name"]) {
            seen.count_restarts(container);
        }
    }
    let mut running = false;
    for container in items(&pod["status"], "containerStatuses").iter().rev() {
        seen.count_restarts(container);
        let state = &container["state"];
        if !is_unset(&state["waiting"]["reason"]) {
            seen.reason = text(&state["waiting"], "reason").to_owned();
        } else if state["terminated"].is_object() {
            seen.reason = ending(&state["terminated"]);
        } else if container["ready"] == true && state["running"].is_object() {
            running = true;
            seen.ready += 1;
        }
    }
    if seen.reason == "Completed" && running {
        let ready = conditions::is_true(pod, "Ready");
        seen.reason = if ready { "Running" } else { "NotReady" }.to_owned();
    }
}
