//! What the scheduler knows at one instant, changed piece by piece as things become known. Assumed Pods (decided, not yet seen
//! bound) count as placed.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use trine_typed::k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use trine_typed::k8s_openapi::api::policy::v1::PodDisruptionBudget;
use trine_typed::k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use trine_typed::pods::is_finished;

use crate::devices::inventory::Inventory;
use crate::index::Index;
use crate::nodes::Images;
use crate::owners::Owners;
use crate::plugins::pod_topology_spread;
use crate::pod_info::PodInfo;
use crate::preemption::priority;
use crate::profile::Profile;
use crate::terms::Namespaces;

pub use crate::nodes::{NodeInfo, Nodes};

/// Everything that filters look at.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// Nodes by name.
    pub nodes: Nodes,
    /// Claims by namespace and name.
    pub claims: BTreeMap<(String, String), Arc<PersistentVolumeClaim>>,
    /// Volumes by name.
    pub volumes: BTreeMap<String, Arc<PersistentVolume>>,
    /// Classes by name.
    pub classes: BTreeMap<String, Arc<StorageClass>>,
    /// CSI drivers per node.
    pub csi_nodes: BTreeMap<String, Arc<CSINode>>,
    /// Labels of namespaces by name.
    pub namespaces: Namespaces,
    /// Budgets that preemption should keep, by namespace and name.
    pub budgets: BTreeMap<(String, String), Arc<PodDisruptionBudget>>,
    /// Pods that a node was promised to, by node: others made room for them.
    pub nominated: BTreeMap<String, Vec<PodInfo>>,
    /// Which Pods belong together.
    pub owners: Owners,
    /// Counts over all Pods.
    pub index: Index,
    /// Devices, and what is taken of them.
    pub devices: Inventory,
    /// Which nodes have which image.
    pub images: Images,
    /// Where the next decision begins among the nodes.
    pub start: usize,
}

impl Snapshot {
    /// A node is there, or is another than before; its Pods stay.
    pub fn put_node(&mut self, node: Arc<Node>) {
        let mut info = NodeInfo::new(node);
        if let Some(old) = self.nodes.get(info.name()) {
            self.images.remove(old);
            for pod in &old.pods {
                info.add(pod.clone());
            }
        }
        let slot = self.nodes.put(info);
        if let Some(info) = self.nodes.at(slot) {
            self.images.add(info);
            self.index.node_is(info);
        }
    }

    /// A node is gone. Gives the Pods that were on it.
    pub fn take_node(&mut self, name: &str) -> Vec<PodInfo> {
        let Some(info) = self.nodes.take(name) else { return Vec::new() };
        self.images.remove(&info);
        for pod in &info.pods {
            self.index.removed(pod, info.slot(), &self.namespaces);
        }
        self.index.node_gone(info.slot());
        info.pods
    }

    /// Places a Pod on a node. Gives it back if there is no such node.
    ///
    /// # Errors
    /// The Pod.
    pub fn place_on(&mut self, node: &str, pod: PodInfo) -> Result<(), PodInfo> {
        let Some(info) = self.nodes.get_mut(node) else { return Err(pod) };
        self.index.placed(&pod, info.slot(), &self.namespaces);
        info.add(pod);
        Ok(())
    }

    /// Takes a Pod from a node.
    pub fn remove_from(&mut self, node: &str, uid: &str) -> Option<PodInfo> {
        let info = self.nodes.get_mut(node)?;
        let pod = info.remove(uid)?;
        self.index.removed(&pod, info.slot(), &self.namespaces);
        Some(pod)
    }

    /// Takes a Pod's new form over, which asks for nothing else than the old one.
    pub fn renew_on(&mut self, node: &str, renewed: PodInfo) {
        let pods = self.nodes.get_mut(node).map(|info| &mut info.pods);
        if let Some(seat) = pods.into_iter().flatten().find(|pod| pod.uid() == renewed.uid()) {
            *seat = renewed;
        }
    }

    /// Places each Pod with a node on it; finished ones take no room.
    pub fn place(&mut self, pods: impl IntoIterator<Item = Arc<Pod>>) {
        for pod in pods.into_iter().filter(|pod| !is_finished(pod)) {
            let node = pod.spec.as_ref().and_then(|s| s.node_name.clone()).unwrap_or_default();
            drop(self.place_on(&node, pod.into()));
        }
    }

    /// The labels of a namespace; none if it is gone.
    pub fn set_namespace(&mut self, name: &str, labels: Option<BTreeMap<String, String>>) {
        if self.namespaces.get(name) == labels.as_ref() {
            return;
        }
        match labels {
            Some(labels) => self.namespaces.insert(name.to_owned(), labels),
            None => self.namespaces.remove(name),
        };
        self.index.namespaces_changed();
    }

    /// Keeps the counts that a decision about this Pod asks for. Without it they are counted anew each time.
    pub fn prepare(&mut self, pod: &PodInfo, profile: &Profile) {
        let spread = pod_topology_spread::asked(pod, &self.owners, profile.args.spread.as_deref());
        let terms = pod.wishes.near.iter().chain(&pod.wishes.apart);
        let terms: Vec<_> = terms.chain(pod.wishes.preferred.iter().map(|(term, _)| term)).collect();
        let keys = spread.iter().map(|(key, _)| key).chain(terms.iter().map(|term| &term.topology_key));
        for key in keys {
            self.index.keep_places(key, &self.nodes);
        }
        let near = (!pod.wishes.near.is_empty()).then_some(&pod.wishes.near_all);
        let questions = spread.iter().map(|(_, question)| question).chain(near);
        for question in questions.chain(terms.iter().map(|term| &term.question)) {
            self.index.keep(question, &self.nodes, &self.namespaces);
        }
        for key in self.index.unkept_places() {
            self.index.keep_places(&key, &self.nodes);
        }
    }

    /// A node as a Pod may count on it: with the Pods that it was promised to, unless they are of lower priority.
    #[must_use]
    pub fn for_pod<'a>(&self, pod: &PodInfo, node: &'a NodeInfo) -> Cow<'a, NodeInfo> {
        let mut seen = Cow::Borrowed(node);
        if self.nominated.is_empty() {
            return seen;
        }
        for other in self.nominated.get(node.name()).into_iter().flatten() {
            if other.uid() != pod.uid() && priority(&other.pod) >= priority(&pod.pod) {
                seen.to_mut().add(other.clone());
            }
        }
        seen
    }

    /// The node as it is here, if `node` is a changed copy of it.
    #[must_use]
    pub fn original(&self, node: &NodeInfo) -> Option<&NodeInfo> {
        self.nodes.at(node.slot()).filter(|original| !std::ptr::eq(*original, node))
    }

    /// The claim `name` in the Pod's namespace.
    #[must_use]
    pub fn claim(&self, namespace: &str, name: &str) -> Option<&Arc<PersistentVolumeClaim>> {
        self.claims.get(&(namespace.to_owned(), name.to_owned()))
    }
}
