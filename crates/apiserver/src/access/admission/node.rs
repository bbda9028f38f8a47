//! A node writes about itself and about its own Pods, and about nothing else.

use serde_json::Value;

use crate::access::node::graph::{claims, has_references};
use crate::admission::Change;
use crate::kinds::Objects;
use crate::registry::{Registry, text};

/// Who a node's proxy, routes and volumes are to the API server.
const NODE_PLANES: (&str, &str) = ("kube-system", "trine-node");

/// Marks a Pod that a kubelet shows for one of its static Pods.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// Where the Leases of nodes are.
const LEASES: &str = "kube-node-lease";
/// Labels that a node may set though their namespace is the project's. Source: upstream's `kubeletLabels`.
const LABELS: [&str; 11] = [
    "kubernetes.io/hostname",
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
];
/// Namespaces of labels in which a node may set any.
const LABEL_SPACES: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];
/// The namespace of labels that keep nodes away from work; no node may set them.
const RESTRICTION: &str = "node-restriction.kubernetes.io";

/// Why the node may not do this write; `None` if it may. `new` is the object as it is to be; `None` when it is deleted.
#[must_use]
pub fn refuse(registry: &Registry, node: &str, change: &Change<'_>, new: Option<&Value>) -> Option<String> {
    let object = new.or(change.old).unwrap_or(&Value::Null);
    let name = text(&object["metadata"]["name"]);
    let created = change.old.is_none();
    match (&*change.resource.group, &*change.resource.plural, change.subresource) {
        ("", "pods", "") => pod(registry, node, change.old, new),
        ("", "pods", "status") => pod_status(node, change.old?, new?),
        ("", "nodes", _) => own_node(node, name, change.old, new),
        ("", "persistentvolumeclaims", "status") => claim_status(node, change.old?, new?),
        ("", "persistentvolumeclaims", _) => Some("may only update PVC status".to_owned()),
        ("coordination.k8s.io", "leases", _) => {
            let namespace = text(&object["metadata"]["namespace"]);
            let why = if namespace != LEASES {
                format!("can only access leases in the {LEASES:?} system namespace")
            } else {
                "can only access node lease with the same name as the requesting node".to_owned()
            };
            (namespace != LEASES || created && name != node).then_some(why)
        }
        ("storage.k8s.io", "csinodes", _) => (created && name != node)
            .then(|| "can only access CSINode with the same name as the requesting node".to_owned()),
        ("resource.k8s.io", "resourceslices", _) => (text(&object["spec"]["nodeName"]) != node).then(|| {
            "can only create or delete ResourceSlice with the same NodeName as the requesting node".to_owned()
        }),
        ("certificates.k8s.io", "certificatesigningrequests", "") if created => serving_request(node, object),
        ("certificates.k8s.io", "podcertificaterequests", "") if created => {
            pod_certificate(registry, node, object)
        }
        ("certificates.k8s.io", "podcertificaterequests", _) => Some("a node only asks".to_owned()),
        _ => None,
    }
}

fn pod(registry: &Registry, node: &str, old: Option<&Value>, new: Option<&Value>) -> Option<String> {
    match (old, new) {
        (None, Some(pod)) => mirror(registry, node, pod),
        (Some(pod), None) => (text(&pod["spec"]["nodeName"]) != node)
            .then(|| format!("node {node:?} can only delete pods with spec.nodeName set to itself")),
        _ => Some(format!(
            "unexpected operation \"UPDATE\", node {node:?} can only create and delete mirror pods"
        )),
    }
}

