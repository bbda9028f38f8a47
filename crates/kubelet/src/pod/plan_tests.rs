//! Tables of situations and what follows from them.

use serde_json::{Value, json};

use super::*;
use crate::pod::memory::{Failure, Verdict};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

const NOW: i64 = 1_000_000;

fn pod(policy: &str, init: Value, main: Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": "p", "namespace": "n", "uid": "u"},
        "spec": {"restartPolicy": policy, "initContainers": init, "containers": main},
    }))
    .unwrap()
}

fn one_container(policy: &str) -> Pod {
    pod(policy, json!([]), json!([{"name": "c", "image": "i"}]))
}

fn ready(attempt: u32) -> SandboxView {
    SandboxView {
        id: format!("s{attempt}"),
        attempt,
        ready: true,
        ips: vec!["10.0.0.2".into()],
        ..Default::default()
    }
}

fn dead(attempt: u32) -> SandboxView {
    SandboxView { ready: false, ..ready(attempt) }
}

fn view(name: &str, attempt: u32, state: RunState, exit_code: i32) -> ContainerView {
    ContainerView {
        id: format!("{name}{attempt}"),
        name: name.into(),
        sandbox: "s0".into(),
        attempt,
        state,
        exit_code,
        finished_at: (NOW - 1) * 1_000_000_000,
        ..Default::default()
    }
}

struct Case {
    pod: Pod,
    observed: Observed,
    memory: Memory,
    verdicts: Verdicts,
    numbers: BTreeMap<String, Numbers>,
    volumes: bool,
    network: bool,
    stopping: Option<i64>,
}

impl Case {
    fn new(pod: Pod, sandboxes: Vec<SandboxView>, containers: Vec<ContainerView>) -> Self {
        let mut observed = Observed { sandboxes, containers };
        observed.sort();
        Self {
            pod,
            observed,
            memory: Memory::default(),
            verdicts: Verdicts::new(),
            numbers: BTreeMap::new(),
            volumes: true,
            network: true,
            stopping: None,
        }
    }

    fn plan(&self) -> Plan {
        plan(&Situation {
            pod: &self.pod,
            observed: &self.observed,
            memory: &self.memory,
            verdicts: &self.verdicts,
            numbers: &self.numbers,
            volumes_ready: self.volumes,
            network_ready: self.network,
            stopping: self.stopping,
            now: at(NOW),
        })
    }

    /// Actions in short: `start c0`, `kill c0`, `sandbox 1`, ...
    fn short(&self) -> Vec<String> {
        self.plan().actions.iter().map(short).collect()
    }
}

fn short(action: &Action) -> String {
    match action {
        Action::CreateSandbox { attempt } => format!("sandbox {attempt}"),
        Action::StopSandbox { id } => format!("stop {id}"),
        Action::RemoveSandbox { id } => format!("remove {id}"),
        Action::AnnounceSandboxChanged => "changed".into(),
        Action::AnnounceNetworkNotReady => "no network".into(),
        Action::Start { container, attempt, restart, .. } => {
            format!("start {container}{attempt}{}", if *restart { " again" } else { "" })
        }
        Action::AnnounceCrash { id, .. } => format!("crash {id}"),
        Action::AnnouncePullBackOff { container } => format!("pull back-off {container}"),
        Action::Kill { id, .. } => format!("kill {id}"),
        Action::Resize { id, .. } => format!("resize {id}"),
        Action::RemoveContainer { id } => format!("rm {id}"),
        Action::KillPod { grace } => format!("kill all {grace}"),
    }
}

