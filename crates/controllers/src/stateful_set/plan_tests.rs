//! StatefulSets told as tables: a Pod as its ordinal and letters: `o`ld or `n`ew revision, in capitals if it is available,
//! `F`ailed, `P`ending, `-` on its way out.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use trine_typed::k8s_openapi::api::apps::v1::StatefulSet;
use trine_typed::k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use trine_typed::k8s_openapi::jiff::Timestamp;
use trine_typed::kube::ResourceExt;

use super::identity::{NAME, REVISION};
use super::plan::{Act, Revision, Turn, plan, status};

fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

fn set(spec: &Value) -> StatefulSet {
    let mut set = json!({"metadata": {"name": "w", "namespace": "ns", "uid": "u", "generation": 3}, "spec": {"replicas": 3,
        "serviceName": "s", "selector": {"matchLabels": {"app": "w"}}, "template": {}, "podManagementPolicy": "OrderedReady",
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}}});
    for (key, value) in spec.as_object().unwrap() {
        set["spec"][key] = value.clone();
    }
    serde_json::from_value(set).unwrap()
}

fn pods(text: &str) -> Vec<Arc<Pod>> {
    let one = |word: &str| {
        let (ordinal, letters) = word.split_at(word.find(|c: char| !c.is_ascii_digit()).unwrap());
        let has = |letter: char| letters.contains(letter);
        let name = format!("w-{ordinal}");
        let phase = if has('F') {
            "Failed"
        } else if has('P') {
            "Pending"
        } else {
            "Running"
        };
        let ready = if has('O') || has('N') { "True" } else { "False" };
        let revision = if has('N') || has('n') { "new" } else { "old" };
        let going = has('-').then_some("2026-01-01T11:00:00Z");
        Arc::new(
            serde_json::from_value(
                json!({"metadata": {"name": name, "namespace": "ns", "uid": format!("p{ordinal}"),
                    "labels": {NAME: name, REVISION: revision}, "deletionTimestamp": going},
                "spec": {"containers": []}, "status": {"phase": phase, "conditions": [
                    {"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T11:00:00Z"}]}}),
            )
            .unwrap(),
        )
    };
    text.split_whitespace().map(one).collect()
}

fn revisions() -> (Revision, Revision) {
    let one = |name: &str| Revision {
        name: name.to_owned(),
        template: serde_json::from_value(json!({"spec": {"containers": [{"name": name}]}})).unwrap(),
    };
    (one("old"), one("new"))
}

fn acts_with(set: &StatefulSet, text: &str, claims: &[Value]) -> String {
    let (current, update) = revisions();
    let claims: BTreeMap<String, Arc<PersistentVolumeClaim>> = claims
        .iter()
        .map(|claim| serde_json::from_value::<PersistentVolumeClaim>(claim.clone()).unwrap())
        .map(|claim| (claim.name_any(), Arc::new(claim)))
        .collect();
    let pods = pods(text);
    let plan =
        plan(&Turn { set, current: &current, update: &update, pods: &pods, claims: &claims, now: now() });
    let one = |act: &Act| match act {
        Act::CreateClaim(claim, _) => format!("+{}", claim.name_any()),
        Act::Own(claim, owners) => {
            format!(
                "{}<{}",
                claim.name_any(),
                owners.iter().map(|o| o.uid.as_str()).collect::<Vec<_>>().join(",")
            )
        }
        Act::Create(pod) => {
            format!("+{}{}", pod.name_any(), if pod.labels()[REVISION] == "old" { "(old)" } else { "" })
        }
        Act::Delete(pod) => format!("-{}", pod.name_any()),
        Act::Label(pod) => format!("!{}", pod.name_any()),
        Act::Fail(pod, why) => format!("{pod}: {why}"),
    };
    plan.acts.iter().map(one).collect::<Vec<_>>().join(" ")
}

fn acts(set: &StatefulSet, text: &str) -> String {
    acts_with(set, text, &[])
}

