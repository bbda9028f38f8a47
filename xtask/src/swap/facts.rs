//! What is seen of the story, as far as it must be the same whoever plays: nothing of names, addresses, times. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// What is seen: a path and what is there.
pub type Facts = BTreeMap<String, String>;

/// Notes the fields of an object at these pointers, without what is not there.
pub fn note(facts: &mut Facts, of: &str, object: &Value, pointers: &[&str]) {
    for pointer in pointers {
        if let Some(value) = object.pointer(pointer) {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            facts.insert(format!("{of}{pointer}"), text);
        }
    }
}

/// Notes the names in an object, for instance its annotations' or the states of a container.
pub fn note_names(facts: &mut Facts, of: &str, object: &Value, pointer: &str) {
    let names: Vec<&str> = object
        .pointer(pointer)
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(name, _)| &**name)
        .collect();
    facts.insert(format!("{of}{pointer}"), names.join(" "));
}

/// Notes the conditions of an object: each type with its status.
pub fn note_conditions(facts: &mut Facts, of: &str, object: &Value) {
    for condition in object.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten() {
        let (kind, status) = (text(condition, "type"), text(condition, "status"));
        facts.insert(format!("{of} is {kind}"), status.to_owned());
    }
}

/// Notes why events were told of an object, each reason once.
pub fn note_reasons(facts: &mut Facts, of: &str, events: &Value) {
    let events = events["items"].as_array().into_iter().flatten();
    let told = events.filter(|event| event["involvedObject"]["name"] == of && event["type"] == "Normal");
    let reasons: BTreeSet<&str> = told.map(|event| text(event, "reason")).collect();
    facts.insert(format!("events of {of}"), reasons.into_iter().collect::<Vec<_>>().join(" "));
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object[field].as_str().unwrap_or_default()
}

/// What is not the same on both sides, a sentence each.
#[must_use]
pub fn differences(seen: &Facts, alone: &Facts) -> Vec<String> {
    let paths: BTreeSet<&String> = seen.keys().chain(alone.keys()).collect();
    let none = "nothing".to_owned();
    let of = |facts: &Facts, path: &String| facts.get(path).unwrap_or(&none).clone();
    paths
        .into_iter()
        .filter(|path| seen.get(*path) != alone.get(*path))
        .map(|path| format!("{path}: {}, Trine alone {}", of(seen, path), of(alone, path)))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_noted_of_two_sides_differs_only_in_what_is_not_chance() {
        let pod = |ip: &str, phase: &str| {
            json!({"metadata": {"annotations": {ip: "x"}}, "status": {"podIP": ip, "phase": phase,
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": ip}]}})
        };
        let facts = |pod: &Value| {
            let mut facts = Facts::new();
            note(&mut facts, "Pod", pod, &["/status/phase", "/status/absent"]);
            note_conditions(&mut facts, "Pod", pod);
            facts
        };
        let (a, b) = (facts(&pod("10.0.0.1", "Running")), facts(&pod("10.0.0.2", "Running")));
        assert_eq!(differences(&a, &b), Vec::<String>::new());
        assert_eq!(a.len(), 2);
        let other = facts(&pod("10.0.0.1", "Pending"));
        assert_eq!(differences(&other, &a), ["Pod/status/phase: Pending, Trine alone Running"]);
        let mut more = a.clone();
        note_names(&mut more, "Pod", &pod("k", ""), "/metadata/annotations");
        assert_eq!(differences(&more, &a), ["Pod/metadata/annotations: k, Trine alone nothing"]);
    }

    #[test]
    fn reasons_of_events_are_told_once_and_for_their_object_alone() {
        let event = |name: &str, kind: &str, reason: &str| json!({"involvedObject": {"name": name}, "type": kind, "reason": reason});
        let events = json!({"items": [
            event("web", "Normal", "Started"), event("web", "Normal", "Created"), event("web", "Normal", "Started"),
            event("web", "Warning", "FailedScheduling"), event("other", "Normal", "Killing"),
        ]});
        let mut facts = Facts::new();
        note_reasons(&mut facts, "web", &events);
        assert_eq!(facts["events of web"], "Created Started");
    }
}
