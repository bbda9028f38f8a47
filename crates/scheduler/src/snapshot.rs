//! What the scheduler knows at one instant. Assumed Pods (decided, not yet seen bound) count as placed.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use trine_typed::k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use trine_typed::k8s_openapi::api::policy::v1::PodDisruptionBudget;
use trine_typed::k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use trine_typed::pods::is_finished;

use crate::preemption::priority;

pub use trine_typed::demand::{Amounts, allocatable, amount, requests};

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
    /// Labels of namespaces by name.
    pub namespaces: BTreeMap<String, BTreeMap<String, String>>,
    /// Budgets that preemption should keep.
    pub budgets: Vec<Arc<PodDisruptionBudget>>,
    /// Pods that a node was promised to, by node: others made room for them.
    pub nominated: BTreeMap<String, Vec<Arc<Pod>>>,
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
        allocatable(&self.node)
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

    /// A node as a Pod may count on it: with the Pods that it was promised to, unless they are of lower priority.
    #[must_use]
    pub fn for_pod<'a>(&self, pod: &Pod, node: &'a NodeInfo) -> Cow<'a, NodeInfo> {
        let mut seen = Cow::Borrowed(node);
        for other in self.nominated.get(node.name()).into_iter().flatten() {
            if other.metadata.uid != pod.metadata.uid && priority(other) >= priority(pod) {
                seen.to_mut().add(Arc::clone(other));
            }
        }
        seen
    }

    /// The claim `name` in the Pod's namespace.
    #[must_use]
    pub fn claim(&self, namespace: &str, name: &str) -> Option<&Arc<PersistentVolumeClaim>> {
        self.claims.get(&(namespace.to_owned(), name.to_owned()))
    }
}
