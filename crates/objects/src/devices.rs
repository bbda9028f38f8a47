//! Claims of devices and what drivers offer have three forms: `resource.k8s.io/v1`, which is stored; `v1beta2`, which differs by its
//! name; and `v1beta1`, in which a request is itself what `exactly` holds, and a device has what it is under `basic`.

use serde_json::{Map, Value, json};

use crate::resources::Resource;

/// Turns an object of `resource` into v1.
pub fn to_v1(resource: &Resource, object: &mut Value) {
    object["apiVersion"] = "resource.k8s.io/v1".into();
    if resource.version != "v1beta1" {
        return;
    }
    requests(resource, object).for_each(request_to_v1);
    if resource.plural == "resourceslices"
        && let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
    {
        spec.retain(|key, value| match key.as_str() {
            "nodeName" => value != "",
            "allNodes" => value != false,
            _ => true,
        });
        devices(spec).for_each(device_to_v1);
    }
}

/// Turns an object of v1 into the form of `resource`.
pub fn from_v1(resource: &Resource, object: &mut Value) {
    object["apiVersion"] = resource.api_version().into();
    if resource.version != "v1beta1" {
        return;
    }
    requests(resource, object).for_each(request_from_v1);
    if resource.plural == "resourceslices"
        && let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
    {
        devices(spec).for_each(device_from_v1);
    }
}

/// The requests of a claim, or of the claim that a template has.
fn requests<'a>(
    resource: &Resource,
    object: &'a mut Value,
) -> impl Iterator<Item = &'a mut Map<String, Value>> {
    let path = match &*resource.plural {
        "resourceclaims" => "/spec/devices/requests",
        "resourceclaimtemplates" => "/spec/spec/devices/requests",
        _ => "/none",
    };
    let list = object.pointer_mut(path).and_then(Value::as_array_mut);
    list.into_iter().flatten().filter_map(Value::as_object_mut)
}

fn devices(spec: &mut Map<String, Value>) -> impl Iterator<Item = &mut Map<String, Value>> {
    let list = spec.get_mut("devices").and_then(Value::as_array_mut);
    list.into_iter().flatten().filter_map(Value::as_object_mut)
}

/// Takes out what is not among `stays`.
fn others(object: &mut Map<String, Value>, stays: &[&str]) -> Map<String, Value> {
    let (kept, others) =
        std::mem::take(object).into_iter().partition(|(key, _)| stays.contains(&key.as_str()));
    *object = kept;
    others
}

fn request_to_v1(request: &mut Map<String, Value>) {
    let exactly = others(request, &["name", "firstAvailable"]);
    // It may be wrong beside alternatives; that is for the check to say.
    if exactly.values().any(|value| !(value.is_null() || value == "" || value == 0)) {
        request.insert("exactly".to_owned(), exactly.into());
    }
}

fn request_from_v1(request: &mut Map<String, Value>) {
    if let Some(Value::Object(exactly)) = request.remove("exactly") {
        request.extend(exactly);
    }
}

fn device_to_v1(device: &mut Map<String, Value>) {
    let basic = device.remove("basic");
    let _ = others(device, &["name"]);
    if let Some(Value::Object(basic)) = basic {
        device.extend(basic);
    }
}

