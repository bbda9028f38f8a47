//! What drivers say of the devices that a claim has (`status.devices`). Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::fields::{items, text};
use super::{Cause, Causes};
use serde_json::Value;

/// The most conditions of a device. Source: `AllocatedDeviceStatusMaxConditions`.
const CONDITIONS_MAX: usize = 8;
/// The most bytes that a driver may say of a device in its own words. Source: `AllocatedDeviceStatusDataMaxLength`.
const DATA_MAX: usize = 10 * 1024;

/// Driver, pool, device, share: one device, or one's part of it.
type Id<'a> = [&'a str; 4];

fn id(device: &Value) -> Id<'_> {
    ["driver", "pool", "device", "shareID"].map(|field| text(device, field))
}

/// The devices that a claim has.
fn allocated(status: &Value) -> BTreeSet<Id<'_>> {
    items(&status["allocation"]["devices"], "results").iter().map(id).collect()
}

/// Takes away what is said of devices that a change gives back.
pub fn forget_given_back(new: &mut Value, old: &Value) {
    let given_back: BTreeSet<[String; 4]> = {
        let kept = allocated(&new["status"]);
        let gone = allocated(&old["status"]).into_iter().filter(|id| !kept.contains(id));
        gone.map(|id| id.map(str::to_owned)).collect()
    };
    let Some(status) = new["status"].as_object_mut() else { return };
    let Some(devices) = status.get_mut("devices").and_then(Value::as_array_mut) else { return };
    devices.retain(|device| !given_back.contains(&id(device).map(str::to_owned)));
    if devices.is_empty() {
        status.remove("devices");
    }
}

/// What is wrong with what is said.
pub fn check(status: &Value, causes: &mut Causes) {
    let allocated = allocated(status);
    let devices = items(status, "devices");
    for (i, device) in devices.iter().enumerate() {
        let (path, id) = (format!("status.devices[{i}]"), id(device));
        let shown = || id.iter().copied().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/");
        for field in ["driver", "pool", "device"] {
            causes.needed(device, field, &path);
        }
        if !allocated.contains(&id) {
            causes.add(Cause::invalid(&*path, shown(), "must be an allocated device in the claim"));
        }
        if devices[..i].iter().any(|other| self::id(other) == id) {
            causes.add(Cause::duplicate(&*path, shown()));
        }
        let conditions = items(device, "conditions");
        if conditions.len() > CONDITIONS_MAX {
            causes.add(Cause::too_many(format!("{path}.conditions"), conditions.len(), CONDITIONS_MAX));
        }
        let data = &device["data"];
        if !data.is_null() && !data.is_object() {
            let detail = "must be a valid JSON object";
            causes.add(Cause::invalid(format!("{path}.data"), "<value omitted>", detail));
        } else if data.to_string().len() > DATA_MAX {
            causes.add(Cause::too_long(format!("{path}.data"), DATA_MAX));
        }
    }
}

/// The drivers of whose devices a change says something else.
#[must_use]
pub fn changed_drivers(new: &Value, old: &Value) -> BTreeSet<String> {
    let of = |status| items(status, "devices").iter().map(|device| (id(device), device));
    let (after, before): (BTreeMap<_, _>, BTreeMap<_, _>) = (of(new).collect(), of(old).collect());
    let all = after.keys().chain(before.keys());
    all.filter(|id| after.get(*id) != before.get(*id)).map(|id| id[0].to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn status(allocated: &[&str], said: &[(&str, &str)]) -> Value {
        let results: Vec<Value> = allocated
            .iter()
            .map(|device| json!({"driver": "d", "pool": "p", "device": device, "request": "r"}))
            .collect();
        let devices: Vec<Value> = said
            .iter()
            .map(|(device, data)| json!({"driver": "d", "pool": "p", "device": device, "data": {"a": data}}))
            .collect();
        json!({"allocation": {"devices": {"results": results}}, "devices": devices})
    }

    #[test]
    fn what_is_said_of_a_device_goes_with_it() {
        let old = json!({"status": status(&["0", "1"], &[("0", "x"), ("1", "y")])});
        let mut new = json!({"status": status(&["1"], &[("0", "x"), ("1", "y")])});
        forget_given_back(&mut new, &old);
        assert_eq!(new["status"], status(&["1"], &[("1", "y")]));
        let mut none = json!({"status": {"devices": old["status"]["devices"]}});
        forget_given_back(&mut none, &old);
        assert_eq!(none["status"], json!({}));
        let mut unknown = json!({"status": status(&["1"], &[("7", "x")])});
        let before = unknown.clone();
        forget_given_back(&mut unknown, &old);
        assert_eq!(unknown, before, "that it is none of the claim's is told");
    }

    #[test]
    fn only_devices_of_the_claim_are_spoken_of_once_and_in_an_object() {
        let said = |status: &Value| {
            let mut causes = Causes::default();
            check(status, &mut causes);
            causes.0.iter().map(Cause::to_string).collect::<Vec<_>>()
        };
        assert!(said(&status(&["0"], &[("0", "x")])).is_empty());
        let other = said(&status(&["0"], &[("1", "x")]));
        let why = "must be an allocated device in the claim";
        assert_eq!(other, [format!("status.devices[0]: Invalid value: \"d/p/1\": {why}")]);
        let twice = said(&status(&["0"], &[("0", "x"), ("0", "y")]));
        assert_eq!(twice, ["status.devices[1]: Duplicate value: \"d/p/0\""]);
        let mut text = status(&["0"], &[("0", "x")]);
        text["devices"][0]["data"] = json!("words");
        assert_eq!(said(&text).len(), 1);
        let long = status(&["0"], &[("0", &"x".repeat(DATA_MAX))]);
        assert!(said(&long)[0].contains("Too long"), "{:?}", said(&long));
    }

    #[test]
    fn drivers_are_asked_of_whose_devices_something_else_is_said() {
        let drivers = |new: &Value, old: &Value| changed_drivers(new, old).into_iter().collect::<Vec<_>>();
        let (none, one, other) =
            (status(&["0"], &[]), status(&["0"], &[("0", "x")]), status(&["0"], &[("0", "y")]));
        assert_eq!(drivers(&one, &none), ["d"], "new");
        assert_eq!(drivers(&other, &one), ["d"], "changed");
        assert_eq!(drivers(&none, &one), ["d"], "gone");
        assert!(drivers(&one, &one).is_empty());
    }
}
