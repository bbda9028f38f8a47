//! What an object counts for in a ResourceQuota, and which quotas count it.

mod devices;

pub use devices::Beside;

use crate::pod_resources::{Amounts, Kind, of_container, of_pod};
use crate::quantity::{self, Quantity};
use crate::resources::Resource;
use crate::time;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Kinds that are counted under their own name, too.
const NAMED: [&str; 4] = ["configmaps", "replicationcontrollers", "resourcequotas", "secrets"];
/// Resources that every container has to ask for when a quota limits them.
const NEEDED: [&str; 6] = ["cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];

fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object[key].as_str().unwrap_or_default()
}

fn one() -> Quantity {
    Quantity::from_milli(1000)
}

fn count(n: usize) -> Quantity {
    Quantity::from_milli(i128::try_from(n).unwrap_or(i128::MAX / 1000) * 1000)
}

/// `count/deployments.apps`.
#[must_use]
pub fn counted_as(resource: &Resource) -> String {
    format!("count/{}", resource.qualified())
}

/// What an object uses.
#[must_use]
pub fn usage(resource: &Resource, object: &Value, now_unix: i64, beside: &Beside<'_>) -> Amounts {
    let mut used = Amounts::from([(counted_as(resource), one())]);
    match (&*resource.group, &*resource.plural) {
        ("", "pods") if !is_over(object, now_unix) => {
            used.extend(pod(&of_pod(object, Kind::Requests), &of_pod(object, Kind::Limits)));
        }
        ("", "services") => used.extend(service(&object["spec"])),
        ("", "persistentvolumeclaims") => used.extend(claim(object)),
        ("resource.k8s.io", "resourceclaims") => used.extend(beside.usage(object, now_unix)),
        ("", name) if NAMED.contains(&name) => {
            used.insert(name.to_owned(), one());
        }
        _ => {}
    }
    used
}

/// Whether a Pod does not count any more: it has ended, or should have.
fn is_over(pod: &Value, now_unix: i64) -> bool {
    let ended = matches!(text(&pod["status"], "phase"), "Succeeded" | "Failed");
    let gone = pod["metadata"]["deletionTimestamp"].as_str().and_then(time::parse);
    ended || gone.is_some_and(|at| at < now_unix)
}

fn pod(requests: &Amounts, limits: &Amounts) -> Amounts {
    let mut used = Amounts::from([("pods".to_owned(), one())]);
    for (name, amount) in requests {
        let standard = matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage");
        if standard || name.starts_with("hugepages-") {
            used.insert(name.clone(), *amount);
        }
        if standard || name.starts_with("hugepages-") || name.contains('/') {
            used.insert(format!("requests.{name}"), *amount);
        }
    }
    for (name, amount) in limits {
        if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") {
            used.insert(format!("limits.{name}"), *amount);
        }
    }
    used
}

fn service(spec: &Value) -> Amounts {
    let ports = spec["ports"].as_array().map_or(0, Vec::len);
    let (node_ports, balancers) = match text(spec, "type") {
        "NodePort" => (ports, 0),
        "LoadBalancer" if spec["allocateLoadBalancerNodePorts"] == false => {
            let given = |p: &&Value| p["nodePort"].as_i64().unwrap_or(0) != 0;
            (spec["ports"].as_array().into_iter().flatten().filter(given).count(), 1)
        }
        "LoadBalancer" => (ports, 1),
        _ => (0, 0),
    };
    Amounts::from([
        ("services".to_owned(), one()),
        ("services.nodeports".to_owned(), count(node_ports)),
        ("services.loadbalancers".to_owned(), count(balancers)),
    ])
}

fn claim(object: &Value) -> Amounts {
    let spec = &object["spec"];
    let class = object["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"].as_str();
    let class = class.unwrap_or_else(|| text(spec, "storageClassName"));
    let mut used = Amounts::from([("persistentvolumeclaims".to_owned(), one())]);
    let asked = quantity::from_value(&spec["resources"]["requests"]["storage"]).ok();
    if let Some(asked) = asked {
        used.insert("requests.storage".to_owned(), asked);
    }
    if !class.is_empty() {
        let of_class = |what: &str| format!("{class}.storageclass.storage.k8s.io/{what}");
        used.insert(of_class("persistentvolumeclaims"), one());
        if let Some(asked) = asked {
            used.insert(of_class("requests.storage"), asked);
        }
    }
    used
}

