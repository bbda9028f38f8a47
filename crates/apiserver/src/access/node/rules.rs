//! What a node may do: with some kinds only what the graph leads to, with the others what its role says.

use super::graph::Sort;
use crate::access::attributes::{Attributes, Resource, Subject, field};
use crate::access::decision::Decision;
use crate::access::rbac::rule::Rule;
use crate::user::User;

/// Where the Leases of nodes are.
const LEASES: &str = "kube-node-lease";

/// Whether the graph leads from an object to a node.
pub type Reach<'a> = dyn Fn(&str, Sort, &Resource) -> bool + 'a;

/// What the node `user` may do; no opinion about everybody else. `rules` are those of the role `system:node`.
#[must_use]
pub fn decide(reaches: &Reach<'_>, rules: &[Rule], user: &User, wanted: &Attributes) -> Decision {
    let Some(node) = user.node() else { return Decision::no("") };
    let verb = wanted.verb.as_str();
    let leads = |sort: Sort, r: &Resource| {
        if r.name.is_empty() {
            return Decision::no("No Object name found");
        }
        if reaches(node, sort, r) {
            return Decision::yes();
        }
        Decision::no(format!("no relationship found between node '{node}' and this object"))
    };
    let get = |sort: Sort, r: &Resource| match verb {
        "get" if r.subresource.is_empty() => leads(sort, r),
        "get" => Decision::no("cannot get subresource"),
        _ => Decision::no("can only get individual resources of this type"),
    };
    let read = |sort: Sort, r: &Resource| {
        if !wanted.is_read() {
            return Decision::no("can only read resources of this type");
        }
        if !r.subresource.is_empty() {
            return Decision::no("cannot read subresource");
        }
        if r.namespace.is_empty() {
            return Decision::no("can only read namespaced object of this type");
        }
        leads(sort, r)
    };
    if let Subject::Resource(r) = &wanted.subject {
        match (r.group.as_str(), r.resource.as_str()) {
            ("", "secrets") => return read(Sort::Secret, r),
            ("", "configmaps") => return read(Sort::ConfigMap, r),
            ("", "persistentvolumeclaims") if r.subresource == "status" => {
                return match verb {
                    "update" | "patch" => leads(Sort::Claim, r),
                    _ => Decision::no("can only get/update/patch this type"),
                };
            }
            ("", "persistentvolumeclaims") => return get(Sort::Claim, r),
            ("", "persistentvolumes") => return get(Sort::Volume, r),
            ("resource.k8s.io", "resourceclaims") => return get(Sort::ResourceClaim, r),
            ("storage.k8s.io", "volumeattachments") => return get(Sort::Attachment, r),
            ("", "serviceaccounts") => {
                return match (verb, r.subresource.as_str()) {
                    ("get", "") | ("create", "token") => leads(Sort::Account, r),
                    ("create", _) => Decision::no("can only create token subresource of serviceaccount"),
                    _ => Decision::no("can only create tokens for individual service accounts"),
                };
            }
            ("coordination.k8s.io", "leases") => return own_lease(node, verb, r),
            ("storage.k8s.io", "csinodes") => return own_drivers(node, verb, r),
            ("resource.k8s.io", "resourceslices") => return slices(node, verb, r, &leads),
            ("", "nodes") => return own_node(node, verb, r),
            ("", "pods") => return pods(node, verb, r, &leads),
            ("certificates.k8s.io", "podcertificaterequests") => {
                return certificate_requests(node, verb, r, &leads);
            }
            _ => {}
        }
    }
    if rules.iter().any(|rule| rule.allows(wanted)) { Decision::yes() } else { Decision::no("") }
}

type Leads<'a> = dyn Fn(Sort, &Resource) -> Decision + 'a;

/// Verbs on what a node owns by its name.
const OWN: [&str; 5] = ["get", "create", "update", "patch", "delete"];

fn own_lease(node: &str, verb: &str, r: &Resource) -> Decision {
    if !OWN.contains(&verb) {
        return Decision::no("can only get, create, update, patch, or delete a node lease");
    }
    if r.namespace != LEASES {
        return Decision::no(format!("can only access leases in the {LEASES:?} system namespace"));
    }
    // The name of a new one is in the body: admission looks at it.
    if verb != "create" && r.name != node {
        return Decision::no("can only access node lease with the same name as the requesting node");
    }
    Decision::yes()
}

fn own_drivers(node: &str, verb: &str, r: &Resource) -> Decision {
    if !OWN.contains(&verb) {
        return Decision::no("can only get, create, update, patch, or delete a CSINode");
    }
    if !r.subresource.is_empty() {
        return Decision::no("cannot authorize CSINode subresources");
    }
    if verb != "create" && r.name != node {
        return Decision::no("can only access CSINode with the same name as the requesting node");
    }
    Decision::yes()
}

