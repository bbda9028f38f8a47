//! Which objects a node needs: those of the Pods that are placed on it.
//!
//! ```text
//! node <- pod <- configmap, secret, serviceaccount, claim <- volume <- secret
//! node <- volumeattachment, resourceslice, podcertificaterequest
//! ```

use std::collections::{HashMap, HashSet};

use serde_json::Value;
use trine_store::Object;

use crate::access::follow::Derive;
use crate::registry::text;

/// Group and plural of what the graph is derived from, in the order of its sources.
pub const SOURCES: [(&str, &str); 5] = [
    ("", "pods"),
    ("", "persistentvolumes"),
    ("storage.k8s.io", "volumeattachments"),
    ("resource.k8s.io", "resourceslices"),
    ("certificates.k8s.io", "podcertificaterequests"),
];
/// Marks a Pod that a kubelet shows for one of its static Pods; it must not give the node access to anything.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// What a node may need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sort {
    /// A Pod itself.
    Pod,
    /// A Secret.
    Secret,
    /// A ConfigMap.
    ConfigMap,
    /// A ServiceAccount.
    Account,
    /// A PersistentVolumeClaim.
    Claim,
    /// A PersistentVolume.
    Volume,
    /// A ResourceClaim.
    ResourceClaim,
    /// A VolumeAttachment.
    Attachment,
    /// A ResourceSlice.
    Slice,
    /// A PodCertificateRequest.
    CertificateRequest,
}

/// Sort and `namespace/name`.
type Vertex = (Sort, String);

#[derive(Debug, Default)]
struct Volume {
    claim: String,
    secrets: Vec<String>,
}

/// The graph. Everything that a Pod leads to is kept with the nodes that it leads to, so that a question is a lookup.
#[derive(Debug, Default)]
pub struct Graph {
    /// Node and vertices of each placed Pod.
    pods: HashMap<String, (String, Vec<Vertex>)>,
    /// How many Pods of a node lead to a vertex.
    nodes: HashMap<Vertex, HashMap<String, usize>>,
    volumes: HashMap<String, Volume>,
    /// Volumes that lead to a Secret.
    through: HashMap<String, HashSet<String>>,
    /// Nodes of what names its node.
    named: HashMap<Vertex, String>,
}

impl Graph {
    /// Whether an object leads to a node.
    #[must_use]
    pub fn leads(&self, node: &str, sort: Sort, namespace: &str, name: &str) -> bool {
        let key = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
        match sort {
            Sort::Attachment | Sort::Slice | Sort::CertificateRequest => {
                self.named.get(&(sort, key)).is_some_and(|n| n == node)
            }
            Sort::Volume => self.volume_leads(node, &key),
            Sort::Secret => {
                let mut volumes = self.through.get(&key).into_iter().flatten();
                volumes.any(|volume| self.volume_leads(node, volume)) || self.pod_leads(node, (sort, key))
            }
            _ => self.pod_leads(node, (sort, key)),
        }
    }

    fn pod_leads(&self, node: &str, vertex: Vertex) -> bool {
        self.nodes.get(&vertex).is_some_and(|nodes| nodes.contains_key(node))
    }

    fn volume_leads(&self, node: &str, volume: &str) -> bool {
        self.volumes.get(volume).is_some_and(|v| self.pod_leads(node, (Sort::Claim, v.claim.clone())))
    }

    fn put_pod(&mut self, key: &str, pod: &Value) {
        self.remove_pod(key);
        let node = text(&pod["spec"]["nodeName"]);
        if node.is_empty() {
            return;
        }
        let mut vertices: Vec<Vertex> = vec![(Sort::Pod, key.to_owned())];
        if pod["metadata"]["annotations"][MIRROR].is_null() {
            let namespace = text(&pod["metadata"]["namespace"]);
            let inside = |(sort, name): (Sort, String)| (sort, format!("{namespace}/{name}"));
            vertices.extend(references(pod).into_iter().map(inside));
            vertices.sort_by(|a, b| (a.0 as u8, &a.1).cmp(&(b.0 as u8, &b.1)));
            vertices.dedup();
        }
        for vertex in &vertices {
            *self.nodes.entry(vertex.clone()).or_default().entry(node.to_owned()).or_default() += 1;
        }
        self.pods.insert(key.to_owned(), (node.to_owned(), vertices));
    }

    fn remove_pod(&mut self, key: &str) {
        let Some((node, vertices)) = self.pods.remove(key) else { return };
        for vertex in vertices {
            let Some(nodes) = self.nodes.get_mut(&vertex) else { continue };
            if let Some(count) = nodes.get_mut(&node) {
                *count -= 1;
                if *count == 0 {
                    nodes.remove(&node);
                }
            }
            if nodes.is_empty() {
                self.nodes.remove(&vertex);
            }
        }
    }

