//! LimitRanges: what containers of a namespace ask for unless they say it, and how much they, Pods and claims may ask for.

use serde_json::{Value, json};
use trine_objects::pod_resources::{Amounts, Kind, of_container, of_pod};
use trine_objects::quantity::{Quantity, from_value};
use trine_objects::quota::amounts;

use super::Change;
use crate::kinds::Objects;
use crate::registry::{Registry, text};
use crate::status::ApiError;

/// Says on a Pod what was filled in.
const NOTE: &str = "kubernetes.io/limit-ranger";

/// The limits of a namespace, by name of their ranges.
fn ranges(registry: &Registry, namespace: &Value) -> Vec<Value> {
    let mut ranges = registry.list_in("", "limitranges", text(namespace));
    ranges.sort_by_key(|r| text(&r["metadata"]["name"]).to_owned());
    ranges.into_iter().flat_map(|r| r["spec"]["limits"].as_array().cloned().unwrap_or_default()).collect()
}

/// Fills in what the containers of a new Pod ask for.
pub fn mutate(registry: &Registry, change: &Change<'_>, new: &mut Value) {
    if change.old.is_some() || !change.is_of("", "pods") {
        return;
    }
    fill(new, &ranges(registry, &new["metadata"]["namespace"]));
}

fn fill(pod: &mut Value, limits: &[Value]) {
    let (mut requests, mut most) = (Amounts::new(), Amounts::new());
    for limit in limits.iter().filter(|l| l["type"] == "Container") {
        requests.extend(amounts(&limit["defaultRequest"]));
        most.extend(amounts(&limit["default"]));
    }
    if requests.is_empty() && most.is_empty() {
        return;
    }
    let mut notes = Vec::new();
    for (list, what) in [("containers", "container"), ("initContainers", "init container")] {
        for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
            let name = text(&container["name"]).to_owned();
            for (kind, word, defaults) in
                [(Kind::Requests, "request", &requests), (Kind::Limits, "limit", &most)]
            {
                let filled = fill_one(container, kind, defaults);
                if !filled.is_empty() {
                    notes.push(format!("{} {word} for {what} {name}", filled.join(", ")));
                }
            }
        }
    }
    if notes.is_empty() {
        return;
    }
    if !pod["metadata"]["annotations"].is_object() {
        pod["metadata"]["annotations"] = json!({});
    }
    pod["metadata"]["annotations"][NOTE] = format!("LimitRanger plugin set: {}", notes.join("; ")).into();
}

/// Sets what a container leaves open; gives the names.
fn fill_one(container: &mut Value, kind: Kind, defaults: &Amounts) -> Vec<String> {
    let has = of_container(container, kind);
    let lacking: Vec<_> = defaults.iter().filter(|(name, _)| !has.contains_key(*name)).collect();
    for (name, amount) in &lacking {
        for (parent, field) in [(None, "resources"), (Some("resources"), kind.field())] {
            let holder = match parent {
                None => &mut *container,
                Some(parent) => &mut container[parent],
            };
            if !holder[field].is_object() {
                holder[field] = json!({});
            }
        }
        container["resources"][kind.field()][name.as_str()] = amount.to_string().into();
    }
    lacking.into_iter().map(|(name, _)| name.clone()).collect()
}

/// Refuses a Pod or a claim that asks for too little or too much.
pub fn validate(registry: &Registry, change: &Change<'_>, new: &Value) -> Result<(), ApiError> {
    let pods = change.resource.group.is_empty() && change.resource.plural == "pods";
    let wanted = match change.subresource {
        "" if pods => change.old.is_none(),
        "resize" => pods,
        "" => change.is_of("", "persistentvolumeclaims"),
        _ => false,
    };
    if !wanted {
        return Ok(());
    }
    let limits = ranges(registry, &new["metadata"]["namespace"]);
    let found = if pods { against_pod(new, &limits) } else { against_claim(new, &limits) };
    match found.as_slice() {
        [] => Ok(()),
        [one] => Err(change.denied(new, one.as_str())),
        many => Err(change.denied(new, format!("[{}]", many.join(", ")))),
    }
}

fn against_pod(pod: &Value, limits: &[Value]) -> Vec<String> {
    let mut found = Vec::new();
    for limit in limits {
        match text(&limit["type"]) {
            "Container" => {
                for list in ["containers", "initContainers"] {
                    for container in pod["spec"][list].as_array().into_iter().flatten() {
                        let requests = of_container(container, Kind::Requests);
                        let most = of_container(container, Kind::Limits);
                        found.extend(against(limit, &requests, &most));
                    }
                }
            }
            "Pod" => {
                let (requests, most) = (of_pod(pod, Kind::Requests), of_pod(pod, Kind::Limits));
                found.extend(against(limit, &requests, &most));
            }
            _ => {}
        }
    }
    found
}

fn against_claim(claim: &Value, limits: &[Value]) -> Vec<String> {
    let asked = of_container(&claim["spec"], Kind::Requests);
    let mut found = Vec::new();
    for limit in limits.iter().filter(|l| l["type"] == "PersistentVolumeClaim") {
        for (name, min) in amounts(&limit["min"]) {
            let head = format!("minimum {name} usage per PersistentVolumeClaim is {min}");
            match asked.get(&name) {
                None => found.push(format!("{head}.  No request is specified")),
                Some(amount) if *amount < min => found.push(format!("{head}, but request is {amount}")),
                Some(_) => {}
            }
        }
        for (name, max) in amounts(&limit["max"]) {
            let head = format!("maximum {name} usage per PersistentVolumeClaim is {max}");
            match asked.get(&name) {
                None => found.push(format!("{head}.  No request is specified")),
                Some(amount) if *amount > max => found.push(format!("{head}, but request is {amount}")),
                Some(_) => {}
            }
        }
    }
    found
}

