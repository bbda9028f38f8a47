//! Server-side apply: a series of writes of one object.
//!
//! The input is a JSON list of writes: `{"apply": "me", "force": true, "with": {...}}` or `{"update": "you", "with": {...}}`.
//! The first of them says which kind it is about.

use serde_json::{Value, json};
use trine_objects::apply::{ApplyError, FieldManager, Filter, Managers, OneVersion, Set, keep_times};
use trine_objects::{json as reader, schema};

/// Plays the writes. What is applied twice changes nothing the second time, and who owns what survives being written down.
#[must_use]
pub fn apply(bytes: &[u8]) -> bool {
    let Ok((Value::Array(writes), _)) = reader::parse_reporting_duplicates(bytes) else { return false };
    let Some(first) = writes.first().map(|w| &w["with"]) else { return false };
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (text(&first["apiVersion"]), text(&first["kind"]));
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", &api_version));
    let Some(ty) = schema::of(group, version, &kind) else { return false };
    let versions = OneVersion { api_version: &api_version, schema: ty.into() };
    let filter = Filter::Without(Set::of_fields(&[&["status"]]));
    let manager = FieldManager {
        versions: &versions,
        api_version: &api_version,
        kind: &kind,
        subresource: "",
        filter: &filter,
        now: "2026-01-01T00:00:00Z",
    };
    let mut live = Value::Null;
    let mut all = true;
    for write in writes.iter().take(8) {
        // The server drops what it does not know before it asks who owns it.
        let mut config = write["with"].clone();
        // Nor does it apply what has no metadata, in which the owners stand.
        if config.is_object() && config["metadata"].is_null() {
            config["metadata"] = json!({});
        }
        schema::prune(ty, &mut config);
        let with = complete(&config, &live);
        let before = if live.is_null() { bare(&api_version, &kind) } else { live.clone() };
        let new = match (write["apply"].as_str(), write["update"].as_str()) {
            (Some(name), _) => {
                let force = write["force"] == true;
                // What is removed is null until it is pruned.
                let run = |live: &Value| {
                    let mut applied = manager.apply(live, &config, name, force)?;
                    schema::prune(ty, &mut applied);
                    Ok::<_, ApplyError>(applied)
                };
                let Ok(applied) = run(&before) else {
                    all = false;
                    continue;
                };
                let mut again = run(&applied).expect("what was applied can be applied again");
                keep_times(&applied, &mut again);
                // Who applied nothing but empty lists owns nothing, and to the next apply the object is one that nobody has
                // applied to: as upstream has it, all of it is then of before the first apply.
                if !applied["metadata"]["managedFields"].is_null() {
                    // A map whose last entry went is absent, and empty when it is applied once more.
                    assert_eq!(
                        without_empty(&again),
                        without_empty(&applied),
                        "applied twice is applied once"
                    );
                }
                applied
            }
            (None, Some(name)) if with.is_object() => {
                let mut new = with;
                manager.update(&live, &mut new, name);
                new
            }
            _ => return false,
        };
        if let Ok(managers) = Managers::decode(&new["metadata"]["managedFields"]) {
            let kept = Managers::decode(&managers.encode()).expect("entries can be read again");
            assert!(kept.same_but_times(&managers), "and are the same");
        }
        live = new;
        if live["metadata"].is_object() {
            live["metadata"]["uid"] = "1".into();
        }
    }
    all
}

fn bare(api_version: &str, kind: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": {}})
}

fn without_empty(value: &Value) -> Value {
    match value {
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| (key.clone(), without_empty(value)))
            .filter(|(key, value)| key.contains(':') || value != &json!({}) && value != &json!([]))
            .collect(),
        Value::Array(items) => items.iter().map(without_empty).collect(),
        plain => plain.clone(),
    }
}

/// A replacement carries the object's uid, or the object would look new.
fn complete(with: &Value, live: &Value) -> Value {
    let mut with = with.clone();
    if with.is_object() && (with["metadata"].is_object() || with["metadata"].is_null()) {
        with["metadata"]["uid"] = live["metadata"].get("uid").cloned().unwrap_or(Value::Null);
    }
    with
}