fn mirror(registry: &Registry, node: &str, pod: &Value) -> Option<String> {
    let meta = &pod["metadata"];
    if meta["annotations"][MIRROR].is_null() {
        return Some(format!(
            "pod does not have {MIRROR:?} annotation, node {node:?} can only create mirror pods"
        ));
    }
    if text(&pod["spec"]["nodeName"]) != node {
        return Some(format!("node {node:?} can only create pods with spec.nodeName set to itself"));
    }
    let owners = meta["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default();
    let [owner] = owners else {
        let what = if owners.is_empty() { "an owner reference" } else { "a single owner reference" };
        return Some(format!("node {node:?} can only create pods with {what} set to itself"));
    };
    if owner["apiVersion"] != "v1" || owner["kind"] != "Node" || owner["name"] != node {
        return Some(format!("node {node:?} can only create pods with an owner reference set to itself"));
    }
    if owner["controller"] != true {
        return Some(format!(
            "node {node:?} can only create pods with a controller owner reference set to itself"
        ));
    }
    if owner["blockOwnerDeletion"] == true {
        return Some(format!("node {node:?} must not set blockOwnerDeletion on an owner reference"));
    }
    let known = Objects::get(registry, "", "nodes", "", node).unwrap_or_default();
    let (have, given) = (text(&known["metadata"]["uid"]), text(&owner["uid"]));
    if have != given {
        return Some(format!("node {node} UID mismatch: expected {given} got {have}"));
    }
    has_references(&pod["spec"])
        .then(|| format!("node {node:?} can not create pods that reference other API objects"))
}

fn pod_status(node: &str, old: &Value, new: &Value) -> Option<String> {
    if text(&old["spec"]["nodeName"]) != node {
        return Some(format!(
            "node {node:?} can only update pod status for pods with spec.nodeName set to itself"
        ));
    }
    if old["metadata"]["labels"] != new["metadata"]["labels"] {
        return Some(format!("node {node:?} cannot update labels through pod status"));
    }
    (claims(old) != claims(new)).then(|| format!("node {node:?} cannot update resource claim statues"))
}

fn own_node(node: &str, name: &str, old: Option<&Value>, new: Option<&Value>) -> Option<String> {
    if name != node {
        return Some(format!("node {node:?} is not allowed to modify node {name:?}"));
    }
    let new = new?;
    let changed = changed_labels(old, new);
    let forbidden: Vec<&str> = changed.into_iter().filter(|l| forbidden_label(l)).collect();
    let list = forbidden.join(", ");
    let Some(old) = old else {
        return (!forbidden.is_empty())
            .then(|| format!("node {node:?} is not allowed to set the following labels: {list}"));
    };
    let differs =
        |at: &str| old.pointer(at).filter(|v| !v.is_null()) != new.pointer(at).filter(|v| !v.is_null());
    if differs("/spec/taints") {
        return Some(format!("node {node:?} is not allowed to modify taints"));
    }
    if differs("/metadata/ownerReferences") {
        return Some(format!("node {node:?} is not allowed to modify ownerReferences"));
    }
    (!forbidden.is_empty()).then(|| format!("is not allowed to modify labels: {list}"))
}

fn changed_labels<'a>(old: Option<&'a Value>, new: &'a Value) -> Vec<&'a str> {
    let labels = |o: &'a Value| o["metadata"]["labels"].as_object();
    let (before, after) = (old.and_then(labels), labels(new));
    let keys = before.into_iter().chain(after).flat_map(|m| m.keys());
    let mut changed: Vec<&str> = keys
        .filter(|key| before.and_then(|m| m.get(*key)) != after.and_then(|m| m.get(*key)))
        .map(String::as_str)
        .collect();
    changed.sort_unstable();
    changed.dedup();
    changed
}

fn forbidden_label(label: &str) -> bool {
    let Some((space, _)) = label.split_once('/') else { return false };
    let within = |domain: &str| space == domain || space.ends_with(&format!(".{domain}"));
    if within(RESTRICTION) {
        return true;
    }
    (within("kubernetes.io") || within("k8s.io"))
        && !LABELS.contains(&label)
        && !LABEL_SPACES.iter().any(|domain| within(domain))
}

/// A node says of a claim how large its volume is, and in which condition.
fn claim_status(node: &str, old: &Value, new: &Value) -> Option<String> {
    let rest = |claim: &Value| {
        let mut claim = claim.clone();
        for field in ["resourceVersion", "managedFields"] {
            if let Some(meta) = claim.get_mut("metadata").and_then(Value::as_object_mut) {
                meta.remove(field);
            }
        }
        for field in ["capacity", "conditions", "allocatedResources", "allocatedResourceStatuses"] {
            if let Some(status) = claim.get_mut("status").and_then(Value::as_object_mut) {
                status.remove(field);
            }
        }
        claim
    };
    (rest(old) != rest(new)).then(|| {
        format!(
            "node {node:?} is not allowed to update fields other than status.quantity and status.conditions"
        )
    })
}

/// A node asks for a serving certificate in its own name only.
fn serving_request(node: &str, request: &Value) -> Option<String> {
    if request["spec"]["signerName"] != "kubernetes.io/kubelet-serving" {
        return None;
    }
    let wanted = format!("system:node:{node}");
    let name = crate::access::certificates::request::Request::read(&request["spec"]["request"]);
    match name {
        Err(why) => Some(format!("unable to parse csr: {why}")),
        Ok(request) if request.common_name != wanted => {
            Some(format!("can only create a node CSR with CN={wanted}: got {:?}", request.common_name))
        }
        Ok(_) => None,
    }
}

/// Why the node may not have this token; `None` if it may: a node asks for the tokens that its Pods mount, and for its own of
/// the account of Trine's node planes, which ends with the Node object.
#[must_use]
pub fn refuse_token(
    registry: &Registry,
    node: &str,
    account: (&str, &str),
    request: &Value,
) -> Option<String> {
    let bound = &request["spec"]["boundObjectRef"];
    let (namespace, name) = (account.0, text(&bound["name"]));
    if account == NODE_PLANES && bound["apiVersion"] == "v1" && bound["kind"] == "Node" && name == node {
        return None;
    }
    if bound["apiVersion"] != "v1" || bound["kind"] != "Pod" || name.is_empty() {
        return Some("node requested token not bound to a pod".to_owned());
    }
    let uid = text(&bound["uid"]);
    if uid.is_empty() {
        return Some("node requested token with a pod binding without a uid".to_owned());
    }
    let pod = Objects::get(registry, "", "pods", namespace, name).unwrap_or_default();
    if text(&pod["metadata"]["uid"]) != uid {
        return Some(format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been \
             deleted and then recreated"
        ));
    }
    if text(&pod["spec"]["nodeName"]) != node {
        return Some("node requested token bound to a pod scheduled on a different node".to_owned());
    }
    let audiences = request["spec"]["audiences"].as_array().map(Vec::as_slice).unwrap_or_default();
    let audience = match audiences {
        [] => "",
        [one] => text(one),
        _ => return Some("node may only request 0 or 1 audiences".to_owned()),
    };
    (!mounts(registry, &pod, namespace, audience))
        .then(|| format!("audience {audience:?} not found in pod spec volume"))
}