    fn put_volume(&mut self, key: &str, volume: &Value) {
        self.remove_volume(key);
        let claim = &volume["spec"]["claimRef"];
        if claim.is_null() {
            return;
        }
        let namespace = text(&claim["namespace"]);
        let secrets = volume_secrets(&volume["spec"], namespace);
        for secret in &secrets {
            self.through.entry(secret.clone()).or_default().insert(key.to_owned());
        }
        let claim = format!("{namespace}/{}", text(&claim["name"]));
        self.volumes.insert(key.to_owned(), Volume { claim, secrets });
    }

    fn remove_volume(&mut self, key: &str) {
        let Some(volume) = self.volumes.remove(key) else { return };
        for secret in volume.secrets {
            if let Some(volumes) = self.through.get_mut(&secret) {
                volumes.remove(key);
                if volumes.is_empty() {
                    self.through.remove(&secret);
                }
            }
        }
    }
}

/// The sort of what names its node.
fn named(source: usize) -> Sort {
    match source {
        2 => Sort::Attachment,
        3 => Sort::Slice,
        _ => Sort::CertificateRequest,
    }
}

impl Derive for Graph {
    fn put(&mut self, source: usize, key: &str, object: &Object) {
        // Most Pods are written first and placed later.
        if source == 0 && object.field("spec.nodeName").is_some_and(str::is_empty) {
            return self.remove_pod(key);
        }
        let Ok(value) = serde_json::from_slice::<Value>(object.json()) else { return };
        match source {
            0 => self.put_pod(key, &value),
            1 => self.put_volume(key, &value),
            _ => {
                let node = text(&value["spec"]["nodeName"]).to_owned();
                self.named.insert((named(source), key.to_owned()), node);
            }
        }
    }

    fn remove(&mut self, source: usize, key: &str) {
        match source {
            0 => self.remove_pod(key),
            1 => self.remove_volume(key),
            _ => drop(self.named.remove(&(named(source), key.to_owned()))),
        }
    }

    fn clear(&mut self, source: usize) {
        match source {
            0 => {
                self.pods.clear();
                self.nodes.clear();
            }
            1 => {
                self.volumes.clear();
                self.through.clear();
            }
            _ => self.named.retain(|(sort, _), _| *sort != named(source)),
        }
    }
}

fn items<'a>(object: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    object[key].as_array().into_iter().flatten()
}

/// Whether the spec of a Pod refers to Secrets.
#[must_use]
pub fn has_secrets(spec: &Value) -> bool {
    references(&serde_json::json!({"spec": spec})).iter().any(|(sort, _)| *sort == Sort::Secret)
}

/// Whether the spec of a Pod refers to any object.
#[must_use]
pub fn has_references(spec: &Value) -> bool {
    !references(&serde_json::json!({"spec": spec})).is_empty()
}

/// What a Pod's status says of its ResourceClaims.
#[must_use]
pub fn claims(pod: &Value) -> (&Value, &Value) {
    let status = &pod["status"];
    (&status["resourceClaimStatuses"], &status["extendedResourceClaimStatus"])
}

/// Everything in its namespace that a Pod refers to.
fn references(pod: &Value) -> Vec<(Sort, String)> {
    let mut found = Vec::new();
    let mut add = |sort: Sort, name: &Value| {
        if let Some(name) = name.as_str().filter(|n| !n.is_empty()) {
            found.push((sort, name.to_owned()));
        }
    };
    let spec = &pod["spec"];
    add(Sort::Account, &spec["serviceAccountName"]);
    items(spec, "imagePullSecrets").for_each(|s| add(Sort::Secret, &s["name"]));
    for container in
        ["containers", "initContainers", "ephemeralContainers"].iter().flat_map(|l| items(spec, l))
    {
        for from in items(container, "envFrom") {
            add(Sort::Secret, &from["secretRef"]["name"]);
            add(Sort::ConfigMap, &from["configMapRef"]["name"]);
        }
        for from in items(container, "env").map(|e| &e["valueFrom"]) {
            add(Sort::Secret, &from["secretKeyRef"]["name"]);
            add(Sort::ConfigMap, &from["configMapKeyRef"]["name"]);
        }
    }
    for volume in items(spec, "volumes") {
        add(Sort::Secret, &volume["secret"]["secretName"]);
        add(Sort::Secret, &volume["azureFile"]["secretName"]);
        add(Sort::Secret, &volume["csi"]["nodePublishSecretRef"]["name"]);
        add(Sort::ConfigMap, &volume["configMap"]["name"]);
        add(Sort::Claim, &volume["persistentVolumeClaim"]["claimName"]);
        for kind in ["cephfs", "flexVolume", "iscsi", "rbd", "scaleIO", "storageos"] {
            add(Sort::Secret, &volume[kind]["secretRef"]["name"]);
        }
        for source in items(&volume["projected"], "sources") {
            add(Sort::Secret, &source["secret"]["name"]);
            add(Sort::ConfigMap, &source["configMap"]["name"]);
        }
        if !volume["ephemeral"].is_null() {
            let name = format!("{}-{}", text(&pod["metadata"]["name"]), text(&volume["name"]));
            add(Sort::Claim, &name.into());
        }
    }
    items(spec, "resourceClaims").for_each(|c| add(Sort::ResourceClaim, &c["resourceClaimName"]));
    let status = &pod["status"];
    items(status, "resourceClaimStatuses").for_each(|c| add(Sort::ResourceClaim, &c["resourceClaimName"]));
    add(Sort::ResourceClaim, &status["extendedResourceClaimStatus"]["resourceClaimName"]);
    found
}

