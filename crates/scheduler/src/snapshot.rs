//! What the scheduler knows at one instant. Assumed Pods (decided, not yet seen bound) count as placed.

use std::collections::BTreeMap;
use std::sync::Arc;

use trine_objects::quantity::Quantity;
use trine_typed::k8s_openapi::api::core::v1::{
    Container, Node, PersistentVolume, PersistentVolumeClaim, Pod,
};
use trine_typed::k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use trine_typed::pods::is_finished;

/// Amounts by resource name (`cpu`, `memory`, `ephemeral-storage`, `pods`, ...), in thousandths.
pub type Amounts = BTreeMap<String, i128>;

/// One node with what is placed on it.
#[derive(Debug, Clone)]
pub struct NodeInfo {
    /// The object.
    pub node: Arc<Node>,
    /// Pods that are bound or assumed here and not finished.
    pub pods: Vec<Arc<Pod>>,
    /// Sum of the requests of `pods`.
    pub requested: Amounts,
}

/// Everything that filters look at.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// Nodes by name.
    pub nodes: BTreeMap<String, NodeInfo>,
    /// Claims by namespace and name.
    pub claims: BTreeMap<(String, String), Arc<PersistentVolumeClaim>>,
    /// Volumes by name.
    pub volumes: BTreeMap<String, Arc<PersistentVolume>>,
    /// Classes by name.
    pub classes: BTreeMap<String, Arc<StorageClass>>,
    /// CSI drivers per node.
    pub csi_nodes: BTreeMap<String, Arc<CSINode>>,
}

impl NodeInfo {
    /// A node with nothing on it.
    #[must_use]
    pub fn new(node: Arc<Node>) -> Self {
        Self { node, pods: Vec::new(), requested: Amounts::new() }
    }

    /// Places `pod` here.
    pub fn add(&mut self, pod: Arc<Pod>) {
        for (name, amount) in requests(&pod) {
            *self.requested.entry(name).or_default() += amount;
        }
        self.pods.push(pod);
    }

    /// The node's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.node.metadata.name.as_deref().unwrap_or_default()
    }

    /// A label's value.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        self.node.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }

    /// Allocatable amounts.
    #[must_use]
    pub fn allocatable(&self) -> Amounts {
        let status = self.node.status.as_ref();
        let list = status.and_then(|s| s.allocatable.as_ref().or(s.capacity.as_ref()));
        list.map(|l| l.iter().map(|(k, v)| (k.clone(), amount(&v.0))).collect()).unwrap_or_default()
    }
}

impl Snapshot {
    /// Places each Pod with a node on it; finished ones take no room.
    pub fn place(&mut self, pods: impl IntoIterator<Item = Arc<Pod>>) {
        for pod in pods {
            let node = pod.spec.as_ref().and_then(|s| s.node_name.clone());
            if let Some(info) = node.and_then(|n| self.nodes.get_mut(&n))
                && !is_finished(&pod)
            {
                info.add(pod);
            }
        }
    }

    /// The claim `name` in the Pod's namespace.
    #[must_use]
    pub fn claim(&self, namespace: &str, name: &str) -> Option<&Arc<PersistentVolumeClaim>> {
        self.claims.get(&(namespace.to_owned(), name.to_owned()))
    }
}

/// What a Pod asks for: the larger of the sum of its containers (restartable init containers included) and the
/// peak of its init containers, plus overhead; and one of `pods`. Upstream: `resourcehelper.PodRequests`.
#[must_use]
pub fn requests(pod: &Pod) -> Amounts {
    let Some(spec) = &pod.spec else { return Amounts::new() };
    let mut total = Amounts::new();
    for container in &spec.containers {
        add(&mut total, &container_requests(container));
    }
    let mut sidecars = Amounts::new();
    let mut peak = Amounts::new();
    for container in spec.init_containers.iter().flatten() {
        let wanted = container_requests(container);
        if container.restart_policy.as_deref() == Some("Always") {
            add(&mut sidecars, &wanted);
            larger(&mut peak, &sidecars);
        } else {
            let mut here = wanted;
            add(&mut here, &sidecars);
            larger(&mut peak, &here);
        }
    }
    add(&mut total, &sidecars);
    larger(&mut total, &peak);
    for (name, value) in spec.overhead.iter().flatten() {
        *total.entry(name.clone()).or_default() += amount(&value.0);
    }
    total.insert("pods".to_owned(), 1000);
    total
}

fn container_requests(container: &Container) -> Amounts {
    let requests = container.resources.as_ref().and_then(|r| r.requests.as_ref());
    requests.into_iter().flatten().map(|(k, v)| (k.clone(), amount(&v.0))).collect()
}

fn add(into: &mut Amounts, from: &Amounts) {
    for (name, value) in from {
        *into.entry(name.clone()).or_default() += value;
    }
}

fn larger(into: &mut Amounts, other: &Amounts) {
    for (name, value) in other {
        let slot = into.entry(name.clone()).or_default();
        *slot = (*slot).max(*value);
    }
}

/// A quantity in thousandths; what does not parse counts as nothing (the API server refuses it before).
#[must_use]
pub fn amount(text: &str) -> i128 {
    text.parse::<Quantity>().map(|q| q.milli()).unwrap_or_default()
}