#[test]
fn a_sandbox_is_made_when_it_is_needed_and_possible() {
    use RunState::{Exited, Running};
    let always = || one_container("Always");
    let rows: Vec<(&str, Case, &[&str])> = vec![
        ("new", Case::new(always(), vec![], vec![]), &["sandbox 0"]),
        ("volumes missing", Case { volumes: false, ..Case::new(always(), vec![], vec![]) }, &[]),
        ("network missing", Case { network: false, ..Case::new(always(), vec![], vec![]) }, &["no network"]),
        (
            "failed attempt",
            Case::new(always(), vec![dead(0)], vec![]),
            &["stop s0", "remove s0", "sandbox 1"],
        ),
        (
            "died with a container",
            Case::new(always(), vec![dead(0)], vec![view("c", 0, Exited, 137)]),
            &["changed", "sandbox 1"],
        ),
        (
            "died, container still runs",
            Case::new(always(), vec![dead(0)], vec![view("c", 0, Running, 0)]),
            &["changed", "kill c0", "sandbox 1"],
        ),
        ("never again", Case::new(one_container("Never"), vec![dead(0)], vec![view("c", 0, Exited, 1)]), &[]),
        (
            "success needs no second sandbox",
            Case::new(one_container("OnFailure"), vec![dead(0)], vec![view("c", 0, Exited, 0)]),
            &[],
        ),
        (
            "no address",
            Case::new(always(), vec![SandboxView { ips: vec![], ..ready(0) }], vec![]),
            &["stop s0", "remove s0", "sandbox 1"],
        ),
        ("two ready", Case::new(always(), vec![ready(1), ready(0)], vec![]), &["stop s0", "start c0"]),
    ];
    for (name, case, expected) in rows {
        assert_eq!(case.short(), *expected, "{name}");
    }
}

#[test]
fn host_network_pods_start_without_a_network() {
    let mut pod = one_container("Always");
    pod.spec.as_mut().unwrap().host_network = Some(true);
    let case = Case { network: false, ..Case::new(pod, vec![], vec![]) };
    assert_eq!(case.short(), ["sandbox 0"]);
}

#[test]
fn a_container_starts_restarts_or_stays_down_by_policy_and_exit() {
    use RunState::{Created, Exited, Running, Unknown};
    type Row = (&'static str, &'static str, Option<(RunState, i32)>, &'static [&'static str]);
    let rows: Vec<Row> = vec![
        ("missing", "Never", None, &["start c0"]),
        ("running", "Always", Some((Running, 0)), &[]),
        ("never started", "Always", Some((Created, 0)), &["start c1"]),
        ("unknown", "Always", Some((Unknown, 0)), &["start c1"]),
        ("Always, 0", "Always", Some((Exited, 0)), &["start c1 again"]),
        ("Always, 1", "Always", Some((Exited, 1)), &["start c1 again"]),
        ("OnFailure, 0", "OnFailure", Some((Exited, 0)), &[]),
        ("OnFailure, 1", "OnFailure", Some((Exited, 1)), &["start c1 again"]),
        ("Never, 0", "Never", Some((Exited, 0)), &[]),
        ("Never, 1", "Never", Some((Exited, 1)), &[]),
    ];
    for (name, policy, state, expected) in rows {
        let containers = state.map(|(state, code)| view("c", 0, state, code)).into_iter().collect();
        let case = Case::new(one_container(policy), vec![ready(0)], containers);
        assert_eq!(case.short(), *expected, "{name}");
    }
}

#[test]
fn a_crash_loop_waits_and_says_so_once() {
    let crashed = view("c", 3, RunState::Exited, 1);
    let mut case = Case::new(one_container("Always"), vec![ready(0)], vec![crashed]);
    case.memory.crashes.next("c", at(NOW - 20));
    assert_eq!(case.short(), ["crash c3"]);
    assert_eq!(case.plan().wake, Some(at(NOW + 9)));
    case.memory.announced.insert("c3".into(), at(NOW));
    assert!(case.short().is_empty());
    case.observed.containers[0].finished_at = (NOW - 11) * 1_000_000_000;
    assert_eq!(case.short(), ["start c4 again"]);
}

#[test]
fn a_failed_pull_is_shown_then_backs_off_then_is_tried_again() {
    let failure = |at_: i64, retry: i64, announced| Failure {
        reason: "ErrImagePull".into(),
        message: String::new(),
        image: Some("i".into()),
        at: at(at_),
        retry: at(retry),
        announced,
    };
    let rows = [
        ("just failed", failure(NOW, NOW + 10, false), vec![], Some(NOW + 1)),
        ("a while ago", failure(NOW - 5, NOW + 5, false), vec!["pull back-off c"], Some(NOW + 5)),
        ("said", failure(NOW - 5, NOW + 5, true), vec![], Some(NOW + 5)),
        ("over", failure(NOW - 10, NOW, true), vec!["start c0"], None),
    ];
    for (name, failure, expected, wake) in rows {
        let mut case = Case::new(one_container("Always"), vec![ready(0)], vec![]);
        case.memory.failures.insert("c".into(), failure);
        assert_eq!(case.short(), expected, "{name}");
        assert_eq!(case.plan().wake, wake.map(at), "{name}");
    }
}

