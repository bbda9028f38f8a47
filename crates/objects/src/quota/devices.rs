//! What claims of devices count for in a ResourceQuota: by class, and by the resources for which classes stand. Source: upstream's
//! `claimEvaluator`.

use serde_json::Value;
use std::collections::BTreeMap;

use super::{count, text, usage};
use crate::pod_resources::Amounts;
use crate::resources;

/// What limits of devices of a class end with.
const OF_CLASS: &str = ".deviceclass.resource.k8s.io/devices";
/// What limits of them begin with where the class is asked for by its resource.
const BY_CLASS: &str = "requests.deviceclass.resource.kubernetes.io/";
/// Tells claims that were written for Pods' resources from others.
const WRITTEN: &str = "resource.kubernetes.io/extended-resource-claim";
/// How many devices a claim of all can get. Source: `AllocationResultsMaxSize`.
const MOST_DEVICES: usize = 32;

/// What claims of devices are counted by, beside themselves; nothing of it matters for other kinds.
#[derive(Debug, Clone, Copy, Default)]
pub struct Beside<'a> {
    /// The classes of devices.
    pub classes: &'a [Value],
    /// The namespace's Pods.
    pub pods: &'a [Value],
    /// The namespace's claims.
    pub claims: &'a [Value],
}

impl Beside<'_> {
    /// Whether a limit is one of devices.
    pub(super) fn concerns(&self, name: &str) -> bool {
        if let Some(class) = name.strip_prefix(BY_CLASS) {
            return self.classes.iter().any(|c| text(&c["metadata"], "name") == class);
        }
        let stands = |resource: &str| self.classes.iter().any(|c| stands_for(c) == Some(resource));
        name.ends_with(OF_CLASS) || name.strip_prefix("requests.").is_some_and(stands)
    }

    /// What a claim uses.
    pub(super) fn usage(&self, claim: &Value, now_unix: i64) -> Amounts {
        let by_class = by_class(&claim["spec"]);
        let mut used = Amounts::new();
        let mut by_resource: BTreeMap<String, usize> = BTreeMap::new();
        for (class, n) in by_class {
            used.insert(format!("{class}{OF_CLASS}"), count(n));
            by_resource.insert(format!("{BY_CLASS}{class}"), n);
            let named = self.classes.iter().find(|c| text(&c["metadata"], "name") == class);
            if let Some(resource) = named.and_then(stands_for) {
                *by_resource.entry(format!("requests.{resource}")).or_default() += n;
            }
        }
        // What its Pod counts for already is not counted twice.
        let pod = self
            .pod(claim)
            .map(|pod| resources::find("", "v1", "pods").map(|r| usage(r, pod, now_unix, self)));
        let counted = pod.flatten().unwrap_or_default();
        for (name, n) in by_resource {
            let n = count(n);
            let more = counted.get(&name).map_or(n, |had| n - *had);
            if more > count(0) {
                used.insert(name, more);
            }
        }
        used
    }

    /// The Pod for whose resources a claim was written: it says so itself, or this is the first of such claims.
    fn pod(&self, claim: &Value) -> Option<&Value> {
        let of = owner(claim)?;
        let pods = self.pods.iter();
        let pod = pods.into_iter().find(|p| p["metadata"]["uid"] == *of && !of.is_null())?;
        let said = &pod["status"]["extendedResourceClaimStatus"]["resourceClaimName"];
        let is_its = match said.as_str() {
            Some(name) => name == text(&claim["metadata"], "name"),
            None => {
                let age = |c: &Value| {
                    (
                        text(&c["metadata"], "creationTimestamp").to_owned(),
                        text(&c["metadata"], "name").to_owned(),
                    )
                };
                let others = self.claims.iter().filter(|c| owner(c) == Some(of));
                !others.into_iter().any(|other| age(other) < age(claim))
            }
        };
        is_its.then_some(pod)
    }
}

/// The resource for which a class stands.
fn stands_for(class: &Value) -> Option<&str> {
    class["spec"]["extendedResourceName"].as_str().filter(|name| !name.is_empty())
}

/// The UID of the Pod for whose resources a claim says that it was written.
fn owner(claim: &Value) -> Option<&Value> {
    let metadata = &claim["metadata"];
    let written = metadata["annotations"][WRITTEN] == "true";
    let mut owners = metadata["ownerReferences"].as_array().filter(|_| written)?.iter();
    let owner = owners.find(|o| o["controller"] == true)?;
    (owner["kind"] == "Pod" && owner["apiVersion"] == "v1").then(|| &owner["uid"])
}