fn own_node(node: &str, verb: &str, r: &Resource) -> Decision {
    match (r.subresource.as_str(), verb) {
        // Admission sees to it that a node changes no other.
        ("", "create" | "update" | "patch") | ("status", "update" | "patch") => Decision::yes(),
        ("", "get" | "list" | "watch") if r.name == node => Decision::yes(),
        ("", "get" | "list" | "watch") if r.name.is_empty() => {
            Decision::no(format!("node '{node}' cannot read all nodes, only its own Node object"))
        }
        ("", "get" | "list" | "watch") => {
            Decision::no(format!("node '{node}' cannot read '{}', only its own Node object", r.name))
        }
        _ => Decision::no(""),
    }
}

fn pods(node: &str, verb: &str, r: &Resource, leads: &Leads<'_>) -> Decision {
    match (r.subresource.as_str(), verb) {
        ("", "get") => leads(Sort::Pod, r),
        ("", "list" | "watch") if field(&r.fields, "spec.nodeName").as_deref() == Some(node) => {
            Decision::yes()
        }
        ("", "list" | "watch") if !r.name.is_empty() => leads(Sort::Pod, r),
        ("", "list" | "watch") => Decision::no("can only list/watch pods with spec.nodeName field selector"),
        // Admission sees to it that the Pods are mirrors, or the node's own.
        ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => {
            Decision::yes()
        }
        _ => Decision::no(""),
    }
}

fn slices(node: &str, verb: &str, r: &Resource, leads: &Leads<'_>) -> Decision {
    match verb {
        _ if !r.subresource.is_empty() => Decision::no("cannot authorize ResourceSlice subresources"),
        "create" => Decision::yes(),
        "get" | "update" | "patch" | "delete" => leads(Sort::Slice, r),
        "watch" | "list" | "deletecollection"
            if field(&r.fields, "spec.nodeName").as_deref() == Some(node) =>
        {
            Decision::yes()
        }
        "watch" | "list" | "deletecollection" => Decision::no(
            "can only list/watch/deletecollection resourceslices with spec.nodeName field selector",
        ),
        _ => Decision::no(""),
    }
}

fn certificate_requests(node: &str, verb: &str, r: &Resource, leads: &Leads<'_>) -> Decision {
    match verb {
        _ if !r.subresource.is_empty() => {
            Decision::no("only main resource allowed for podcertificaterequests")
        }
        "create" => Decision::yes(),
        "get" => leads(Sort::CertificateRequest, r),
        "list" | "watch" if field(&r.fields, "spec.nodeName").as_deref() == Some(node) => Decision::yes(),
        "list" | "watch" => {
            Decision::no("can only list/watch podcertificaterequests with spec.nodeName field selector")
        }
        _ => Decision::no(""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::rbac::defaults::rules_of;

    #[test]
    fn a_node_does_its_work_and_nothing_else() {
        let node = User::new("system:node:n1", &["system:nodes"]);
        let (ours, all) = ("fieldSelector=spec.nodeName%3Dn1", "");
        let rows = [
            ("GET", "/api/v1/pods", ours, true),
            ("GET", "/api/v1/pods", all, false),
            ("GET", "/api/v1/pods", "fieldSelector=spec.nodeName%3Dn2", false),
            ("GET", "/api/v1/pods", "watch=1&fieldSelector=spec.nodeName%3Dn1", true),
            ("POST", "/api/v1/namespaces/d/pods", all, true),
            ("PATCH", "/api/v1/namespaces/d/pods/p/status", all, true),
            ("PATCH", "/api/v1/namespaces/d/pods/p", all, false),
            ("GET", "/api/v1/nodes/n1", all, true),
            ("GET", "/api/v1/nodes", "fieldSelector=metadata.name%3Dn1", true),
            ("GET", "/api/v1/nodes/n2", all, false),
            ("GET", "/api/v1/nodes", all, false),
            ("DELETE", "/api/v1/nodes/n1", all, false),
            ("PATCH", "/api/v1/nodes/n1/status", all, true),
            ("GET", "/api/v1/namespaces/d/secrets/s", all, false),
            ("GET", "/api/v1/services", all, true),
            ("POST", "/api/v1/namespaces/d/events", all, true),
            ("PUT", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1", all, true),
            ("PUT", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n2", all, false),
            ("PUT", "/apis/coordination.k8s.io/v1/namespaces/default/leases/n1", all, false),
            ("GET", "/apis/storage.k8s.io/v1/csinodes/n1", all, true),
            ("GET", "/apis/storage.k8s.io/v1/csinodes/n2", all, false),
            ("GET", "/apis/node.k8s.io/v1/runtimeclasses", all, true),
            ("POST", "/apis/authentication.k8s.io/v1/tokenreviews", all, true),
            ("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles", all, false),
        ];
        let rules = rules_of("system:node");
        for (method, path, query, allowed) in rows {
            let wanted = Attributes::read(&method.parse().unwrap(), path, query);
            let got = decide(&|_, _, _| false, &rules, &node, &wanted);
            assert_eq!(got.allowed(), allowed, "{method} {path} {query}: {got:?}");
            let stranger = decide(&|_, _, _| false, &rules, &User::new("x", &[]), &wanted);
            assert_eq!(stranger, Decision::no(""));
        }
    }
}
