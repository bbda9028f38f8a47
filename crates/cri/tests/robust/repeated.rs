//! Calls that are repeated, raced and given up half way: each has its effect once, and everybody gets the right answer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use trine_contracts::cri::*;

use crate::harness::{Node, inside, script};
use crate::registry::Registry;
use crate::scenario::Call;
use crate::world::{self, World};

/// How many ask at once.
const RACE: usize = 16;
/// When a client gives up, µs: before the call has arrived, and at several steps of it.
const GIVEN_UP: [u64; 4] = [100, 1_500, 5_000, 20_000];

struct Stage {
    node: Node,
    registry: Registry,
    base: World,
}

impl Stage {
    async fn set(test: &str, pod_cidr: &str) -> Option<Self> {
        let node = Node::start(test).await?;
        node.with_network(pod_cidr);
        let registry = Registry::start().await;
        // The first use of a network makes its folders.
        let pod = node.run_pod(&crate::scenario::attempt(&node, 9, true)).await;
        let mut client = node.client();
        client.remove_pod_sandbox(RemovePodSandboxRequest { pod_sandbox_id: pod }).await.unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
        let base = world::calm(&node).await;
        Some(Self { node, registry, base })
    }

    async fn is_as_before(&self, what: &str) {
        world::again(&self.node, &self.base).await.unwrap_or_else(|e| panic!("{what}: {e}"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_repeated_has_its_effect_once() {
    let test = "repeated::a_call_that_is_repeated_has_its_effect_once";
    if !inside(test) {
        return;
    }
    let Some(stage) = Stage::set(test, "10.85.0.0/24").await else { return };
    for call in Call::ALL {
        let (node, registry) = (&stage.node, &stage.registry);
        let subject = call.prepare(node, registry).await;
        let first = call.make(node, &subject).await.unwrap();
        for _ in 0..3 {
            let again = call.make(node, &subject).await.unwrap_or_else(|e| panic!("{call:?} again: {e}"));
            assert_eq!(again, first, "{call:?}");
        }
        call.holds(node, &subject, &first).await;
        call.clean(node, &subject, &first).await;
        stage.is_as_before(&format!("{call:?}")).await;
    }
    stage.node.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_many_make_at_once_has_its_effect_once() {
    let test = "repeated::a_call_that_many_make_at_once_has_its_effect_once";
    if !inside(test) {
        return;
    }
    let Some(stage) = Stage::set(test, "10.86.0.0/24").await else { return };
    let heard = hear(&stage.node).await;
    for call in Call::ALL {
        let (node, registry) = (&stage.node, &stage.registry);
        let subject = call.prepare(node, registry).await;
        let racing = (0..RACE).map(|_| call.make(node, &subject));
        let answers = futures::future::join_all(racing).await;
        let first = answers[0].as_ref().unwrap_or_else(|e| panic!("{call:?}: {e}")).clone();
        for answer in answers {
            assert_eq!(answer.unwrap_or_else(|e| panic!("{call:?}: {e}")), first, "{call:?}");
        }
        call.holds(node, &subject, &first).await;
        call.clean(node, &subject, &first).await;
        stage.is_as_before(&format!("{call:?}")).await;
    }
    // The lot of each container was told once.
    for ((container, kind), times) in heard.lock().unwrap().iter() {
        assert_eq!(*times, 1, "{container} {kind:?}");
    }
    stage.node.finish().await;
}

type Heard = Arc<Mutex<BTreeMap<(String, i32), usize>>>;

async fn hear(node: &Node) -> Heard {
    let heard = Heard::default();
    let mut events = node.client().get_container_events(GetEventsRequest {}).await.unwrap().into_inner();
    let writes = Arc::clone(&heard);
    tokio::spawn(async move {
        while let Ok(Some(event)) = events.message().await {
            let key = (event.container_id, event.container_event_type);
            *writes.lock().unwrap().entry(key).or_default() += 1;
        }
    });
    heard
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_given_up_half_way_and_made_again_has_its_effect_once() {
    let test = "repeated::a_call_that_is_given_up_half_way_and_made_again_has_its_effect_once";
    if !inside(test) {
        return;
    }
    let Some(stage) = Stage::set(test, "10.87.0.0/24").await else { return };
    for call in Call::ALL {
        for given_up in GIVEN_UP {
            let here = format!("{call:?} given up after {given_up} µs");
            let (node, registry) = (&stage.node, &stage.registry);
            let subject = call.prepare(node, registry).await;
            let first =
                tokio::time::timeout(Duration::from_micros(given_up), call.make(node, &subject)).await;
            let answer = call.make(node, &subject).await.unwrap_or_else(|e| panic!("{here}: {e}"));
            if let Ok(first) = first {
                assert_eq!(first.unwrap_or_else(|e| panic!("{here}: {e}")), answer, "{here}");
            }
            call.holds(node, &subject, &answer).await;
            call.clean(node, &subject, &answer).await;
            stage.is_as_before(&here).await;
        }
    }
    stage.node.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_that_several_stop_gets_its_signal_once() {
    let test = "repeated::a_container_that_several_stop_gets_its_signal_once";
    let Some(node) = Node::start(test).await else { return };
    let pod = node.run_pod(&node.pod("stopped")).await;
    let slow = "trap 'n=$((n+1)); echo term $n' TERM
        while test -z \"$n\"; do sleep 0.01; done
        sleep 0.15; sleep 0.15; exit 3";
    let id = node.run(&pod, script("main", slow)).await;
    let stop = || {
        let (mut client, container_id) = (node.client(), id.clone());
        async move { client.stop_container(StopContainerRequest { container_id, timeout: 30 }).await }
    };
    // The first is given up by its client, and is not the last.
    let first = tokio::time::timeout(Duration::from_millis(100), stop()).await;
    assert!(first.is_err());
    for answer in futures::future::join_all([stop(), stop(), stop()]).await {
        answer.unwrap();
    }
    assert_eq!(node.status(&id).await.exit_code, 3);
    assert_eq!(node.log(&id).await, ["stdout F term 1"]);
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn containers_that_are_made_while_their_pod_is_removed_leave_nothing() {
    let test = "repeated::containers_that_are_made_while_their_pod_is_removed_leave_nothing";
    if !inside(test) {
        return;
    }
    let Some(node) = Node::start(test).await else { return };
    // The first Pod starts what makes keepers.
    let first = node.run_pod(&node.pod("first")).await;
    node.client().remove_pod_sandbox(RemovePodSandboxRequest { pod_sandbox_id: first }).await.unwrap();
    let base = world::calm(&node).await;
    for round in 0..8 {
        let pod = node.run_pod(&node.pod("raced")).await;
        let making = (0..4).map(|n| node.create(&pod, script(&format!("c{n}"), "exec sleep 1000")));
        let remove = async {
            tokio::time::sleep(Duration::from_millis(round * 2)).await;
            let request = RemovePodSandboxRequest { pod_sandbox_id: pod.clone() };
            node.client().remove_pod_sandbox(request).await
        };
        let (made, removed) = tokio::join!(futures::future::join_all(making), remove);
        removed.unwrap();
        drop(made);
        let all = node.client().list_containers(ListContainersRequest::default()).await.unwrap();
        assert!(all.into_inner().containers.is_empty(), "round {round}");
        world::again(&node, &base).await.unwrap_or_else(|e| panic!("round {round}: {e}"));
    }
    node.finish().await;
}
