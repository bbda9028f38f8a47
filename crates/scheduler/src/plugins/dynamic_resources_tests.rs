//! Pods with claims of devices from when they come to when they have a place, through the cache and the queue.

use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::cache::{Cache, Change};
use crate::devices::{DeviceClass, ResourceSlice};
use crate::framework::{Attempt, Decision, attempt};
use crate::profile::{Config, Profile};

const NOW: Duration = Duration::ZERO;

fn object<K: serde::de::DeserializeOwned>(value: Value) -> Arc<K> {
    Arc::new(serde_json::from_value(value).unwrap())
}

fn node(name: &str) -> Change {
    let node = json!({"metadata": {"name": name},
        "status": {"allocatable": {"cpu": "4", "memory": "4Gi", "pods": "9"}}});
    Change::Node((None, Some(object(node))))
}

fn class(name: &str) -> Change {
    let class: Arc<DeviceClass> = object(json!({"metadata": {"name": name}, "spec": {}}));
    Change::DeviceClass((None, Some(class)))
}

/// A pool of a node.
fn slice(node: &str, devices: &[&str]) -> Change {
    let devices: Vec<_> = devices.iter().map(|name| json!({"name": name})).collect();
    let slice: Arc<ResourceSlice> =
        object(json!({"metadata": {"name": node}, "spec": {"driver": "d", "nodeName": node,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}, "devices": devices}}));
    Change::DeviceSlice((None, Some(slice)))
}

fn claim(name: &str, more: &Value) -> Arc<ResourceClaim> {
    let mut claim = json!({"metadata": {"name": name, "namespace": "d", "uid": format!("{name}-uid")},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}});
    json_patch::merge(&mut claim, more);
    object(claim)
}

/// A Pod with a claim.
fn pod(name: &str, claim: Value, more: &Value) -> Change {
    let mut claim = claim;
    claim["name"] = json!("gpu");
    let mut pod = json!({"metadata": {"name": name, "uid": name, "namespace": "d"},
        "spec": {"containers": [{"name": "c"}], "resourceClaims": [claim]}});
    json_patch::merge(&mut pod, more);
    Change::Pod((None, Some(object(pod))))
}

fn names(claim: &str) -> Value {
    json!({"resourceClaimName": claim})
}

fn told(old: Option<&Arc<ResourceClaim>>, new: Option<&Arc<ResourceClaim>>) -> Change {
    Change::DeviceClaim((old.cloned(), new.cloned()))
}

/// What is there before Pods come.
fn cache(changes: impl IntoIterator<Item = Change>) -> Cache {
    let mut cache = Cache::new(&Config::default());
    cache.apply([node("a"), class("gpu"), Change::DevicesListed], NOW);
    cache.apply(changes, NOW);
    cache
}

/// Decides for the next Pod; nobody is there: `nobody`.
fn next(cache: &mut Cache, at: u64) -> String {
    let now = Duration::from_secs(at);
    let Some(pod) = cache.queue.next(now) else { return "nobody".to_owned() };
    let Attempt { decision, rejected_by, .. } = attempt(&pod, &cache.snapshot, &Profile::default(), 0);
    match decision {
        Decision::Place { node, devices, .. } => {
            cache.assume(&pod, &node, &devices);
            let devices = devices.claims.iter().flat_map(|(_, allocation)| {
                allocation.devices.iter().flat_map(|devices| devices.results.iter().flatten())
            });
            let devices: Vec<_> = devices.map(|result| result.device.as_str()).collect();
            format!("{} on {node} with {}", pod.uid(), devices.join(","))
        }
        Decision::Failed(why) => {
            cache.put_back(pod.uid(), now);
            why
        }
        Decision::Nowhere(why) => {
            cache.set_aside(pod.uid(), rejected_by, now);
            why
        }
        other => panic!("{other:?}"),
    }
}