/// The limits of a quota that an object of a kind can use.
#[must_use]
pub fn concerned<'a>(hard: &'a Amounts, resource: &Resource, beside: &Beside<'_>) -> Vec<&'a str> {
    let own = counted_as(resource);
    let concerns = |name: &str| {
        name == own
            || match (&*resource.group, &*resource.plural) {
                ("", "pods") => {
                    matches!(name, "pods" | "cpu" | "memory" | "ephemeral-storage")
                        || name.starts_with("hugepages-")
                        || name.starts_with("limits.")
                        || name.strip_prefix("requests.").is_some_and(|r| r != "storage")
                }
                ("", "services") => {
                    matches!(name, "services" | "services.nodeports" | "services.loadbalancers")
                }
                ("", "persistentvolumeclaims") => {
                    matches!(name, "persistentvolumeclaims" | "requests.storage")
                        || name.contains(".storageclass.storage.k8s.io/")
                }
                ("resource.k8s.io", "resourceclaims") => beside.concerns(name),
                ("", plural) => NAMED.contains(&plural) && name == plural,
                _ => false,
            }
    };
    hard.keys().map(String::as_str).filter(|name| concerns(name)).collect()
}

/// Amounts of a list as `spec.hard`.
#[must_use]
pub fn amounts(list: &Value) -> Amounts {
    let entries = list.as_object().into_iter().flatten();
    entries.filter_map(|(name, v)| Some((name.clone(), quantity::from_value(v).ok()?))).collect()
}

/// Whether a quota counts an object: all its scopes fit.
#[must_use]
pub fn covers(quota: &Value, resource: &Resource, object: &Value, class_of_service: &str) -> bool {
    let spec = &quota["spec"];
    let simple = spec["scopes"].as_array().into_iter().flatten();
    let simple = simple.map(|s| (s.as_str().unwrap_or_default(), "Exists", &Value::Null));
    let selected = spec["scopeSelector"]["matchExpressions"].as_array().into_iter().flatten();
    let selected = selected.map(|e| (text(e, "scopeName"), text(e, "operator"), &e["values"]));
    let mut scopes = simple.chain(selected);
    match (&*resource.group, &*resource.plural) {
        ("", "pods") => scopes
            .all(|(scope, operator, values)| pod_fits(object, class_of_service, scope, operator, values)),
        ("", "persistentvolumeclaims") => scopes.all(|(scope, operator, values)| {
            let class = text(&object["spec"], "volumeAttributesClassName");
            scope == "VolumeAttributesClass" && word_fits(class, operator, values)
        }),
        _ => scopes.next().is_none(),
    }
}

fn word_fits(word: &str, operator: &str, values: &Value) -> bool {
    let listed = || values.as_array().is_some_and(|l| l.iter().any(|v| v == word));
    match operator {
        "In" => !word.is_empty() && listed(),
        "NotIn" => word.is_empty() || !listed(),
        "DoesNotExist" => word.is_empty(),
        _ => !word.is_empty(),
    }
}

fn pod_fits(pod: &Value, class: &str, scope: &str, operator: &str, values: &Value) -> bool {
    let spec = &pod["spec"];
    let ends = spec["activeDeadlineSeconds"].as_i64().is_some_and(|s| s >= 0);
    match scope {
        "Terminating" => ends,
        "NotTerminating" => !ends,
        "BestEffort" => class == "BestEffort",
        "NotBestEffort" => class != "BestEffort",
        "PriorityClass" => word_fits(text(spec, "priorityClassName"), operator, values),
        "CrossNamespacePodAffinity" => crosses_namespaces(&spec["affinity"]),
        _ => false,
    }
}

fn crosses_namespaces(affinity: &Value) -> bool {
    let crosses = |term: &Value| {
        term["namespaces"].as_array().is_some_and(|l| !l.is_empty()) || term["namespaceSelector"].is_object()
    };
    ["podAffinity", "podAntiAffinity"].into_iter().any(|kind| {
        let list = |key: &str| affinity[kind][key].as_array().cloned().unwrap_or_default();
        list("requiredDuringSchedulingIgnoredDuringExecution").iter().any(crosses)
            || list("preferredDuringSchedulingIgnoredDuringExecution")
                .iter()
                .any(|t| crosses(&t["podAffinityTerm"]))
    })
}

