//! What a user reads, for what runs.

use serde_json::json;

use super::*;
use crate::pod::memory::{Verdict, Waiting};
use crate::runtime::{ContainerView, RunState, SandboxView};

struct Case {
    pod: Pod,
    observed: Observed,
    memory: Memory,
    verdicts: Verdicts,
    stopping: bool,
    numbers: BTreeMap<String, Numbers>,
    pending: Option<Pending>,
}

fn case(containers: Vec<ContainerView>) -> Case {
    let pod = serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"},
        "spec": {"containers": [{"name": "c", "image": "i"}]}}))
    .unwrap();
    let sandbox = SandboxView {
        id: "s".into(),
        ready: true,
        ips: vec!["10.0.0.2".into(), "fd00::2".into()],
        ..Default::default()
    };
    let observed = Observed { sandboxes: vec![sandbox], containers };
    Case {
        pod,
        observed,
        memory: Memory::default(),
        verdicts: Verdicts::new(),
        stopping: false,
        numbers: BTreeMap::new(),
        pending: None,
    }
}

fn view(attempt: u32, state: RunState, exit_code: i32) -> ContainerView {
    ContainerView {
        id: format!("c{attempt}"),
        name: "c".into(),
        sandbox: "s".into(),
        attempt,
        state,
        exit_code,
        started_at: 1_000_000_000,
        finished_at: 2_000_000_000,
        ..Default::default()
    }
}

impl Case {
    fn status(&self) -> PodStatus {
        generate(&StatusInput {
            pod: &self.pod,
            observed: &self.observed,
            memory: &self.memory,
            verdicts: &self.verdicts,
            numbers: &self.numbers,
            pending: self.pending.as_ref(),
            runtime: "trine",
            host_ips: &["192.168.0.1".to_owned()],
            stopping: self.stopping,
            failed: None,
            start_time: Timestamp::from_second(5).unwrap(),
            now: Timestamp::from_second(9).unwrap(),
        })
    }

    fn condition(&self, kind: &str) -> String {
        let status = self.status();
        let found = status.conditions.unwrap().into_iter().find(|c| c.type_ == kind).unwrap();
        format!("{} {}", found.status, found.reason.unwrap_or_default()).trim().to_owned()
    }
}

#[test]
fn a_running_container_makes_the_pod_running_and_ready_with_its_addresses() {
    let status = case(vec![view(0, RunState::Running, 0)]).status();
    assert_eq!(status.phase.as_deref(), Some("Running"));
    assert_eq!(status.pod_ip.as_deref(), Some("10.0.0.2"));
    assert_eq!(status.pod_ips.unwrap().len(), 2);
    let container = &status.container_statuses.unwrap()[0];
    assert!(container.ready && container.started == Some(true));
    assert_eq!(container.container_id.as_deref(), Some("trine://c0"));
    assert_eq!(status.qos_class.as_deref(), Some("BestEffort"));
}

#[test]
fn conditions_follow_containers_and_probes() {
    let mut waiting = case(vec![]);
    waiting.observed.sandboxes.clear();
    let up = case(vec![view(0, RunState::Running, 0)]);
    let mut unready = case(vec![view(0, RunState::Running, 0)]);
    unready.verdicts.insert("c0".into(), Verdict { ready: Some(false), ..Default::default() });
    let mut done = case(vec![view(0, RunState::Exited, 0)]);
    done.pod.spec.as_mut().unwrap().restart_policy = Some("Never".into());
    let rows = [
        ("waiting", &waiting, "False", "False ContainersNotReady", "True"),
        ("up", &up, "True", "True", "True"),
        ("unready", &unready, "True", "False ContainersNotReady", "True"),
        ("done", &done, "True", "False PodCompleted", "True PodCompleted"),
    ];
    for (name, case, sandbox, ready, initialized) in rows {
        assert_eq!(case.condition("PodReadyToStartContainers"), sandbox, "{name}");
        assert_eq!(case.condition("Ready"), ready, "{name}");
        assert_eq!(case.condition("ContainersReady"), ready, "{name}");
        assert_eq!(case.condition("Initialized"), initialized, "{name}");
        assert_eq!(case.condition("PodScheduled"), "True", "{name}");
    }
}