#[test]
fn in_order_each_pod_waits_for_those_before_it() {
    let rows = [
        ("the first", json!({}), "", "+w-0"),
        ("not ready yet", json!({}), "0n", ""),
        ("the next", json!({}), "0N", "+w-1"),
        ("a gap", json!({}), "0N 2N", "+w-1"),
        ("from an ordinal on", json!({"ordinals": {"start": 5}}), "5N", "+w-6"),
        ("on its way out", json!({}), "0N 1N-", ""),
        ("failed", json!({}), "0N 1nF 2N", "-w-1"),
        ("failed, on its way out", json!({}), "0N 1nF- 2N", ""),
        ("pending", json!({}), "0nP", ""),
        ("scaled down, the highest first", json!({"replicas": 1}), "0N 1N 2N", "-w-2"),
        ("which goes already", json!({"replicas": 1}), "0N 1N 2N-", ""),
        ("not while one that stays is not well", json!({"replicas": 1}), "0n 1N", ""),
        ("nor one below it", json!({"replicas": 1}), "0N 1n 2N", "-w-2"),
        ("nor itself, if another is worse off", json!({"replicas": 1}), "0N 1n 2n", ""),
        ("but what has failed will not get well", json!({"replicas": 1}), "0N 1nF 2nF", "-w-2"),
        ("itself, if it is the first", json!({"replicas": 1}), "0N 1n", "-w-1"),
        ("all there", json!({}), "0N 1N 2N", ""),
        ("before the start", json!({"replicas": 1, "ordinals": {"start": 1}}), "0N 1N", "-w-0"),
    ];
    for (name, spec, text, expected) in rows {
        assert_eq!(acts(&set(&spec), text), expected, "{name}");
    }
}

#[test]
fn in_parallel_nobody_waits() {
    let parallel = |more: Value| {
        let mut spec = json!({"podManagementPolicy": "Parallel"});
        for (key, value) in more.as_object().unwrap() {
            spec[key] = value.clone();
        }
        set(&spec)
    };
    let rows = [
        ("all at once", json!({}), "", "+w-0 +w-1 +w-2"),
        ("beside those that are not ready", json!({}), "0n 2n-", "+w-1"),
        ("failed", json!({}), "0nF 1N", "-w-0 +w-2"),
        ("scaled down at once", json!({"replicas": 1}), "0n 1N 2N- 3n", "-w-3 -w-1"),
    ];
    for (name, spec, text, expected) in rows {
        assert_eq!(acts(&parallel(spec), text), expected, "{name}");
    }
}

#[test]
fn an_update_goes_from_the_highest_ordinal_down_to_the_partition() {
    let rolling =
        |rolling: Value| json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": rolling}});
    let parallel = |rolling: Value| json!({"podManagementPolicy": "Parallel", "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": rolling}});
    let rows = [
        ("the highest", rolling(json!({"partition": 0})), "0O 1O 2O", "-w-2"),
        ("made anew", rolling(json!({"partition": 0})), "0O 1O", "+w-2"),
        ("not ready yet", rolling(json!({"partition": 0})), "0O 1O 2n", ""),
        ("the next", rolling(json!({"partition": 0})), "0O 1O 2N", "-w-1"),
        ("not below the partition", rolling(json!({"partition": 2})), "0O 1O 2N", ""),
        ("below it the old one is made", rolling(json!({"partition": 2})), "0O 2N", "+w-1(old)"),
        ("several at a time", rolling(json!({"partition": 0, "maxUnavailable": 2})), "0O 1O 2O", "-w-2 -w-1"),
        (
            "a share, rounded down",
            rolling(json!({"partition": 0, "maxUnavailable": "50%"})),
            "0O 1O 2O",
            "-w-2",
        ),
        ("by deletion only", json!({"updateStrategy": {"type": "OnDelete"}}), "0O 1O 2O", ""),
        ("which brings the new one", json!({"updateStrategy": {"type": "OnDelete"}}), "0O 1O", "+w-2"),
        ("scaling comes first", json!({"replicas": 2}), "0O 1O 2O", "-w-2"),
        ("in order, one that is broken is in the way", rolling(json!({"partition": 0})), "0O 1O 2o", ""),
        ("in parallel it goes", parallel(json!({"partition": 0})), "0O 1O 2o", "-w-2"),
        ("and only that", parallel(json!({"partition": 0, "maxUnavailable": 2})), "0O 1o 2O", "-w-2 -w-1"),
    ];
    for (name, spec, text, expected) in rows {
        assert_eq!(acts(&set(&spec), text), expected, "{name}");
    }
}

