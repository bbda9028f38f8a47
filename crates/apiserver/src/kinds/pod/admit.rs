//! What the server adds to a new Pod: account, tolerations, priority, overhead; and its class of service.

use crate::kinds::fields::{default, entries, is_unset, items, set, text};
use crate::kinds::{Cause, Cx, Invalid};
use serde_json::{Value, json};
use std::cmp::Ordering;
use trine_objects::quantity::{self, Quantity};

/// How long a Pod stays on a node that is not ready or not reachable, in seconds, as upstream.
const NODE_TROUBLE_SECONDS: i64 = 300;
/// Marks a Pod that a kubelet shows for one of its static Pods.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Fills in what a Pod takes from the cluster.
pub fn admit(obj: &mut Value, cx: &mut Cx) -> Result<(), Invalid> {
    let namespace = text(&obj["metadata"], "namespace").to_owned();
    let mirror = !obj["metadata"]["annotations"][MIRROR].is_null();
    let spec = &mut obj["spec"];
    if !mirror {
        default(spec, "serviceAccountName", "default");
        let name = spec["serviceAccountName"].clone();
        set(spec, "serviceAccount", name);
        pull_secrets(spec, &namespace, cx);
    }
    tolerate_node_trouble(spec);
    priority(spec, cx)?;
    runtime_class(spec, cx)
}

/// A Pod without pull secrets takes those of its account.
fn pull_secrets(spec: &mut Value, namespace: &str, cx: &Cx) {
    if !items(spec, "imagePullSecrets").is_empty() {
        return;
    }
    let account = cx.objects.get("", "serviceaccounts", namespace, text(spec, "serviceAccountName"));
    if let Some(secrets) =
        account.map(|a| a["imagePullSecrets"].clone()).filter(|s| s.as_array().is_some_and(|l| !l.is_empty()))
    {
        set(spec, "imagePullSecrets", secrets);
    }
}

/// A Pod stays for a while on a node that is in trouble, unless it says otherwise. A client that sends its own tolerations alone in
/// an update does not take that away.
pub fn tolerate_node_trouble(spec: &mut Value) {
    default(spec, "tolerations", json!([]));
    let Some(list) = spec["tolerations"].as_array_mut() else { return };
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = list.iter().any(|t| {
            let named = text(t, "key") == key || is_unset(&t["key"]);
            named && matches!(text(t, "effect"), "" | "NoExecute")
        });
        if !tolerated {
            list.push(json!({"key": key, "operator": "Exists", "effect": "NoExecute",
                "tolerationSeconds": NODE_TROUBLE_SECONDS}));
        }
    }
}

fn priority(spec: &mut Value, cx: &Cx) -> Result<(), Invalid> {
    let named = text(spec, "priorityClassName").to_owned();
    let class = if named.is_empty() {
        let global = |c: &Value| c["globalDefault"] == true;
        let classes = cx.objects.list("scheduling.k8s.io", "priorityclasses");
        classes.into_iter().filter(global).min_by_key(|c| c["value"].as_i64())
    } else {
        match named.as_str() {
            "system-cluster-critical" => Some(json!({"value": 2_000_000_000})),
            "system-node-critical" => Some(json!({"value": 2_000_001_000})),
            name => {
                let found = cx.objects.get("scheduling.k8s.io", "priorityclasses", "", name);
                let why = format!("no PriorityClass with name {name} was found");
                Some(found.ok_or_else(|| Cause::denied(why))?)
            }
        }
    };
    let class = class.unwrap_or_else(|| json!({"value": 0}));
    let computed = class["value"].as_i64().unwrap_or(0);
    if spec["priority"].as_i64().is_some_and(|given| given != computed) {
        let detail = format!(
            "the integer value of priority must not be provided in pod spec; {computed} was computed from the given \
             PriorityClass name"
        );
        return Err(Cause::denied(detail).into());
    }
    if let Some(name) = class["metadata"]["name"].as_str() {
        set(spec, "priorityClassName", name);
    }
    set(spec, "priority", computed);
    let policy = class["preemptionPolicy"].as_str().unwrap_or("PreemptLowerPriority").to_owned();
    default(spec, "preemptionPolicy", policy);
    Ok(())
}

fn runtime_class(spec: &mut Value, cx: &Cx) -> Result<(), Invalid> {
    let name = text(spec, "runtimeClassName");
    if name.is_empty() {
        return Ok(());
    }
    let class = cx.objects.get("node.k8s.io", "runtimeclasses", "", name);
    let class =
        class.ok_or_else(|| Cause::denied(format!("pod rejected: RuntimeClass {name:?} not found")))?;
    if class["overhead"]["podFixed"].is_object() {
        default(spec, "overhead", class["overhead"]["podFixed"].clone());
    }
    for (key, value) in entries(&class["scheduling"], "nodeSelector") {
        default(spec, "nodeSelector", json!({}));
        default(&mut spec["nodeSelector"], key, value.clone());
    }
    let extra = items(&class["scheduling"], "tolerations").to_vec();
    if let Some(list) = spec["tolerations"].as_array_mut() {
        list.extend(extra);
    }
    Ok(())
}

/// The class of service, from the requests and limits of cpu and memory.
pub fn qos(spec: &Value) -> &'static str {
    let (mut guaranteed, mut anything) = (true, false);
    let whole_pod = spec["resources"].is_object()
        && entries(&spec["resources"], "requests")
            .chain(entries(&spec["resources"], "limits"))
            .next()
            .is_some();
    let parts: Vec<&Value> = if whole_pod {
        vec![spec]
    } else {
        items(spec, "initContainers").iter().chain(items(spec, "containers")).collect()
    };
    let mut totals = [[Quantity::from_milli(0); 2]; 2];
    for part in parts {
        for (r, resource) in ["cpu", "memory"].into_iter().enumerate() {
            let amount = |kind: &str| {
                quantity::from_value(&part["resources"][kind][resource])
                    .ok()
                    .filter(|q| !q.is_zero() && !q.is_negative())
            };
            let (request, limit) = (amount("requests"), amount("limits"));
            anything |= request.is_some() || limit.is_some();
            guaranteed &= limit.is_some();
            for (slot, found) in totals[r].iter_mut().zip([request, limit]) {
                *slot = found.map_or(*slot, |q| *slot + q);
            }
        }
    }
    let equal = totals.iter().all(|[request, limit]| request.cmp(limit) == Ordering::Equal);
    match (anything, guaranteed && equal) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_class_of_service_follows_requests_and_limits() {
        let full =
            json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1000m", "memory": "1Gi"}});
        for (name, containers, wanted) in [
            ("nothing", json!([{"resources": {}}]), "BestEffort"),
            ("zero", json!([{"resources": {"requests": {"cpu": "0"}}}]), "BestEffort"),
            ("equal", json!([{"resources": full}]), "Guaranteed"),
            ("one of two", json!([{"resources": full}, {}]), "Burstable"),
            ("request only", json!([{"resources": {"requests": {"cpu": "1"}}}]), "Burstable"),
            (
                "cpu only",
                json!([{"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}}]),
                "Burstable",
            ),
            ("others do not count", json!([{"resources": {"requests": {"x.io/gpu": 1}}}]), "BestEffort"),
        ] {
            assert_eq!(qos(&json!({"containers": containers})), wanted, "{name}");
        }
    }
}
