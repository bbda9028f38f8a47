//! The Pod's phase, from its containers' statuses; upstream's rules.

use trine_typed::k8s_openapi::api::core::v1::{ContainerStatus, Pod};

use crate::pod::spec::{self, Restart};

#[derive(Default)]
struct Count {
    running: usize,
    waiting: usize,
    stopped: usize,
    succeeded: usize,
    unknown: usize,
}

/// `Pending`, `Running`, `Succeeded` or `Failed`.
#[must_use]
pub fn phase(pod: &Pod, init: &[ContainerStatus], main: &[ContainerStatus]) -> &'static str {
    let policy = spec::restart(pod);
    let mut pending_init = 0;
    for container in spec::init_containers(pod) {
        let status = init.iter().find(|s| s.name == container.name);
        if spec::is_sidecar(container) {
            if !status.is_some_and(|s| s.started.unwrap_or_default() || is_terminated(s)) {
                pending_init += 1;
            }
            continue;
        }
        let code = status.and_then(exit_code);
        let last = status.and_then(last_exit_code);
        match (code, last) {
            (Some(0), _) => {}
            (Some(_), _) | (None, Some(1..)) if policy == Restart::Never => return "Failed",
            _ => pending_init += 1,
        }
    }
    let count = count(pod, main);
    // Once a main container ran, the init containers are past, whatever is left of their records.
    let begun = count.running + count.stopped > 0;
    if (pending_init > 0 && !begun) || count.waiting > 0 {
        return "Pending";
    }
    match policy {
        _ if count.running > 0 && count.unknown == 0 => "Running",
        _ if count.stopped == 0 || count.unknown > 0 => "Pending",
        Restart::Always => "Running",
        _ if count.stopped == count.succeeded => "Succeeded",
        Restart::Never => "Failed",
        Restart::OnFailure => "Running",
    }
}

fn count(pod: &Pod, main: &[ContainerStatus]) -> Count {
    let mut count = Count::default();
    for container in spec::containers(pod) {
        let Some(status) = main.iter().find(|s| s.name == container.name) else {
            count.unknown += 1;
            continue;
        };
        let state = status.state.as_ref();
        if state.is_some_and(|s| s.running.is_some()) {
            count.running += 1;
        } else if let Some(code) = exit_code(status) {
            count.stopped += 1;
            count.succeeded += usize::from(code == 0);
        } else if last_exit_code(status).is_some() {
            count.stopped += 1;
        } else if state.is_some_and(|s| s.waiting.is_some()) {
            count.waiting += 1;
        } else {
            count.unknown += 1;
        }
    }
    count
}

fn is_terminated(status: &ContainerStatus) -> bool {
    exit_code(status).is_some()
}

fn exit_code(status: &ContainerStatus) -> Option<i32> {
    Some(status.state.as_ref()?.terminated.as_ref()?.exit_code)
}

fn last_exit_code(status: &ContainerStatus) -> Option<i32> {
    Some(status.last_state.as_ref()?.terminated.as_ref()?.exit_code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn statuses(states: &[(&str, Value)]) -> Vec<ContainerStatus> {
        let one = |(name, state): &(&str, Value)| {
            serde_json::from_value(json!({"name": name, "image": "", "imageID": "", "ready": false,
                "restartCount": 0, "state": state["state"], "lastState": state["last"], "started": state["started"]}))
            .unwrap()
        };
        states.iter().map(one).collect()
    }

    #[test]
    fn phases_follow_upstreams_table() {
        let running = || json!({"state": {"running": {}}, "started": true});
        let waiting = || json!({"state": {"waiting": {"reason": "x"}}});
        let exit = |code: i32| json!({"state": {"terminated": {"exitCode": code}}});
        let crashed =
            || json!({"state": {"waiting": {"reason": "x"}}, "last": {"terminated": {"exitCode": 1}}});
        type States = Vec<(&'static str, Value)>;
        let rows: Vec<(&str, &str, States, States, &str)> = vec![
            ("new", "Always", vec![], vec![("a", waiting()), ("b", waiting())], "Pending"),
            ("one up", "Always", vec![], vec![("a", running()), ("b", waiting())], "Pending"),
            ("both up", "Always", vec![], vec![("a", running()), ("b", running())], "Running"),
            ("one crashed", "Always", vec![], vec![("a", running()), ("b", crashed())], "Running"),
            ("both crashed", "Always", vec![], vec![("a", crashed()), ("b", crashed())], "Running"),
            ("done, Always", "Always", vec![], vec![("a", exit(0)), ("b", exit(0))], "Running"),
            ("done, Never", "Never", vec![], vec![("a", exit(0)), ("b", exit(0))], "Succeeded"),
            ("failed, Never", "Never", vec![], vec![("a", exit(0)), ("b", exit(1))], "Failed"),
            ("half, Never", "Never", vec![], vec![("a", exit(1)), ("b", running())], "Running"),
            ("failed, OnFailure", "OnFailure", vec![], vec![("a", exit(0)), ("b", exit(1))], "Running"),
            ("done, OnFailure", "OnFailure", vec![], vec![("a", exit(0)), ("b", exit(0))], "Succeeded"),
            (
                "init runs",
                "Always",
                vec![("i", running())],
                vec![("a", waiting()), ("b", waiting())],
                "Pending",
            ),
            (
                "init failed, Never",
                "Never",
                vec![("i", exit(1))],
                vec![("a", waiting()), ("b", waiting())],
                "Failed",
            ),
            (
                "init failed, Always",
                "Always",
                vec![("i", exit(1))],
                vec![("a", waiting()), ("b", waiting())],
                "Pending",
            ),
            (
                "init done",
                "Always",
                vec![("i", exit(0))],
                vec![("a", running()), ("b", running())],
                "Running",
            ),
        ];
        for (name, policy, init, main, expected) in rows {
            let names =
                |list: &[(&str, Value)]| list.iter().map(|(n, _)| json!({"name": n})).collect::<Vec<_>>();
            let pod: Pod = serde_json::from_value(json!({"spec": {"restartPolicy": policy,
                "initContainers": names(&init), "containers": names(&main)}}))
            .unwrap();
            assert_eq!(phase(&pod, &statuses(&init), &statuses(&main)), expected, "{name}");
        }
    }
}