/// What the containers of a Pod have to ask for because a quota limits it, and do not: `cpu for: a,b; memory for: a`.
#[must_use]
pub fn missing(pod: &Value, limited: &[&str]) -> Option<String> {
    let spec = &pod["spec"];
    let whole = |kind| of_container(spec, kind).is_empty();
    if !whole(Kind::Requests) || !whole(Kind::Limits) {
        return None;
    }
    let mut lacking: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for list in ["containers", "initContainers"] {
        for container in spec[list].as_array().into_iter().flatten() {
            let has =
                self::pod(&of_container(container, Kind::Requests), &of_container(container, Kind::Limits));
            for name in limited.iter().filter(|name| NEEDED.contains(name) && !has.contains_key(**name)) {
                lacking.entry(name).or_default().insert(text(container, "name"));
            }
        }
    }
    let joined = |names: BTreeSet<&str>| names.into_iter().collect::<Vec<_>>().join(",");
    let parts: Vec<String> =
        lacking.into_iter().map(|(name, of)| format!("{name} for: {}", joined(of))).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Amounts on one line: `cpu=1,pods=2`.
#[must_use]
pub fn shown(amounts: &Amounts) -> String {
    amounts.iter().map(|(name, amount)| format!("{name}={amount}")).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::find;
    use serde_json::json;

    fn used(plural: &str, object: Value) -> String {
        shown(&usage(find("", "v1", plural).unwrap(), &object, 100, &Beside::default()))
    }

    #[test]
    fn objects_count_for_what_they_are_and_hold() {
        let container = json!([{"resources": {"requests": {"cpu": "1", "x.io/gpu": "2"}, "limits": {"memory": "1Gi", "x.io/gpu": "2"}}}]);
        assert_eq!(
            used("pods", json!({"spec": {"containers": container}})),
            "count/pods=1,cpu=1,limits.memory=1Gi,pods=1,requests.cpu=1,requests.x.io/gpu=2"
        );
        assert_eq!(
            used("pods", json!({"status": {"phase": "Failed"}, "spec": {"containers": container}})),
            "count/pods=1"
        );
        let gone = json!({"metadata": {"deletionTimestamp": "1970-01-01T00:00:10Z"}});
        assert_eq!(used("pods", gone), "count/pods=1");
        assert_eq!(
            used("services", json!({"spec": {"type": "LoadBalancer", "ports": [{}, {}]}})),
            "count/services=1,services=1,services.loadbalancers=1,services.nodeports=2"
        );
        assert_eq!(
            used(
                "persistentvolumeclaims",
                json!({"spec": {"storageClassName": "gold", "resources": {"requests": {"storage": "1Gi"}}}})
            ),
            "count/persistentvolumeclaims=1,gold.storageclass.storage.k8s.io/persistentvolumeclaims=1,\
             gold.storageclass.storage.k8s.io/requests.storage=1Gi,persistentvolumeclaims=1,requests.storage=1Gi"
        );
        assert_eq!(used("secrets", json!({})), "count/secrets=1,secrets=1");
        let deployments = find("apps", "v1", "deployments").unwrap();
        assert_eq!(shown(&usage(deployments, &json!({}), 0, &Beside::default())), "count/deployments.apps=1");
    }

    #[test]
    fn scopes_choose_the_pods_that_count() {
        let pods = find("", "v1", "pods").unwrap();
        let quota = |spec: Value| json!({"spec": spec});
        let pod = json!({"spec": {"activeDeadlineSeconds": 5, "priorityClassName": "high"}});
        let selector = |operator: &str, values: Value| {
            quota(
                json!({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": operator, "values": values}]}}),
            )
        };
        for (quota, wanted) in [
            (quota(json!({})), true),
            (quota(json!({"scopes": ["Terminating", "BestEffort"]})), true),
            (quota(json!({"scopes": ["NotTerminating"]})), false),
            (quota(json!({"scopes": ["NotBestEffort"]})), false),
            (selector("In", json!(["high"])), true),
            (selector("NotIn", json!(["high"])), false),
            (selector("Exists", json!(null)), true),
            (selector("DoesNotExist", json!(null)), false),
        ] {
            assert_eq!(covers(&quota, pods, &pod, "BestEffort"), wanted, "{quota}");
        }
        let services = find("", "v1", "services").unwrap();
        assert!(!covers(&quota(json!({"scopes": ["Terminating"]})), services, &json!({}), ""));
    }

    #[test]
    fn containers_have_to_ask_for_what_is_limited() {
        let pod = json!({"spec": {"containers": [{"name": "b", "resources": {"requests": {"cpu": "1"}}}, {"name": "a"}]}});
        let limited = ["cpu", "memory", "pods"];
        assert_eq!(missing(&pod, &limited).as_deref(), Some("cpu for: a; memory for: a,b"));
        assert_eq!(missing(&pod, &["pods"]), None);
    }
}