fn device_from_v1(device: &mut Map<String, Value>) {
    let basic = others(device, &["name"]);
    device.insert("basic".to_owned(), json!(basic));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::find;
    use crate::schema::{check, of};

    /// Both forms of an object of each kind that differs.
    fn pairs() -> [(&'static str, Value, Value); 3] {
        let requests = json!([
            {"name": "a", "deviceClassName": "gold", "allocationMode": "ExactCount", "count": 2, "selectors": [{"cel": {"expression": "true"}}]},
            {"name": "b", "firstAvailable": [{"name": "x", "deviceClassName": "tin", "allocationMode": "All"}]}]);
        let new = json!([
            {"name": "a", "exactly": {"deviceClassName": "gold", "allocationMode": "ExactCount", "count": 2,
                "selectors": [{"cel": {"expression": "true"}}]}},
            {"name": "b", "firstAvailable": [{"name": "x", "deviceClassName": "tin", "allocationMode": "All"}]}]);
        let whole = |version: &str, kind: &str, spec: Value| {
            json!({"apiVersion": format!("resource.k8s.io/{version}"), "kind": kind,
            "metadata": {"name": "x"}, "spec": spec})
        };
        let claim = |requests: &Value| json!({"devices": {"requests": requests}});
        let slice = |devices: Value| {
            json!({"driver": "d.io", "nodeName": "n", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            "devices": devices})
        };
        let what = json!({"attributes": {"size": {"int": 3}}, "capacity": {"memory": {"value": "1Gi"}},
            "taints": [{"key": "k", "effect": "NoSchedule"}]});
        let mut flat = what.clone();
        flat["name"] = "one".into();
        [
            (
                "resourceclaims",
                whole("v1beta1", "ResourceClaim", claim(&requests)),
                whole("v1", "ResourceClaim", claim(&new)),
            ),
            (
                "resourceclaimtemplates",
                whole("v1beta1", "ResourceClaimTemplate", json!({"spec": claim(&requests)})),
                whole("v1", "ResourceClaimTemplate", json!({"spec": claim(&new)})),
            ),
            (
                "resourceslices",
                whole(
                    "v1beta1",
                    "ResourceSlice",
                    slice(json!([{"name": "one", "basic": what}, {"name": "two", "basic": {}}])),
                ),
                whole("v1", "ResourceSlice", slice(json!([flat, {"name": "two"}]))),
            ),
        ]
    }

    #[test]
    fn requests_and_devices_of_v1beta1_are_those_of_v1_and_come_back_as_they_were() {
        for (plural, old, new) in pairs() {
            let resource = find("resource.k8s.io", "v1beta1", plural).unwrap();
            for (version, object) in [("v1beta1", &old), ("v1", &new)] {
                let ty = of("resource.k8s.io", version, &resource.kind).unwrap();
                let errors: Vec<String> = check(ty, object).iter().map(ToString::to_string).collect();
                assert_eq!(errors, Vec::<String>::new(), "{plural} {version}");
            }
            let mut object = old.clone();
            to_v1(resource, &mut object);
            assert_eq!(object, new, "{plural}");
            from_v1(resource, &mut object);
            assert_eq!(object, old, "{plural}");
        }
    }

    #[test]
    fn v1beta2_differs_by_its_name() {
        for (plural, _, new) in pairs() {
            let resource = find("resource.k8s.io", "v1beta2", plural).unwrap();
            let mut object = new.clone();
            from_v1(resource, &mut object);
            assert_eq!(object["apiVersion"], "resource.k8s.io/v1beta2");
            assert_eq!(object["spec"], new["spec"], "{plural}");
            to_v1(resource, &mut object);
            assert_eq!(object, new, "{plural}");
        }
    }

    #[test]
    fn what_old_clients_write_for_nothing_is_nothing() {
        let slices = find("resource.k8s.io", "v1beta1", "resourceslices").unwrap();
        let mut slice = json!({"spec": {"nodeName": "", "allNodes": false, "nodeSelector": {}}});
        to_v1(slices, &mut slice);
        assert_eq!(slice["spec"], json!({"nodeSelector": {}}));
        let claims = find("resource.k8s.io", "v1beta1", "resourceclaims").unwrap();
        let mut claim = json!({"spec": {"devices": {"requests": [{"name": "a", "deviceClassName": "", "count": 0,
            "firstAvailable": [{"name": "x"}]}]}}});
        to_v1(claims, &mut claim);
        assert_eq!(
            claim["spec"]["devices"]["requests"],
            json!([{"name": "a", "firstAvailable": [{"name": "x"}]}])
        );
    }
}