fn nowhere(why: &str) -> String {
    format!(
        "0/1 nodes are available: {why}. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    )
}

#[test]
fn a_pod_is_not_looked_at_before_its_claim_is_there() {
    let one = claim("one", &json!({}));
    let mut cache = cache([slice("a", &["x"]), pod("p", names("one"), &json!({}))]);
    assert_eq!(next(&mut cache, 0), "nobody");
    let going = claim("one", &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    cache.apply([told(None, Some(&going))], NOW);
    assert_eq!(next(&mut cache, 0), "nobody", "it is on its way out");
    cache.apply([told(Some(&going), None), told(None, Some(&one))], NOW);
    assert_eq!(next(&mut cache, 0), "p on a with x");

    // One that is made of a template has its name in the Pod's status.
    let template = json!({"resourceClaimTemplateName": "t"});
    let mut cache = self::cache([slice("a", &["x"]), pod("p", template.clone(), &json!({}))]);
    assert_eq!(next(&mut cache, 0), "nobody");
    let said = json!({"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "p-gpu"}]}});
    cache.apply([told(None, Some(&claim("p-gpu", &json!({})))), pod("p", template.clone(), &said)], NOW);
    assert_eq!(next(&mut cache, 0), "nobody", "it is another's");
    let own = json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p", "controller": true}]}});
    cache.apply([told(Some(&claim("p-gpu", &json!({}))), Some(&claim("p-gpu", &own)))], NOW);
    assert_eq!(next(&mut cache, 0), "nobody", "who owns it does not change");
    cache.apply([told(None, Some(&claim("p-gpu-2", &own)))], NOW);
    let said =
        json!({"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "p-gpu-2"}]}});
    cache.apply([pod("p", template, &said)], NOW);
    assert_eq!(next(&mut cache, 0), "p on a with x");
}

#[test]
fn a_pod_is_not_looked_at_before_all_that_is_taken_is_known() {
    let mut cache = Cache::new(&Config::default());
    let one = claim("one", &json!({}));
    cache.apply(
        [
            node("a"),
            class("gpu"),
            slice("a", &["x"]),
            told(None, Some(&one)),
            pod("p", names("one"), &json!({})),
        ],
        NOW,
    );
    assert_eq!(next(&mut cache, 0), "nobody");
    cache.apply([Change::DevicesListed], NOW);
    assert_eq!(next(&mut cache, 0), "p on a with x");
}

#[test]
fn a_pod_that_has_no_place_is_woken_by_a_class_a_slice_its_claim_or_devices_that_are_free() {
    let rows: [(&str, &str, Change, &str); 2] = [
        ("a class", "none", class("none"), "request r: device class none does not exist"),
        ("a slice", "gpu", slice("a", &["x"]), "1 cannot allocate all claims"),
    ];
    for (name, wanted, helps, why) in rows {
        let request = json!({"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": wanted}}]}}});
        let one = claim("one", &request);
        let mut cache = cache([told(None, Some(&one)), pod("p", names("one"), &json!({}))]);
        if wanted == "none" {
            cache.apply([slice("a", &["x"])], NOW);
        }
        assert_eq!(next(&mut cache, 0), nowhere(why), "{name}");
        cache.apply([told(None, Some(&claim("other", &json!({}))))], NOW);
        assert_eq!(next(&mut cache, 10), "nobody", "{name}: another's claim does not help");
        cache.apply([helps], NOW);
        assert_eq!(next(&mut cache, 20), "p on a with x", "{name}");
    }

    let taken = claim(
        "taken",
        &json!({"status": {"allocation": {"devices": {"results": [
        {"request": "r", "driver": "d", "pool": "a", "device": "x"}]}}}}),
    );
    let free = claim("taken", &json!({}));
    let one = claim("one", &json!({}));
    let mut cache = cache([
        slice("a", &["x"]),
        told(None, Some(&taken)),
        told(None, Some(&one)),
        pod("p", names("one"), &json!({})),
    ]);
    assert_eq!(next(&mut cache, 0), nowhere("1 cannot allocate all claims"));
    cache.apply([told(Some(&taken), Some(&free))], NOW);
    assert_eq!(next(&mut cache, 20), "p on a with x");
}

#[test]
fn two_pods_wait_for_the_claim_that_one_of_them_was_decided_for() {
    let one = claim("one", &json!({}));
    let mut cache = cache([
        slice("a", &["x", "y"]),
        told(None, Some(&one)),
        pod("p", names("one"), &json!({})),
        pod("q", names("one"), &json!({})),
    ]);
    assert_eq!(next(&mut cache, 0), "p on a with x");
    assert_eq!(next(&mut cache, 0), nowhere("resource claim d/one is in the process of being allocated"));
    let selector = json!({"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}]});
    let written = claim(
        "one",
        &json!({"status": {"allocation": {"nodeSelector": selector, "devices": {"results": [
        {"request": "r", "driver": "d", "pool": "a", "device": "x"}]}}}}),
    );
    cache.apply([told(Some(&one), Some(&written))], NOW);
    assert_eq!(next(&mut cache, 20), "q on a with ", "it uses what the claim has");
}

#[test]
fn what_was_decided_for_in_vain_is_decided_for_again() {
    let one = claim("one", &json!({}));
    let mut cache = cache([slice("a", &["x"]), told(None, Some(&one)), pod("p", names("one"), &json!({}))]);
    assert_eq!(next(&mut cache, 0), "p on a with x");
    cache.forget("p", Duration::from_secs(1));
    assert_eq!(next(&mut cache, 20), "p on a with x");
}

#[test]
fn a_selector_that_fails_on_one_node_keeps_the_pod_from_all() {
    let broken = json!({"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu",
        "selectors": [{"cel": {"expression": "device.attributes['d'].exists"}}]}}]}}});
    let mut cache = cache([
        node("b"),
        slice("a", &["x"]),
        told(None, Some(&claim("one", &broken))),
        pod("p", names("one"), &json!({})),
    ]);
    let why = next(&mut cache, 0);
    assert!(why.starts_with("running \"DynamicResources\" filter plugin: claim d/one: selector #0 on device d/a/x: CEL runtime error: no such key: exists"), "{why}");
    assert_eq!(next(&mut cache, 0), "nobody");
    assert_eq!(next(&mut cache, 2), why, "after its back-off");
}