/// What a limit has against requests and limits.
fn against(limit: &Value, requests: &Amounts, most: &Amounts) -> Vec<String> {
    let kind = text(&limit["type"]);
    let mut found = Vec::new();
    for (name, min) in amounts(&limit["min"]) {
        let head = format!("minimum {name} usage per {kind} is {min}");
        match (requests.get(&name), most.get(&name)) {
            (None, _) => found.push(format!("{head}.  No request is specified")),
            (Some(request), _) if *request < min => {
                found.push(format!("{head}, but request is {request}"));
            }
            (_, Some(top)) if *top < min => found.push(format!("{head}, but limit is {top}")),
            _ => {}
        }
    }
    for (name, max) in amounts(&limit["max"]) {
        let head = format!("maximum {name} usage per {kind} is {max}");
        match (requests.get(&name), most.get(&name)) {
            (_, None) => found.push(format!("{head}.  No limit is specified")),
            (_, Some(top)) if *top > max => found.push(format!("{head}, but limit is {top}")),
            (Some(request), _) if *request > max => {
                found.push(format!("{head}, but request is {request}"));
            }
            _ => {}
        }
    }
    for (name, max) in amounts(&limit["maxLimitRequestRatio"]) {
        let head = format!("{name} max limit to request ratio per {kind} is {max}");
        let amount = |of: &Amounts| of.get(&name).copied().filter(|q| !q.is_zero());
        match (amount(requests), amount(most)) {
            (None, _) => found.push(format!("{head}, but no request is specified or request is 0")),
            (_, None) => found.push(format!("{head}, but no limit is specified or limit is 0")),
            (Some(request), Some(top)) => {
                let ratio = ratio(top, request);
                let allowed = from_value(&limit["maxLimitRequestRatio"][&name]);
                if allowed.is_ok_and(|max| ratio > thousandths(max)) {
                    found.push(format!("{head}, but provided ratio is {ratio:.6}"));
                }
            }
        }
    }
    found
}

#[expect(clippy::cast_precision_loss, reason = "shown with six digits")]
fn ratio(top: Quantity, request: Quantity) -> f64 {
    top.milli() as f64 / request.milli() as f64
}

#[expect(clippy::cast_precision_loss, reason = "compared with a ratio")]
fn thousandths(quantity: Quantity) -> f64 {
    quantity.milli() as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_are_filled_and_the_pod_says_so() {
        let mut pod = json!({"metadata": {}, "spec": {"containers": [{"name": "a"}, {"name": "b", "resources": {"requests": {"cpu": "1"}}}]}});
        let limits = [
            json!({"type": "Container", "default": {"cpu": "2"}, "defaultRequest": {"cpu": "500m", "memory": "1Gi"}}),
        ];
        fill(&mut pod, &limits);
        let containers = &pod["spec"]["containers"];
        assert_eq!(
            containers[0]["resources"],
            json!({"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "2"}})
        );
        assert_eq!(containers[1]["resources"]["requests"], json!({"cpu": "1", "memory": "1Gi"}));
        assert_eq!(
            pod["metadata"]["annotations"][NOTE],
            "LimitRanger plugin set: cpu, memory request for container a; cpu limit for container a; memory request for \
             container b; cpu limit for container b"
        );
    }

    #[test]
    fn what_is_outside_of_the_limits_is_named() {
        let pod = |resources: Value| json!({"spec": {"containers": [{"name": "a", "resources": resources}]}});
        let limit = [
            json!({"type": "Container", "min": {"cpu": "100m"}, "max": {"cpu": "1"}, "maxLimitRequestRatio": {"cpu": "2"}}),
        ];
        for (resources, wanted) in [
            (json!({"requests": {"cpu": "500m"}, "limits": {"cpu": "1"}}), vec![]),
            (
                json!({"requests": {"cpu": "50m"}, "limits": {"cpu": "100m"}}),
                vec!["minimum cpu usage per Container is 100m, but request is 50m"],
            ),
            (
                json!({"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}),
                vec!["maximum cpu usage per Container is 1, but limit is 2"],
            ),
            (
                json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "1"}}),
                vec!["cpu max limit to request ratio per Container is 2, but provided ratio is 10.000000"],
            ),
            (
                json!({}),
                vec![
                    "minimum cpu usage per Container is 100m.  No request is specified",
                    "maximum cpu usage per Container is 1.  No limit is specified",
                    "cpu max limit to request ratio per Container is 2, but no request is specified or request is 0",
                ],
            ),
        ] {
            assert_eq!(against_pod(&pod(resources), &limit), wanted);
        }
        let claim = json!({"spec": {"resources": {"requests": {"storage": "3Gi"}}}});
        let limit = [json!({"type": "PersistentVolumeClaim", "max": {"storage": "2Gi"}})];
        assert_eq!(
            against_claim(&claim, &limit),
            ["maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi"]
        );
    }
}