/// Whether a volume of the Pod wants a token for these ears, itself or by its CSI driver.
fn mounts(registry: &Registry, pod: &Value, namespace: &str, audience: &str) -> bool {
    let driver_wants = |driver: &str| {
        let driver = Objects::get(registry, "storage.k8s.io", "csidrivers", "", driver).unwrap_or_default();
        let mut wanted = driver["spec"]["tokenRequests"].as_array().into_iter().flatten();
        wanted.any(|w| text(&w["audience"]) == audience)
    };
    let claim_wants = |claim: &str| {
        let claim =
            Objects::get(registry, "", "persistentvolumeclaims", namespace, claim).unwrap_or_default();
        let volume = text(&claim["spec"]["volumeName"]);
        let volume = Objects::get(registry, "", "persistentvolumes", "", volume).unwrap_or_default();
        driver_wants(text(&volume["spec"]["csi"]["driver"]))
    };
    let mut volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    volumes.any(|volume| {
        let mut sources = volume["projected"]["sources"].as_array().into_iter().flatten();
        let projected = sources.any(|s| {
            !s["serviceAccountToken"].is_null() && text(&s["serviceAccountToken"]["audience"]) == audience
        });
        let driver = text(&volume["csi"]["driver"]);
        let claim = text(&volume["persistentVolumeClaim"]["claimName"]);
        let generic = format!("{}-{}", text(&pod["metadata"]["name"]), text(&volume["name"]));
        projected
            || !driver.is_empty() && driver_wants(driver)
            || !claim.is_empty() && claim_wants(claim)
            || !volume["ephemeral"].is_null() && claim_wants(&generic)
    })
}