#[test]
fn a_crash_loop_shows_the_wait_and_the_last_end() {
    let mut case = case(vec![view(2, RunState::Exited, 3), view(1, RunState::Exited, 3)]);
    let words = Waiting { reason: "CrashLoopBackOff".into(), message: "back-off 10s".into() };
    case.memory.waiting.insert("c".into(), words);
    let status = case.status().container_statuses.unwrap().remove(0);
    assert_eq!(status.restart_count, 2);
    assert_eq!(status.state.unwrap().waiting.unwrap().reason.as_deref(), Some("CrashLoopBackOff"));
    let last = status.last_state.unwrap().terminated.unwrap();
    assert_eq!((last.exit_code, last.reason.as_deref()), (3, Some("Error")));
    case.stopping = true;
    let status = case.status().container_statuses.unwrap().remove(0);
    assert!(status.state.unwrap().terminated.is_some(), "nothing is awaited once the Pod ends");
}

#[test]
fn a_finished_pod_keeps_its_phase_and_its_containers_when_the_runtime_forgets_them() {
    let mut case = case(vec![view(0, RunState::Exited, 0)]);
    case.pod.spec.as_mut().unwrap().restart_policy = Some("Never".into());
    let first = case.status();
    assert_eq!(first.phase.as_deref(), Some("Succeeded"));
    case.pod.status = Some(first.clone());
    case.observed = Observed::default();
    let second = case.status();
    assert_eq!(second.phase.as_deref(), Some("Succeeded"));
    assert_eq!(second.container_statuses, first.container_statuses);
}

#[test]
fn conditions_that_others_set_are_kept() {
    let mut case = case(vec![view(0, RunState::Running, 0)]);
    case.pod.status = serde_json::from_value(json!({"conditions": [
        {"type": "example.com/gate", "status": "True"}]}))
    .unwrap();
    assert_eq!(case.condition("example.com/gate"), "True");
}

#[test]
fn a_container_shows_what_it_has_and_what_it_was_given() {
    let numbers = |memory| Numbers { cpu_shares: 2, cpu_quota: 0, memory };
    let resources = |memory: &str| json!({"requests": {"memory": memory}, "limits": {"memory": memory}});
    let with = |has: i64| {
        let view = ContainerView { numbers: Some(numbers(has)), ..view(0, RunState::Running, 0) };
        let mut case = case(vec![view]);
        let container = &mut case.pod.spec.as_mut().unwrap().containers[0];
        container.resources = serde_json::from_value(resources("2Gi")).unwrap();
        case.numbers.insert("c".into(), numbers(2 << 30));
        case
    };
    let shown = |case: &Case| {
        let container = case.status().container_statuses.unwrap().remove(0);
        serde_json::to_value((container.allocated_resources, container.resources)).unwrap()
    };
    assert_eq!(shown(&with(2 << 30)), json!([{"memory": "2Gi"}, resources("2Gi")]));
    let mut changing = with(1 << 30);
    changing.pod.status = serde_json::from_value(json!({"containerStatuses": [
        {"name": "c", "image": "i", "imageID": "", "ready": true, "restartCount": 0, "resources": resources("1Gi")}]}))
    .unwrap();
    assert_eq!(shown(&changing), json!([{"memory": "2Gi"}, resources("1Gi")]));
    assert_eq!(changing.condition("PodResizeInProgress"), "True");
    changing.memory.resize_errors.insert("c0".into(), "in use".into());
    assert_eq!(changing.condition("PodResizeInProgress"), "True Error");
}

#[test]
fn conditions_of_a_change_go_when_it_is_over() {
    let mut case = case(vec![view(0, RunState::Running, 0)]);
    let message = "Node didn't have enough resource: cpu".to_owned();
    case.pending = Some(Pending { reason: "Deferred", message });
    assert_eq!(case.condition("PodResizePending"), "True Deferred");
    let waiting = case.status();
    case.pod.status = Some(waiting.clone());
    case.pending = None;
    let given = case.status();
    assert!(given.conditions.iter().flatten().all(|c| c.type_ != "PodResizePending"));
    let said =
        |a: &PodStatus, b: &PodStatus| resizing::news(a, b).iter().map(|n| n.event).collect::<Vec<_>>();
    assert_eq!(said(&PodStatus::default(), &waiting), ["ResizeDeferred"]);
    assert!(said(&waiting, &waiting).is_empty() && said(&waiting, &given).is_empty());
}
