use std::sync::Arc;

use serde_json::{Value, json};

use super::*;

const S: fn(u64) -> Duration = Duration::from_secs;

fn pod(uid: &str, more: &Value) -> PodInfo {
    let mut pod = json!({"metadata": {"name": uid, "uid": uid}, "spec": {"containers": []}});
    json_patch::merge(&mut pod, more);
    Arc::new(serde_json::from_value::<trine_typed::k8s_openapi::api::core::v1::Pod>(pod).unwrap()).into()
}

fn plain(uid: &str) -> PodInfo {
    pod(uid, &json!({}))
}

fn next(queue: &mut Queue, now: u64) -> Option<String> {
    queue.next(S(now)).map(|pod| pod.uid().to_owned())
}

fn fit() -> BTreeSet<Plugin> {
    [Plugin::NodeResourcesFit].into()
}

#[test]
fn the_most_important_comes_first_then_who_came_first() {
    let mut queue = Queue::default();
    queue.put(plain("b"), S(0));
    queue.put(plain("a"), S(0));
    queue.put(pod("high", &json!({"spec": {"priority": 5}})), S(1));
    let order: Vec<_> = (0..4).map(|_| next(&mut queue, 1)).collect();
    assert_eq!(order, [Some("high".to_owned()), Some("b".to_owned()), Some("a".to_owned()), None]);
}

#[test]
fn back_off_doubles_from_one_second_to_ten() {
    let mut queue = Queue::default();
    queue.put(plain("u"), S(0));
    let mut now = S(0);
    let waits: Vec<u64> = (0..6)
        .map(|_| {
            assert!(queue.next(now).is_some());
            queue.put_back("u", now);
            let until = queue.due_at().unwrap();
            assert!(queue.next(until.checked_sub(Duration::from_millis(1)).unwrap()).is_none());
            let wait = until.checked_sub(now).unwrap();
            now = until;
            wait.as_secs()
        })
        .collect();
    assert_eq!(waits, [1, 2, 4, 8, 10, 10]);
}

#[test]
fn a_pod_without_a_place_waits_for_what_can_help_it_and_then_for_its_back_off() {
    let mut queue = Queue::default();
    queue.put(plain("u"), S(0));
    assert!(next(&mut queue, 0).is_some());
    queue.set_aside("u", fit(), S(0));
    queue.happened(Event::Storage, S(0));
    assert_eq!((queue.due_at(), next(&mut queue, 100)), (None, None), "no help");
    queue.happened(Event::PlacedPodGone, S(0));
    assert_eq!(next(&mut queue, 0), None, "its back-off lasts");
    assert_eq!(next(&mut queue, 1).as_deref(), Some("u"));
    queue.set_aside("u", fit(), S(1));
    queue.happened(Event::Node, S(20));
    assert_eq!(next(&mut queue, 20).as_deref(), Some("u"), "its back-off is long over");
}

#[test]
fn a_pod_that_asks_for_something_else_waits_for_no_event_one_with_another_status_does() {
    let mut queue = Queue::default();
    queue.put(plain("u"), S(0));
    assert!(next(&mut queue, 0).is_some());
    queue.set_aside("u", fit(), S(0));
    queue.put(pod("u", &json!({"status": {"nominatedNodeName": "n"}})), S(5));
    assert_eq!(next(&mut queue, 5), None);
    queue.put(pod("u", &json!({"spec": {"tolerations": [{"operator": "Exists"}]}})), S(5));
    assert_eq!(next(&mut queue, 5).as_deref(), Some("u"));
}

#[test]
fn a_pod_that_nothing_has_helped_is_not_forgotten() {
    let mut queue = Queue::default();
    queue.put(plain("u"), S(0));
    assert!(next(&mut queue, 0).is_some());
    queue.set_aside("u", fit(), S(0));
    queue.flush(S(299));
    assert_eq!(next(&mut queue, 299), None);
    queue.flush(S(300));
    assert_eq!(next(&mut queue, 300).as_deref(), Some("u"));
}

#[test]
fn what_is_removed_while_it_is_decided_for_does_not_come_back() {
    let mut queue = Queue::default();
    queue.put(plain("u"), S(0));
    assert!(next(&mut queue, 0).is_some());
    queue.put(plain("u"), S(0));
    assert_eq!(next(&mut queue, 0), None, "it is decided for already");
    queue.remove("u");
    queue.set_aside("u", fit(), S(0));
    queue.put_back("u", S(0));
    queue.flush(S(1000));
    assert_eq!((queue.due_at(), queue.pods().count()), (None, 0));
}
