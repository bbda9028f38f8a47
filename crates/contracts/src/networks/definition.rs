//! The definition of NetworkAttachmentDefinition, for a cluster that has none.

use serde_json::{Value, json};

/// The CustomResourceDefinition, with the community's names and schema.
#[must_use]
pub fn definition() -> Value {
    let text = |about: &str| json!({"type": "string", "description": about});
    let config = "A CNI configuration as JSON, of a single plugin or a list. Its name is this object's if it has none. If it is \
                  empty, the network of this object's name is meant that is configured on the node.";
    let spec =
        json!({"type": "object", "description": "The network.", "properties": {"config": text(config)}});
    let schema = json!({
        "type": "object", "description": "A network that Pods are attached to by k8s.v1.cni.cncf.io/networks.",
        "properties": {
            "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}, "spec": spec,
        },
    });
    let (plural, group) = ("network-attachment-definitions", "k8s.cni.cncf.io");
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"kind": "NetworkAttachmentDefinition", "listKind": "NetworkAttachmentDefinitionList",
                "plural": plural, "singular": "network-attachment-definition", "shortNames": ["net-attach-def"]},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}