/// Devices by class, at worst: of alternatives each class counts with its most.
fn by_class(spec: &Value) -> BTreeMap<String, usize> {
    let asked = |request: &Value| {
        let most = match text(request, "allocationMode") {
            "All" => MOST_DEVICES,
            "ExactCount" => {
                request["count"].as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or_default()
            }
            _ => 0,
        };
        (text(request, "deviceClassName").to_owned(), most)
    };
    let mut all: BTreeMap<String, usize> = BTreeMap::new();
    for request in spec["devices"]["requests"].as_array().into_iter().flatten() {
        let alternatives = request["firstAvailable"].as_array().into_iter().flatten();
        let mut worst: BTreeMap<String, usize> = BTreeMap::new();
        for (class, most) in alternatives.chain(request.get("exactly")).map(asked) {
            let slot = worst.entry(class).or_default();
            *slot = most.max(*slot);
        }
        for (class, most) in worst {
            *all.entry(class).or_default() += most;
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::{amounts, concerned, shown};
    use serde_json::json;

    fn claim(requests: Value) -> Value {
        json!({"metadata": {"name": "c"}, "spec": {"devices": {"requests": requests}}})
    }

    fn exactly(class: &str, mode: &str, count: u32) -> Value {
        json!({"deviceClassName": class, "allocationMode": mode, "count": count})
    }

    fn used(claim: &Value, beside: &Beside<'_>) -> Amounts {
        usage(resources::find("resource.k8s.io", "v1", "resourceclaims").unwrap(), claim, 0, beside)
    }

    #[test]
    fn claims_count_by_class_and_alternatives_at_their_worst() {
        let claim = claim(json!([
            {"name": "a", "exactly": exactly("gold", "ExactCount", 2)},
            {"name": "b", "exactly": exactly("iron", "All", 0)},
            {"name": "c", "firstAvailable": [exactly("gold", "ExactCount", 3), exactly("gold", "ExactCount", 1),
                exactly("tin", "ExactCount", 4)]},
            {"name": "d", "exactly": exactly("new", "Unheard", 7)},
        ]));
        let by_class: Amounts = used(&claim, &Beside::default())
            .into_iter()
            .filter(|(name, _)| name.ends_with(OF_CLASS))
            .collect();
        assert_eq!(shown(&by_class).replace(OF_CLASS, ""), "gold=5,iron=32,new=0,tin=4");
    }

    #[test]
    fn devices_for_a_pods_resources_count_once_with_their_pod() {
        let classes = [json!({"metadata": {"name": "gold"}, "spec": {"extendedResourceName": "x.io/gpu"}})];
        let requests = json!({"x.io/gpu": "2", "deviceclass.resource.kubernetes.io/gold": "2"});
        let pod = json!({"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": [{"resources": {"requests": requests}}]}});
        let written = |name: &str, made: &str| {
            let mut claim = claim(json!([{"name": "a", "exactly": exactly("gold", "ExactCount", 4)}]));
            claim["metadata"] = json!({"name": name, "creationTimestamp": made, "annotations": {WRITTEN: "true"},
                "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true}]});
            claim
        };
        let (first, second) = (written("z", "2026-01-01T00:00:00Z"), written("a", "2026-01-01T00:00:01Z"));
        let told = |name: &str| {
            let mut pod = pod.clone();
            pod["status"]["extendedResourceClaimStatus"] = json!({"resourceClaimName": name});
            pod
        };
        let other = {
            let mut other = pod.clone();
            other["metadata"]["uid"] = json!("v");
            other
        };
        let claims = [first.clone(), second.clone()];
        for (what, pod, claim, left) in [
            ("the first claim of a Pod that does not say which", pod.clone(), &first, "2"),
            ("the second", pod.clone(), &second, "4"),
            ("the one that the Pod says", told("a"), &second, "2"),
            ("another than the Pod says", told("a"), &first, "4"),
            ("a Pod of that name that came later", other, &first, "4"),
        ] {
            let pods = [pod];
            let used = used(claim, &Beside { classes: &classes, pods: &pods, claims: &claims });
            let amount = |name: &str| used[name].to_string();
            assert_eq!(amount("gold.deviceclass.resource.k8s.io/devices"), "4", "{what}");
            assert_eq!(amount("requests.x.io/gpu"), left, "{what}");
            assert_eq!(amount("requests.deviceclass.resource.kubernetes.io/gold"), left, "{what}");
        }
    }

    #[test]
    fn claims_are_limited_by_classes_that_are_there() {
        let claims = resources::find("resource.k8s.io", "v1", "resourceclaims").unwrap();
        let hard = amounts(
            &json!({"count/resourceclaims.resource.k8s.io": "1", "pods": "1", "requests.cpu": "1",
            "gone.deviceclass.resource.k8s.io/devices": "1", "requests.x.io/gpu": "1", "requests.x.io/other": "1",
            "requests.deviceclass.resource.kubernetes.io/gold": "1", "requests.deviceclass.resource.kubernetes.io/gone": "1"}),
        );
        let classes = [json!({"metadata": {"name": "gold"}, "spec": {"extendedResourceName": "x.io/gpu"}})];
        let beside = Beside { classes: &classes, ..Beside::default() };
        assert_eq!(
            concerned(&hard, claims, &beside),
            [
                "count/resourceclaims.resource.k8s.io",
                "gone.deviceclass.resource.k8s.io/devices",
                "requests.deviceclass.resource.kubernetes.io/gold",
                "requests.x.io/gpu"
            ]
        );
        let none = Beside::default();
        assert_eq!(
            concerned(&hard, claims, &none),
            ["count/resourceclaims.resource.k8s.io", "gone.deviceclass.resource.k8s.io/devices"]
        );
    }
}