#[test]
fn claims_come_before_their_pod_and_are_mended() {
    let claims = json!([{"metadata": {"name": "data"}, "spec": {}}]);
    let keeps = json!({"replicas": 1, "volumeClaimTemplates": claims});
    let drops = json!({"replicas": 1, "volumeClaimTemplates": claims,
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Delete"}});
    let claim = |ordinal: i32, owner: Value, going: bool| {
        json!({"metadata": {"name": format!("data-w-{ordinal}"),
        "ownerReferences": owner, "deletionTimestamp": going.then_some("2026-01-01T11:00:00Z")}, "spec": {}})
    };
    let of_set = || json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "w", "uid": "u", "controller": true, "blockOwnerDeletion": true}]);
    let of_pod = |uid: &str| json!([{"apiVersion": "v1", "kind": "Pod", "name": "w-0", "uid": uid, "controller": true, "blockOwnerDeletion": true}]);
    let rows = [
        ("with its Pod", &keeps, "", vec![], "+data-w-0 +w-0"),
        ("there already", &keeps, "", vec![claim(0, json!([]), false)], "+w-0"),
        ("on its way out", &keeps, "", vec![claim(0, json!([]), true)], "w-0: pvc data-w-0 is being deleted"),
        ("lost before the Pod ran", &keeps, "0nP", vec![], "+data-w-0"),
        ("lost later", &keeps, "0N", vec![], ""),
        ("going with an earlier Pod", &drops, "", vec![claim(0, of_pod("earlier"), false)], ""),
        ("to go with the set", &drops, "0N", vec![claim(0, json!([]), false)], "data-w-0<u"),
        (
            "to go with a Pod that is scaled away",
            &drops,
            "0N 1N",
            vec![claim(0, of_set(), false), claim(1, of_set(), false)],
            "data-w-1<p1 -w-1",
        ),
        ("no longer", &keeps, "0N", vec![claim(0, of_set(), false)], "data-w-0<"),
    ];
    for (name, spec, text, claims, expected) in rows {
        assert_eq!(acts_with(&set(spec), text, &claims), expected, "{name}");
    }
}

#[test]
fn the_status_counts_by_revision_and_ends_an_update() {
    let said = |spec: &Value, text: &str| {
        let (current, update) = revisions();
        let (set, pods) = (set(spec), pods(text));
        let turn = Turn {
            set: &set,
            current: &current,
            update: &update,
            pods: &pods,
            claims: &BTreeMap::new(),
            now: now(),
        };
        let status = status(&turn, 0);
        let n = |n: Option<i32>| n.unwrap_or_default();
        format!(
            "{} ready {} available {} current {} updated {} of {}",
            status.replicas,
            n(status.ready_replicas),
            n(status.available_replicas),
            n(status.current_replicas),
            n(status.updated_replicas),
            status.current_revision.unwrap_or_default()
        )
    };
    assert_eq!(said(&json!({}), "0O 1o 2N"), "3 ready 2 available 2 current 2 updated 1 of old");
    assert_eq!(said(&json!({}), "0O 1O- 2n"), "3 ready 2 available 2 current 1 updated 1 of old");
    assert_eq!(
        said(&json!({"minReadySeconds": 7200}), "0N 1N 2N"),
        "3 ready 3 available 0 current 3 updated 3 of new"
    );
    assert_eq!(said(&json!({}), "0N 1N 2N"), "3 ready 3 available 3 current 3 updated 3 of new");
    assert_eq!(said(&json!({"replicas": 2}), "0N 1N 2N"), "3 ready 3 available 3 current 0 updated 3 of old");
}