#[test]
fn init_containers_run_one_by_one_and_sidecars_stay() {
    use RunState::{Exited, Running};
    let init = json!([{"name": "a"}, {"name": "side", "restartPolicy": "Always"}, {"name": "b"}]);
    let make = |containers: Vec<ContainerView>| {
        Case::new(pod("Always", init.clone(), json!([{"name": "c"}])), vec![ready(0)], containers)
    };
    let a = || view("a", 0, Exited, 0);
    let side = || view("side", 0, Running, 0);
    let b = || view("b", 0, Exited, 0);
    let rows: Vec<(&str, Case, &[&str])> = vec![
        ("first", make(vec![]), &["start a0"]),
        ("first runs", make(vec![view("a", 0, Running, 0)]), &[]),
        ("first failed", make(vec![view("a", 0, Exited, 1)]), &["start a1 again"]),
        ("sidecar next", make(vec![a()]), &["start side0"]),
        ("sidecar up", make(vec![a(), side()]), &["start b0"]),
        ("all done", make(vec![a(), side(), b()]), &["start c0"]),
        (
            "sidecar died later",
            make(vec![a(), view("side", 0, Exited, 0), b(), view("c", 0, Running, 0)]),
            &["start side1 again"],
        ),
        ("init records gone", make(vec![side(), view("c", 0, Running, 0)]), &[]),
    ];
    for (name, case, expected) in rows {
        assert_eq!(case.short(), *expected, "{name}");
    }
    let mut slow = make(vec![a(), side()]);
    slow.verdicts.insert("side0".into(), Verdict { started: Some(false), ..Default::default() });
    assert!(slow.short().is_empty(), "a sidecar holds the next one up until it has started");
    let failed = Case::new(
        pod("Never", json!([{"name": "a"}]), json!([{"name": "c"}])),
        vec![ready(0)],
        vec![view("a", 0, Exited, 1)],
    );
    assert!(failed.short().is_empty(), "a failed init container of a Pod that never restarts ends it");
}

#[test]
fn changed_or_unhealthy_containers_are_killed() {
    let mut case =
        Case::new(one_container("Always"), vec![ready(0)], vec![view("c", 0, RunState::Running, 0)]);
    case.verdicts.insert("c0".into(), Verdict { failed: Some(ProbeKind::Liveness), ..Default::default() });
    let Action::Kill { why, .. } = &case.plan().actions[0] else { panic!("no kill") };
    assert_eq!(why, "Container c failed liveness probe, will be restarted");
    case.verdicts.clear();
    case.observed.containers[0].hash = "another".into();
    let Action::Kill { why, .. } = &case.plan().actions[0] else { panic!("no kill") };
    assert_eq!(why, "Container c definition changed, will be restarted");
}