/// A node asks for certificates of the Pods that run on it, and of their accounts.
fn pod_certificate(registry: &Registry, node: &str, request: &Value) -> Option<String> {
    let spec = &request["spec"];
    let namespace = text(&request["metadata"]["namespace"]);
    let (named, pod_name) = (text(&spec["nodeName"]), text(&spec["podName"]));
    if named != node {
        return Some(format!(
            "PodCertificateRequest.Spec.NodeName={named:?}, which is not the requesting node {node:?}"
        ));
    }
    let pod = format!("{namespace}/{pod_name}");
    let missing = |what: &str, name: &str| {
        format!("while retrieving {what} {name:?} named in the PodCertificateRequest: not found")
    };
    let Some(its_node) = Objects::get(registry, "", "nodes", "", node) else {
        return Some(missing("node", node));
    };
    let uid = |object: &Value| text(&object["metadata"]["uid"]).to_owned();
    if uid(&its_node) != text(&spec["nodeUID"]) {
        return Some(format!(
            "PodCertificateRequest for pod {pod:?} names node UID {:?}, inconsistent with the running node ({:?})",
            text(&spec["nodeUID"]),
            uid(&its_node)
        ));
    }
    let Some(running) = Objects::get(registry, "", "pods", namespace, pod_name) else {
        return Some(missing("pod", &pod));
    };
    if uid(&running) != text(&spec["podUID"]) {
        return Some(format!(
            "PodCertificateRequest for pod {pod:?} contains pod UID ({:?}) which differs from running pod {:?}",
            text(&spec["podUID"]),
            uid(&running)
        ));
    }
    if text(&running["spec"]["nodeName"]) != node {
        return Some(format!(
            "pod {pod:?} is not running on node {node:?} named in the PodCertificateRequest"
        ));
    }
    if !running["metadata"]["annotations"][MIRROR].is_null() {
        return Some(format!("pod {pod:?} is a mirror pod"));
    }
    let (asked, own) = (text(&spec["serviceAccountName"]), text(&running["spec"]["serviceAccountName"]));
    if asked != own {
        return Some(format!(
            "PodCertificateRequest for pod {pod:?} contains serviceAccountName ({asked:?}) that differs from running pod ({own:?})"
        ));
    }
    let account_name = format!("{namespace}/{own}");
    let Some(account) = Objects::get(registry, "", "serviceaccounts", namespace, own) else {
        return Some(missing("service account", &account_name));
    };
    (uid(&account) != text(&spec["serviceAccountUID"])).then(|| {
        format!(
            "PodCertificateRequest for pod {pod:?} names service account UID {:?}, which differs from the running service account ({:?})",
            text(&spec["serviceAccountUID"]),
            uid(&account)
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_labels_itself_only_as_nodes_may() {
        let rows = [
            ("kubernetes.io/hostname", false),
            ("topology.kubernetes.io/zone", false),
            ("topology.disk.csi.trine.dev/node", false),
            ("node.kubernetes.io/speed", false),
            ("x.kubelet.kubernetes.io/y", false),
            ("mine", false),
            ("node-restriction.kubernetes.io/secure", true),
            ("a.node-restriction.kubernetes.io/secure", true),
            ("node-role.kubernetes.io/control-plane", true),
            ("pods.k8s.io/x", true),
        ];
        for (label, forbidden) in rows {
            assert_eq!(forbidden_label(label), forbidden, "{label}");
        }
        let node = |labels: Value, taints: Value| json!({"metadata": {"name": "n", "labels": labels}, "spec": {"taints": taints}});
        let (plain, tainted) =
            (node(json!({"a": "b"}), Value::Null), node(json!({"a": "b"}), json!([{"key": "x"}])));
        assert_eq!(own_node("n", "n", None, Some(&tainted)), None, "a new one may have taints");
        assert!(own_node("n", "n", Some(&tainted), Some(&plain)).unwrap().contains("taints"));
        assert!(own_node("n", "m", None, Some(&plain)).unwrap().contains("not allowed to modify node \"m\""));
        let wrong = node(json!({"node-role.kubernetes.io/x": ""}), Value::Null);
        assert!(own_node("n", "n", Some(&plain), Some(&wrong)).is_some());
        assert_eq!(own_node("n", "n", Some(&wrong), Some(&wrong)), None, "what others set may stay");
    }

    #[test]
    fn a_node_says_of_a_claim_only_how_large_it_is() {
        let claim = |status: Value, labels: Value| json!({"metadata": {"labels": labels}, "status": status});
        let old = claim(json!({"phase": "Bound", "capacity": {"storage": "1Gi"}}), json!({}));
        let grown = claim(json!({"phase": "Bound", "capacity": {"storage": "2Gi"}}), json!({}));
        let other = claim(json!({"phase": "Lost", "capacity": {"storage": "1Gi"}}), json!({}));
        assert_eq!(claim_status("n", &old, &grown), None);
        assert!(claim_status("n", &old, &other).is_some());
        assert!(claim_status("n", &old, &claim(old["status"].clone(), json!({"a": "b"}))).is_some());
    }
}