#[test]
fn a_claim_that_nobody_uses_gives_its_devices_back_if_the_pod_cannot_go_there() {
    let on = |node: &str, users: Value| {
        let selector = json!({"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]});
        claim("one", &json!({"status": {"reservedFor": users, "allocation": {"nodeSelector": selector}}}))
    };
    let user = |uid: &str| json!({"resource": "pods", "name": uid, "uid": uid});
    let back = " deallocation of ResourceClaim completed,";
    let rows = [
        ("nobody's", json!([]), back),
        ("its own", json!([user("p")]), back),
        ("another's", json!([user("q")]), ""),
        ("another's, too", json!([user("p"), user("q")]), ""),
    ];
    for (name, users, expected) in rows {
        let one = on("elsewhere", users);
        let mut cache = cache([told(None, Some(&one)), pod("p", names("one"), &json!({}))]);
        let pod = cache.queue.next(NOW).unwrap();
        let attempt = attempt(&pod, &cache.snapshot, &Profile::default(), 0);
        let Decision::Nowhere(why) = attempt.decision else { panic!("{name}") };
        let start = "0/1 nodes are available: 1 resourceclaim not available on the node.";
        let end = " preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.";
        assert_eq!(why, format!("{start}{expected}{end}"), "{name}");
        assert_eq!(attempt.give_back.is_some(), !expected.is_empty(), "{name}");
    }
}

#[test]
fn a_node_where_an_earlier_alternative_can_be_had_is_better() {
    let list = json!({"spec": {"devices": {"requests": [{"name": "r", "exactly": null, "firstAvailable": [
        {"name": "big", "deviceClassName": "gpu", "count": 2}, {"name": "small", "deviceClassName": "gpu", "count": 1}]}]}}});
    let mut cache = cache([
        node("b"),
        slice("a", &["x"]),
        slice("b", &["y", "z"]),
        told(None, Some(&claim("one", &list))),
        pod("p", names("one"), &json!({})),
    ]);
    assert_eq!(next(&mut cache, 0), "p on b with y,z");
}

#[test]
fn without_the_plugin_claims_are_not_looked_at() {
    let head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n";
    let profile = "- plugins: {multiPoint: {disabled: [{name: DynamicResources}]}}\n";
    let config = crate::profile::read(&format!("{head}{profile}")).unwrap();
    let mut cache = Cache::new(&config);
    cache.apply([node("a"), pod("p", names("none"), &json!({}))], NOW);
    let pod = cache.queue.next(NOW).unwrap();
    let attempt = attempt(&pod, &cache.snapshot, &config.profiles[0], 0);
    assert!(matches!(attempt.decision, Decision::Place { .. }), "{:?}", attempt.decision);
}

/// A Pod that asks for `gpus` of a resource.
fn by_resource(name: &str, gpus: &str) -> Change {
    let amounts = json!({"x.io/gpu": gpus});
    let pod = json!({"metadata": {"name": name, "uid": name, "namespace": "d"},
        "spec": {"containers": [{"name": "c", "resources": {"requests": amounts, "limits": amounts}}]}});
    Change::Pod((None, Some(object(pod))))
}

fn stands_for_gpus(name: &str) -> Change {
    let class = json!({"metadata": {"name": name}, "spec": {"extendedResourceName": "x.io/gpu"}});
    Change::DeviceClass((None, Some(object::<DeviceClass>(class))))
}

/// The claim that was written for a Pod.
fn written(pod: &str, device: Option<&str>) -> Arc<ResourceClaim> {
    let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": pod, "controller": true}]);
    let result = device.map(
        |device| json!([{"driver": "d", "pool": "a", "device": device, "request": "container-0-request-0"}]),
    );
    claim(
        &format!("{pod}-extended"),
        &json!({"metadata": {"ownerReferences": owner,
            "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"}},
            "status": result.map(|results| json!({"allocation": {"devices": {"results": results}}}))}),
    )
}

#[test]
fn a_resource_for_which_a_class_stands_is_given_as_devices_where_the_node_does_not_offer_it() {
    let mut cache = cache([slice("a", &["x", "y"]), by_resource("p", "1"), by_resource("q", "2")]);
    assert_eq!(next(&mut cache, 0), nowhere("1 Insufficient x.io/gpu"), "no class stands for it");
    assert_eq!(next(&mut cache, 0), nowhere("1 Insufficient x.io/gpu"));
    cache.apply([stands_for_gpus("gpus")], NOW);
    assert_eq!(next(&mut cache, 60), "p on a with x");
    assert_eq!(next(&mut cache, 60), nowhere("1 cannot allocate all claims"));
    // The claim is written: what was taken for it is counted once.
    cache.apply([told(None, Some(&written("p", Some("x"))))], NOW);
    cache.apply([told(Some(&written("p", Some("x"))), None)], NOW);
    assert_eq!(next(&mut cache, 300), "q on a with x,y");

    let offering = json!({"metadata": {"name": "a"}, "status": {"allocatable":
        {"cpu": "4", "memory": "4Gi", "pods": "9", "x.io/gpu": "1"}}});
    let mut cache = self::cache([stands_for_gpus("gpus"), slice("a", &["x"])]);
    cache.apply([Change::Node((None, Some(object(offering)))), by_resource("p", "1")], NOW);
    assert_eq!(next(&mut cache, 0), "p on a with ", "the node offers it");
}

#[test]
fn a_claim_that_an_attempt_before_has_left_is_taken_away_first() {
    let left = written("p", None);
    let mut cache =
        cache([stands_for_gpus("gpus"), slice("a", &["x"]), told(None, Some(&left)), by_resource("p", "1")]);
    let pod = cache.queue.next(NOW).unwrap();
    let attempt = attempt(&pod, &cache.snapshot, &Profile::default(), 0);
    assert_eq!(
        attempt.give_back.and_then(|claim| claim.metadata.name.clone()).as_deref(),
        Some("p-extended")
    );
    assert!(
        matches!(attempt.decision, Decision::Nowhere(why) if why.contains("cannot schedule extended resource claim"))
    );
    cache.set_aside(pod.uid(), attempt.rejected_by, NOW);
    cache.apply([told(Some(&left), None)], NOW);
    assert_eq!(next(&mut cache, 60), "p on a with x");
}
