use serde_json::{Value, json};

use super::*;

fn pod(name: &str) -> Pod {
    let pod = json!({"metadata": {"name": name, "namespace": "d", "uid": name},
        "spec": {"nodeName": "n", "containers": [], "resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]}});
    serde_json::from_value(pod).unwrap()
}

fn claim(tolerations: Value) -> Arc<ResourceClaim> {
    let claim = json!({"metadata": {"name": "c", "namespace": "d", "uid": "c"}, "spec": {},
        "status": {"reservedFor": [{"resource": "pods", "name": "p", "uid": "p"}],
            "allocation": {"devices": {"results": [{"driver": "drv", "pool": "n", "device": "0", "request": "r",
                "tolerations": tolerations}]}}}});
    serde_json::from_value(claim).unwrap()
}

fn slice(name: &str, generation: i64, taints: Value) -> Arc<ResourceSlice> {
    let slice = json!({"metadata": {"name": name}, "spec": {"driver": "drv", "nodeName": "n",
        "pool": {"name": "n", "generation": generation, "resourceSliceCount": 1},
        "devices": [{"name": "0", "taints": taints}]}});
    serde_json::from_value(slice).unwrap()
}

fn rule(selector: Value, effect: &str) -> Arc<DeviceTaintRule> {
    let rule = json!({"metadata": {"name": "rule", "uid": "rule"}, "spec": {"deviceSelector": selector,
        "taint": {"key": "k", "effect": effect, "timeAdded": "2026-01-01T00:00:00Z"}}});
    serde_json::from_value(rule).unwrap()
}

fn taint(effect: &str) -> Value {
    json!([{"key": "broken", "effect": effect, "timeAdded": "2026-01-01T00:00:00Z"}])
}

fn at(second: i64) -> Timestamp {
    let since: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    since + SignedDuration::from_secs(second)
}

#[test]
fn a_pod_goes_when_a_taint_of_its_device_is_not_tolerated_any_more() {
    let tolerates = |effect: Option<&str>, seconds: Option<i64>| json!([{"operator": "Exists", "effect": effect, "tolerationSeconds": seconds}]);
    let off = Some("NoExecute");
    for (name, taints, tolerations, goes) in [
        ("nothing", json!([]), json!([]), None),
        ("keeps off only", taint("NoSchedule"), json!([]), None),
        ("drives off", taint("NoExecute"), json!([]), Some(at(0))),
        ("always tolerated", taint("NoExecute"), tolerates(off, None), None),
        ("for a time", taint("NoExecute"), tolerates(off, Some(30)), Some(at(30))),
        ("less than nothing", taint("NoExecute"), tolerates(off, Some(-1)), Some(at(0))),
        ("of another effect", taint("NoExecute"), tolerates(Some("NoSchedule"), None), Some(at(0))),
        ("no effect named", taint("NoExecute"), tolerates(None, None), Some(at(0))),
    ] {
        let known = Known { slices: &[slice("s", 1, taints)], rules: &[], as_if: None };
        let claim = claim(tolerations);
        let eviction = known.of_pod(&pod("p"), |_| Some(Arc::clone(&claim)));
        assert_eq!(eviction.map(|eviction| eviction.at), goes, "{name}");
        assert_eq!(known.of_pod(&pod("q"), |_| Some(Arc::clone(&claim))), None, "{name}: no user");
    }
}

#[test]
fn what_an_older_slice_says_of_a_device_does_not_count() {
    let slices = [slice("a", 1, taint("NoExecute")), slice("b", 2, json!([]))];
    let known = Known { slices: &slices, rules: &[], as_if: None };
    assert_eq!(known.of_claim(&claim(json!([]))), None);
}

#[test]
fn a_rule_drives_off_whom_its_selector_finds_and_is_named() {
    for (selector, effect, as_if, goes) in [
        (json!({}), "NoExecute", None, true),
        (json!({"driver": "drv", "pool": "n", "device": "0"}), "NoExecute", None, true),
        (json!({"device": "1"}), "NoExecute", None, false),
        (Value::Null, "NoExecute", None, false),
        (json!({}), "None", None, false),
        (json!({}), "None", Some("rule"), true),
        (json!({}), "None", Some("another"), false),
    ] {
        let rules = [rule(selector.clone(), effect)];
        let known = Known { slices: &[], rules: &rules, as_if };
        let eviction = known.of_claim(&claim(json!([])));
        let expected = goes.then(|| Eviction { at: at(0), rules: ["rule".to_owned()].into() });
        assert_eq!(eviction, expected, "{selector} {effect} {as_if:?}");
    }
}

#[test]
fn devices_of_a_rule_are_counted_once() {
    let slices = [slice("a", 1, json!([])), slice("b", 2, json!([]))];
    let known = Known { slices: &slices, rules: &[], as_if: None };
    assert_eq!(known.devices_of(&rule(json!({}), "None"), &[claim(json!([]))]), (1, 1));
    assert_eq!(known.devices_of(&rule(json!({"pool": "m"}), "None"), &[claim(json!([]))]), (0, 0));
}

#[test]
fn a_rule_tells_how_far_it_is_in_upstreams_words() {
    let of = |pods, namespaces, evicted| Progress { evicted, pods, namespaces, devices: (1, 2) };
    let said = |effect: &str, so_far| condition(effect, so_far);
    assert_eq!(
        said("NoExecute", of(1, 1, 0)),
        (true, "PodsPendingEviction", "1 pod needs to be evicted in 1 namespace.".to_owned())
    );
    assert_eq!(
        said("NoExecute", of(3, 2, 1)).2,
        "3 pods need to be evicted in 2 different namespaces. 1 pod evicted since starting the controller."
    );
    assert_eq!(said("NoExecute", of(0, 0, 0)), (false, "NotStarted", String::new()));
    let done = (false, "Completed", "2 pods evicted since starting the controller.".to_owned());
    assert_eq!(said("NoExecute", of(0, 0, 2)), done);
    assert_eq!(said("NoSchedule", of(0, 0, 0)).1, "OtherEffect");
    let (status, reason, message) = said("None", of(1, 1, 0));
    assert_eq!((status, reason), (false, "NoEffect"));
    let begin =
        "1 published device selected. 2 allocated devices selected. 1 pod would be evicted in 1 namespace if";
    assert!(message.starts_with(begin), "{message}");
}
