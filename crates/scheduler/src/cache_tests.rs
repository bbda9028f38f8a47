use serde_json::{Value, json};

use super::*;
use crate::framework::{Decision, attempt};

const NOW: Duration = Duration::ZERO;
const LATER: Duration = Duration::from_secs(60);

fn node(name: &str, cpu: &str) -> Arc<Node> {
    let node = json!({"metadata": {"name": name}, "status": {"allocatable": {"cpu": cpu, "memory": "4Gi", "pods": "9"}}});
    Arc::new(serde_json::from_value(node).unwrap())
}

fn pod(name: &str, more: &Value) -> Arc<Pod> {
    let mut pod = json!({"metadata": {"name": name, "uid": name, "namespace": "d"},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}});
    json_patch::merge(&mut pod, more);
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn on(node: &str) -> Value {
    json!({"spec": {"nodeName": node}})
}

/// A cluster with a node of two processors.
fn cache() -> Cache {
    let mut cache = Cache::new(&Config::default());
    cache.apply([Change::Node((None, Some(node("n", "2"))))], NOW);
    cache
}

fn tell(cache: &mut Cache, old: Option<&Arc<Pod>>, new: Option<&Arc<Pod>>, now: Duration) {
    cache.apply([Change::Pod((old.cloned(), new.cloned()))], now);
}

/// What becomes of the next Pod of the queue; the cache is told of it.
fn decide(cache: &mut Cache, now: Duration) -> Option<String> {
    let pod = cache.queue.next(now)?;
    cache.snapshot.prepare(&pod, &Profile::default());
    let attempt = attempt(&pod, &cache.snapshot, &Profile::default(), 0);
    Some(match attempt.decision {
        Decision::Place { node, .. } => {
            cache.assume(&pod, &node, &Given::default());
            format!("{} on {node}", pod.uid())
        }
        _ => {
            cache.set_aside(pod.uid(), attempt.rejected_by, now);
            format!("{} nowhere", pod.uid())
        }
    })
}

fn used(cache: &Cache) -> (i64, usize) {
    let info = &cache.snapshot.nodes["n"];
    (info.requested.cpu, info.pods.len())
}

#[test]
fn who_was_decided_for_takes_room_until_the_binding_is_known_to_have_failed() {
    let mut cache = cache();
    let (a, b) = (pod("a", &json!({})), pod("b", &json!({})));
    tell(&mut cache, None, Some(&a), NOW);
    tell(&mut cache, None, Some(&b), NOW);
    assert_eq!(decide(&mut cache, NOW).as_deref(), Some("a on n"));
    assert_eq!(decide(&mut cache, NOW).as_deref(), Some("b nowhere"));
    tell(&mut cache, Some(&a), Some(&a), NOW);
    assert_eq!((decide(&mut cache, LATER), used(&cache)), (None, (2000, 1)), "no news");
    cache.forget("a", LATER);
    assert_eq!(used(&cache), (0, 0));
    assert_eq!(decide(&mut cache, LATER).as_deref(), Some("b on n"), "a is in its back-off");
    assert_eq!(decide(&mut cache, LATER + LATER).as_deref(), Some("a nowhere"));
}

#[test]
fn who_is_seen_bound_is_counted_once_and_not_forgotten() {
    let mut cache = cache();
    let a = pod("a", &json!({}));
    tell(&mut cache, None, Some(&a), NOW);
    assert!(decide(&mut cache, NOW).is_some());
    tell(&mut cache, Some(&a), Some(&pod("a", &on("n"))), NOW);
    cache.forget("a", NOW);
    assert_eq!((used(&cache), cache.queue.pods().count()), ((2000, 1), 0));
    tell(&mut cache, Some(&a), Some(&pod("a", &on("other"))), NOW);
    assert_eq!(used(&cache), (0, 0), "somebody else has bound it elsewhere");
    cache.apply([Change::Node((None, Some(node("other", "2"))))], NOW);
    assert_eq!(cache.snapshot.nodes["other"].pods.len(), 1, "its node came after it");
}

