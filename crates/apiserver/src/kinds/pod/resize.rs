//! A change through `pods/resize`: how much CPU and memory a Pod's containers have.

use super::admit::qos;
use super::validate;
use crate::kinds::Cause;
use crate::kinds::fields::{entries, items, items_mut, set, take, text};
use serde_json::{Map, Value};

/// The resources that may change.
const RESIZABLE: [&str; 2] = ["cpu", "memory"];
/// Containers that have resources.
const LISTS: [&str; 2] = ["containers", "initContainers"];

/// The stored Pod with the resources, and when to restart for them, of another.
pub fn take_over(old: &Value, new: &Value) -> Value {
    let mut pod = old.clone();
    for list in LISTS {
        let wanted = items(&new["spec"], list).to_vec();
        for (i, container) in items_mut(&mut pod["spec"], list).enumerate() {
            let Some(by_name) = wanted.iter().find(|c| c["name"] == container["name"]).or(wanted.get(i))
            else {
                continue;
            };
            for field in ["resources", "resizePolicy"] {
                match by_name.get(field) {
                    Some(value) => set(container, field, value.clone()),
                    None => drop(take(container, field)),
                }
            }
        }
    }
    for field in ["resources"] {
        match new["spec"].get(field) {
            Some(value) => set(&mut pod["spec"], field, value.clone()),
            None => drop(take(&mut pod["spec"], field)),
        }
    }
    pod
}

/// What is wrong with the change.
pub fn check(new: &Value, old: &Value) -> Vec<Cause> {
    let mut causes = validate::spec(&new["spec"], "spec");
    if !old["metadata"]["annotations"]["kubernetes.io/config.mirror"].is_null() {
        return vec![Cause::forbidden("", "static pods cannot be resized")];
    }
    if old["spec"]["os"]["name"] == "windows" {
        return vec![Cause::forbidden("", "windows pods cannot be resized")];
    }
    let class = qos(&new["spec"]);
    if class != qos(&old["spec"]) {
        let detail = "Pod QOS Class may not change as a result of resizing";
        causes.push(Cause::invalid("spec", text(&old["status"], "qosClass"), detail));
    }
    for list in LISTS {
        let (after, before) = (items(&new["spec"], list), items(&old["spec"], list));
        for (i, (after, before)) in after.iter().zip(before).enumerate() {
            let path = format!("spec.{list}[{i}]");
            causes.extend(removed(after, before, &path));
            if others(after) != others(before) {
                causes.push(Cause::forbidden("spec", "only cpu and memory resources are mutable"));
            }
            let sidecar = before["restartPolicy"] == "Always";
            if list == "initContainers" && !sidecar && after["resources"] != before["resources"] {
                let detail = "resources for non-sidecar init containers are immutable";
                causes.push(Cause::forbidden("spec", detail));
            }
        }
    }
    causes
}

/// What was set is changed, not taken away.
fn removed(after: &Value, before: &Value, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    for kind in ["limits", "requests"] {
        let gone = entries(&before["resources"], kind)
            .any(|(name, _)| RESIZABLE.contains(&name.as_str()) && after["resources"][kind][name].is_null());
        if gone {
            let detail = format!("resource {kind} cannot be removed");
            causes.push(Cause::forbidden(format!("{path}.resources.{kind}"), &detail));
        }
    }
    causes
}

/// A container's resources but those that may change.
fn others(container: &Value) -> Value {
    let mut resources = container["resources"].clone();
    for kind in ["limits", "requests"] {
        if let Some(map) = resources.get_mut(kind).and_then(Value::as_object_mut) {
            RESIZABLE.iter().for_each(|name| drop(map.remove(*name)));
        }
        if resources[kind].as_object().is_none_or(Map::is_empty) && resources.is_object() {
            take(&mut resources, kind);
        }
    }
    resources
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(resources: Value) -> Value {
        json!({"spec": {"restartPolicy": "Always", "dnsPolicy": "Default", "containers": [{"name": "c", "image": "i", "resources": resources}]}})
    }

    fn wrong(new: Value, old: Value) -> Vec<String> {
        check(&pod(new), &pod(old)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn only_amounts_of_cpu_and_memory_change_and_the_class_stays() {
        let old = json!({"requests": {"cpu": "1", "memory": "1Gi"}});
        assert!(wrong(json!({"requests": {"cpu": "2", "memory": "1Gi"}}), old.clone()).is_empty());
        assert_eq!(
            wrong(json!({"requests": {"memory": "1Gi"}}), old.clone()),
            ["spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed"]
        );
        assert_eq!(
            wrong(
                json!({"requests": {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi"}}),
                old.clone()
            ),
            ["spec: Forbidden: only cpu and memory resources are mutable"]
        );
        let same = json!({"cpu": "1", "memory": "1Gi"});
        assert!(
            wrong(json!({"requests": same, "limits": same}), old)[0].contains("Pod QOS Class may not change")
        );
    }

    #[test]
    fn nothing_but_resources_is_taken_over() {
        let mut new = pod(json!({"requests": {"cpu": "2"}}));
        new["spec"]["containers"][0]["image"] = json!("other");
        let taken = take_over(&pod(json!({})), &new);
        assert_eq!(taken["spec"]["containers"][0]["image"], "i");
        assert_eq!(taken["spec"]["containers"][0]["resources"]["requests"]["cpu"], "2");
    }
}
