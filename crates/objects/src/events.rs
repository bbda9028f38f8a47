//! Events have two forms: that of the core group, which is stored, and that of `events.k8s.io`, with other names for the same
//! fields.

use serde_json::Value;

/// The names of the same field: in the core form, in the form of `events.k8s.io`.
const RENAMED: [(&str, &str); 7] = [
    ("count", "deprecatedCount"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("involvedObject", "regarding"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
];

/// Turns an Event of `events.k8s.io` into the core form.
pub fn to_core(event: &mut Value) {
    rename(event, "v1", |(core, other)| (other, core));
}

/// Turns an Event of the core group into the form of `events.k8s.io`.
pub fn from_core(event: &mut Value) {
    rename(event, "events.k8s.io/v1", |names| names);
}

fn rename(
    event: &mut Value,
    api_version: &str,
    direction: fn((&'static str, &'static str)) -> (&'static str, &'static str),
) {
    let Some(map) = event.as_object_mut() else { return };
    map.insert("apiVersion".to_owned(), Value::from(api_version));
    for (from, to) in RENAMED.map(direction) {
        if let Some(value) = map.remove(from) {
            map.insert(to.to_owned(), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn both_forms_say_the_same_and_turn_into_each_other() {
        let core = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "involvedObject": {"name": "p"},
            "reason": "R", "message": "m", "source": {"component": "c"}, "firstTimestamp": null, "lastTimestamp": null,
            "count": 2, "type": "Normal", "eventTime": null, "reportingComponent": "c", "reportingInstance": "i"});
        let mut event = core.clone();
        from_core(&mut event);
        let ty = crate::schema::of("events.k8s.io", "v1", "Event").unwrap();
        assert_eq!(crate::schema::check(ty, &event), []);
        assert_eq!((&event["note"], &event["regarding"]["name"]), (&json!("m"), &json!("p")));
        to_core(&mut event);
        assert_eq!(event, core);
    }
}