#[test]
fn what_ends_or_goes_or_asks_for_less_makes_room_for_those_that_wait() {
    let finished = json!({"spec": {"nodeName": "n"}, "status": {"phase": "Succeeded"}});
    let small = json!({"spec": {"nodeName": "n",
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "0"}}}]}});
    let rows = [("ended", Some(finished.clone())), ("gone", None), ("resized", Some(small))];
    for (name, then) in rows {
        let mut cache = cache();
        let placed = pod("placed", &on("n"));
        tell(&mut cache, None, Some(&placed), NOW);
        tell(&mut cache, None, Some(&pod("waits", &json!({}))), NOW);
        assert_eq!(decide(&mut cache, NOW).as_deref(), Some("waits nowhere"), "{name}");
        let running = pod("placed", &json!({"spec": {"nodeName": "n"}, "status": {"phase": "Running"}}));
        tell(&mut cache, Some(&placed), Some(&running), NOW);
        assert_eq!(decide(&mut cache, LATER), None, "{name}: no room yet");
        tell(&mut cache, Some(&running), then.map(|more| pod("placed", &more)).as_ref(), NOW);
        assert_eq!(decide(&mut cache, LATER).as_deref(), Some("waits on n"), "{name}");
    }
    let mut cache = cache();
    tell(&mut cache, None, Some(&pod("ended", &finished)), NOW);
    assert_eq!(used(&cache), (0, 0));
}

#[test]
fn who_is_gated_or_goes_or_is_somebody_elses_gets_no_node() {
    let rows = [
        (json!({"spec": {"schedulingGates": [{"name": "g"}]}}), false),
        (json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}), false),
        (json!({"spec": {"schedulerName": "other"}}), false),
        (json!({"spec": {"schedulerName": "default-scheduler", "schedulingGates": []}}), true),
    ];
    for (more, decided) in rows {
        let mut cache = cache();
        tell(&mut cache, None, Some(&pod("a", &more)), NOW);
        assert_eq!(decide(&mut cache, NOW).is_some(), decided, "{more}");
    }
    let mut cache = cache();
    let a = pod("a", &json!({}));
    tell(&mut cache, None, Some(&a), NOW);
    tell(&mut cache, Some(&a), Some(&pod("a", &json!({"spec": {"schedulingGates": [{"name": "g"}]}}))), NOW);
    assert_eq!(decide(&mut cache, NOW), None, "it was taken back");
}

#[test]
fn a_node_that_goes_takes_its_pods_out_of_all_counts_and_brings_them_back() {
    let mut cache = cache();
    tell(&mut cache, None, Some(&pod("a", &on("n"))), NOW);
    let n = node("n", "2");
    cache.apply([Change::Node((Some(Arc::clone(&n)), None))], NOW);
    assert!(cache.snapshot.nodes.is_empty());
    cache.apply([Change::Node((None, Some(n)))], NOW);
    assert_eq!(used(&cache), (2000, 1));
    cache.apply([Change::Node((None, Some(node("n", "8"))))], NOW);
    assert_eq!((used(&cache), cache.snapshot.nodes["n"].allocatable.cpu), ((2000, 1), 8000));
}

#[test]
fn a_promise_lasts_from_when_it_is_made_until_it_is_taken_back_or_kept() {
    let mut cache = cache();
    let old = pod("a", &json!({}));
    tell(&mut cache, None, Some(&old), NOW);
    cache.promise("a", Some(("n".to_owned(), Arc::clone(&old).into())));
    let reported = pod("a", &json!({"status": {"phase": "Pending"}}));
    tell(&mut cache, Some(&old), Some(&reported), NOW);
    assert_eq!(cache.snapshot.nominated["n"].len(), 1, "the watch does not know of it yet");
    let promised = pod("a", &json!({"status": {"nominatedNodeName": "n"}}));
    tell(&mut cache, Some(&reported), Some(&promised), NOW);
    assert_eq!(cache.snapshot.nominated["n"].len(), 1);
    tell(&mut cache, Some(&promised), Some(&reported), NOW);
    assert!(cache.snapshot.nominated.is_empty(), "taken back");
    tell(&mut cache, Some(&reported), Some(&promised), NOW);
    tell(&mut cache, Some(&promised), Some(&pod("a", &on("n"))), NOW);
    assert!(cache.snapshot.nominated.is_empty(), "kept");
}