/// The Secrets of a volume that its node needs: not those of the calls that controllers make.
fn volume_secrets(spec: &Value, claims: &str) -> Vec<String> {
    let csi = ["nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef"].map(|r| &spec["csi"][r]);
    let others =
        ["cephfs", "flexVolume", "iscsi", "rbd", "scaleIO", "storageos"].map(|k| &spec[k]["secretRef"]);
    let azure = &spec["azureFile"];
    let place = |namespace: &Value, name: &Value| {
        let namespace = namespace.as_str().filter(|n| !n.is_empty()).unwrap_or(claims);
        let name = name.as_str().filter(|n| !n.is_empty())?;
        Some(format!("{namespace}/{name}"))
    };
    let references = csi.into_iter().chain(others);
    let mut secrets: Vec<String> = references.filter_map(|r| place(&r["namespace"], &r["name"])).collect();
    secrets.extend(place(&azure["secretNamespace"], &azure["secretName"]));
    secrets
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(node: &str) -> Value {
        json!({"metadata": {"name": "p", "namespace": "d"}, "spec": {"nodeName": node, "serviceAccountName": "sa",
            "containers": [{"envFrom": [{"secretRef": {"name": "env"}}]}],
            "volumes": [{"configMap": {"name": "cm"}}, {"persistentVolumeClaim": {"claimName": "c"}},
                {"projected": {"sources": [{"secret": {"name": "proj"}}]}}, {"name": "e", "ephemeral": {}}]}})
    }

    fn volume() -> Value {
        json!({"spec": {"claimRef": {"namespace": "d", "name": "c"}, "csi": {
            "nodeStageSecretRef": {"namespace": "s", "name": "stage"},
            "controllerPublishSecretRef": {"namespace": "s", "name": "attach"}}}})
    }

    #[test]
    fn a_node_reaches_what_its_pods_refer_to_and_nothing_else() {
        let mut graph = Graph::default();
        graph.put_pod("d/p", &pod("n1"));
        graph.put_volume("v", &volume());
        let rows = [
            (Sort::Pod, "d", "p", true),
            (Sort::Secret, "d", "env", true),
            (Sort::Secret, "d", "proj", true),
            (Sort::Secret, "x", "env", false),
            (Sort::Secret, "s", "stage", true),
            (Sort::Secret, "s", "attach", false),
            (Sort::ConfigMap, "d", "cm", true),
            (Sort::Claim, "d", "c", true),
            (Sort::Claim, "d", "p-e", true),
            (Sort::Volume, "", "v", true),
            (Sort::Account, "d", "sa", true),
            (Sort::Account, "d", "default", false),
        ];
        for (sort, namespace, name, leads) in rows {
            assert_eq!(graph.leads("n1", sort, namespace, name), leads, "{sort:?} {namespace}/{name}");
            assert!(!graph.leads("n2", sort, namespace, name), "{sort:?} {namespace}/{name}");
        }
        graph.put_pod("d/q", &pod("n1"));
        graph.remove_pod("d/p");
        assert!(graph.leads("n1", Sort::Secret, "d", "env"), "the other Pod still needs it");
        graph.remove_pod("d/q");
        graph.remove_volume("v");
        assert!(graph.nodes.is_empty() && graph.through.is_empty());
    }

    #[test]
    fn a_mirror_pod_gives_a_node_nothing_but_itself() {
        let mut graph = Graph::default();
        let mut mirror = pod("n1");
        mirror["metadata"]["annotations"] = json!({MIRROR: "x"});
        graph.put_pod("d/p", &mirror);
        assert!(graph.leads("n1", Sort::Pod, "d", "p"));
        assert!(!graph.leads("n1", Sort::Secret, "d", "env"));
        graph.put_pod("d/p", &pod(""));
        assert!(!graph.leads("n1", Sort::Pod, "d", "p"), "not placed");
    }
}
