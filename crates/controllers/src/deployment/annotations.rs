//! What a Deployment writes on its ReplicaSets: the revision that each is, and the size that it was made for.

use std::collections::BTreeMap;

use trine_typed::k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};

use super::limits::{limits, wanted};

/// Which change of the template it is: on a ReplicaSet, and on the Deployment for the newest.
pub const REVISION: &str = "deployment.kubernetes.io/revision";
/// Which ones it was before it was rolled back to.
const HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// The Deployment's wanted number when the ReplicaSet was last resized.
const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
/// The same with the surge.
const MAX: &str = "deployment.kubernetes.io/max-replicas";
/// What is a Deployment's own, and not copied to its ReplicaSets.
const OWN: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    "deprecated.deployment.rollback.to",
    REVISION,
    HISTORY,
    DESIRED,
    MAX,
];
/// The longest history, bytes. Upstream: 2,000.
const HISTORY_MAX: usize = 2000;

/// The revision of a ReplicaSet: 0 for one without.
#[must_use]
pub fn revision(set: &ReplicaSet) -> Option<i64> {
    match annotation(set, REVISION) {
        None => Some(0),
        Some(text) => text.parse().ok(),
    }
}

/// The wanted number of the Deployment that the ReplicaSet was last resized for.
#[must_use]
pub fn desired(set: &ReplicaSet) -> Option<i32> {
    number(set, DESIRED)
}

/// The same with the surge.
#[must_use]
pub fn max(set: &ReplicaSet) -> Option<i32> {
    number(set, MAX)
}

fn annotation<'a>(set: &'a ReplicaSet, key: &str) -> Option<&'a str> {
    set.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

fn number(set: &ReplicaSet, key: &str) -> Option<i32> {
    annotation(set, key)?.parse().ok().filter(|n| *n >= 0)
}

/// Notes the size that a ReplicaSet is made for.
pub fn set_size(deployment: &Deployment, set: &mut ReplicaSet) {
    let annotations = set.metadata.annotations.get_or_insert_default();
    let most = wanted(deployment).saturating_add(limits(deployment).surge);
    annotations.insert(DESIRED.to_owned(), wanted(deployment).to_string());
    annotations.insert(MAX.to_owned(), most.to_string());
}

/// Notes on the newest ReplicaSet which revision it is, if that is higher, and what people wrote on the Deployment.
pub fn set_newest(deployment: &Deployment, set: &mut ReplicaSet, revision: i64) {
    let annotations = set.metadata.annotations.get_or_insert_default();
    let copied = deployment.metadata.annotations.iter().flatten();
    annotations
        .extend(copied.filter(|(key, _)| !OWN.contains(&key.as_str())).map(|(k, v)| (k.clone(), v.clone())));
    let before = annotations.get(REVISION).cloned();
    let old = match before.as_deref().filter(|text| !text.is_empty()).map(str::parse::<i64>) {
        None => 0,
        Some(Ok(old)) => old,
        // Somebody else's number: not ours to change.
        Some(Err(_)) => return,
    };
    if old < revision {
        annotations.insert(REVISION.to_owned(), revision.to_string());
        if let Some(before) = before {
            remember(annotations, &before);
        }
    }
}

/// Appends to the history, and drops what is oldest if it gets too long.
fn remember(annotations: &mut BTreeMap<String, String>, revision: &str) {
    let history = annotations.entry(HISTORY.to_owned()).or_default();
    if !history.is_empty() {
        history.push(',');
    }
    history.push_str(revision);
    while history.len() > HISTORY_MAX {
        match history.split_once(',') {
            Some((_, rest)) => *history = rest.to_owned(),
            None => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn set(annotations: &Value) -> ReplicaSet {
        serde_json::from_value(json!({"metadata": {"annotations": annotations}})).unwrap()
    }

    #[test]
    fn the_newest_gets_the_higher_revision_and_what_people_wrote() {
        let deployment = json!({"metadata": {"annotations": {"why": "because", REVISION: "9", "kubectl.kubernetes.io/last-applied-configuration": "{}"}}});
        let deployment: Deployment = serde_json::from_value(deployment).unwrap();
        let rows = [
            ("new", json!({}), 3, json!({REVISION: "3"})),
            ("rolled back to", json!({REVISION: "1"}), 3, json!({REVISION: "3", HISTORY: "1"})),
            ("again", json!({REVISION: "3", HISTORY: "1"}), 5, json!({REVISION: "5", HISTORY: "1,3"})),
            ("higher already", json!({REVISION: "7"}), 3, json!({REVISION: "7"})),
            (
                "a large one",
                json!({REVISION: "3546343826724305832"}),
                1,
                json!({REVISION: "3546343826724305832"}),
            ),
            ("nobody's", json!({REVISION: "x"}), 3, json!({REVISION: "x"})),
            ("its own", json!({"mine": "1"}), 3, json!({REVISION: "3", "mine": "1"})),
        ];
        for (name, before, revision, mut after) in rows {
            let mut set = set(&before);
            set_newest(&deployment, &mut set, revision);
            after["why"] = "because".into();
            assert_eq!(json!(set.metadata.annotations), after, "{name}");
        }
    }

    #[test]
    fn a_long_history_loses_its_beginning() {
        let mut annotations = BTreeMap::from([(HISTORY.to_owned(), format!("1{}", ",22".repeat(666)))]);
        remember(&mut annotations, "7");
        assert!(annotations[HISTORY].starts_with("22,22") && annotations[HISTORY].ends_with(",22,7"));
        assert!(annotations[HISTORY].len() <= HISTORY_MAX);
    }
}