#[test]
fn stopping_kills_then_stops_the_sandbox_then_is_done() {
    use RunState::{Created, Exited, Running};
    type Row = (&'static str, Vec<SandboxView>, Vec<ContainerView>, &'static [&'static str], bool);
    let rows: Vec<Row> = vec![
        ("running", vec![ready(0)], vec![view("c", 0, Running, 0)], &["kill all 7"], false),
        ("exited", vec![ready(0)], vec![view("c", 0, Exited, 0)], &["stop s0"], false),
        ("never started", vec![ready(0)], vec![view("c", 0, Created, 0)], &["stop s0"], false),
        ("stopped", vec![dead(0)], vec![view("c", 0, Exited, 0)], &[], true),
        ("nothing", vec![], vec![], &[], true),
    ];
    for (name, sandboxes, containers, expected, stopped) in rows {
        let case = Case { stopping: Some(7), ..Case::new(one_container("Always"), sandboxes, containers) };
        assert_eq!(case.short(), *expected, "{name}");
        assert_eq!(case.plan().stopped, stopped, "{name}");
    }
}

#[test]
fn one_dead_container_and_its_sandbox_are_kept_for_the_previous_log() {
    use RunState::{Exited, Running};
    let mut containers = vec![view("c", 2, Running, 0), view("c", 1, Exited, 1), view("c", 0, Exited, 1)];
    containers[0].sandbox = "s1".into();
    let case = Case::new(one_container("Always"), vec![ready(1), dead(0)], containers.clone());
    assert_eq!(case.short(), ["rm c0"]);
    containers[1].sandbox = "s1".into();
    let case = Case::new(one_container("Always"), vec![ready(1), dead(0)], containers);
    assert_eq!(case.short(), ["rm c0", "remove s0"]);
}

#[test]
fn the_restart_count_survives_the_loss_of_the_runtimes_records() {
    let mut pod = one_container("Always");
    pod.status =
        serde_json::from_value(json!({"containerStatuses": [{"name": "c", "image": "i", "imageID": "",
        "ready": false, "restartCount": 4, "containerID": "trine://x"}]}))
        .unwrap();
    assert_eq!(Case::new(pod, vec![ready(1)], vec![]).short(), ["start c5"]);
}

#[test]
fn an_ephemeral_container_is_started_once_and_beside_what_fails() {
    let mut pod = pod("Always", json!([]), json!([{"name": "c", "image": "i"}]));
    let debug = json!([{"name": "d", "image": "i", "targetContainerName": "c"}]);
    pod.spec.as_mut().unwrap().ephemeral_containers = serde_json::from_value(debug).unwrap();
    let started = |case: &Case| {
        let actions = case.plan().actions;
        actions.iter().any(|a| matches!(a, Action::Start { container, .. } if container == "d"))
    };
    let running = view("c", 0, RunState::Running, 0);
    assert!(started(&Case::new(pod.clone(), vec![ready(0)], vec![running.clone()])));
    let gone = view("c", 0, RunState::Exited, 1);
    assert!(!started(&Case::new(pod.clone(), vec![ready(0)], vec![gone])), "there is nobody to look at");
    for state in [RunState::Running, RunState::Exited] {
        let debugging = vec![running.clone(), view("d", 0, state, 0)];
        assert!(!started(&Case::new(pod.clone(), vec![ready(0)], debugging)), "{state:?}");
    }
    assert_eq!((spec::target(&pod, "d"), spec::target(&pod, "c")), (Some("c"), None));
    let status = json!({"ephemeralContainerStatuses": [{"name": "d", "containerID": "x://d0", "image": "i", "imageID": "",
        "ready": false, "restartCount": 0}]});
    pod.status = serde_json::from_value(status).unwrap();
    assert!(!started(&Case::new(pod, vec![ready(0)], vec![running])), "its record is gone, but it has run");
}

#[test]
fn a_running_container_gets_what_it_was_given_now() {
    let numbers = |memory| Numbers { cpu_shares: 2, cpu_quota: 0, memory };
    let with = |policy: Value| {
        let main = json!([{"name": "c", "image": "i", "resizePolicy": policy}]);
        let has = ContainerView { numbers: Some(numbers(10)), ..view("c", 0, RunState::Running, 0) };
        let mut case = Case::new(pod("Always", json!([]), main), vec![ready(0)], vec![has]);
        case.numbers.insert("c".into(), numbers(20));
        case
    };
    assert_eq!(with(json!([])).short(), ["resize c0"]);
    let restart = json!([{"resourceName": "memory", "restartPolicy": "RestartContainer"}]);
    assert_eq!(with(restart).short(), ["kill c0"]);
    let mut settled = with(json!([]));
    settled.memory.resized.insert("c0".into(), numbers(20));
    assert!(settled.short().is_empty());
    let mut unhealthy = with(json!([]));
    unhealthy
        .verdicts
        .insert("c0".into(), Verdict { failed: Some(ProbeKind::Liveness), ..Default::default() });
    assert_eq!(unhealthy.short(), ["kill c0"], "what is started again gets them by that");
}
