//! What is known of the cluster: Pods by their addresses, namespaces' labels, policies. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use trine_typed::k8s_openapi::api::core::v1::{Container, Pod};

use crate::lookup::{Lookups, Member, Owner, Query};
use crate::policy::{Policy, Proto};

/// A Pod of a file has another uid for its kubelet, which the API's copy names so.
const OF_A_FILE: &str = "kubernetes.io/config.hash";

/// Namespace and name.
pub type Key = (String, String);

/// A Pod, reduced to what policies ask.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodFacts {
    /// Its uid.
    pub uid: String,
    /// The uid that its kubelet knows it by, if that is another.
    pub kubelet_uid: Option<String>,
    /// Its node, once it has one.
    pub node: Option<String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// The addresses that its status tells.
    pub addresses: Vec<IpAddr>,
    /// Its containers have ended for good: its addresses are another's, or nobody's.
    pub ended: bool,
    /// It has no addresses of its own: no policy selects it.
    pub host_network: bool,
    /// It was deleted and may run on for a while.
    pub going: bool,
    /// When it was made, seconds since 1970.
    pub created: i64,
    /// Its ports that have names.
    pub ports: Vec<(String, Proto, u16)>,
}

impl PodFacts {
    /// What a Pod says.
    #[must_use]
    pub fn from_api(pod: &Pod) -> Self {
        let spec = pod.spec.as_ref();
        let status = pod.status.as_ref();
        let host_network = spec.and_then(|s| s.host_network).unwrap_or(false);
        let several = status.and_then(|s| s.pod_ips.as_ref()).into_iter().flatten().map(|ip| &ip.ip);
        let one = status.and_then(|s| s.pod_ip.as_ref());
        let told = several.chain(one).filter_map(|text| text.parse().ok());
        let mut addresses: Vec<IpAddr> = told.collect();
        addresses.sort_unstable();
        addresses.dedup();
        let meta = &pod.metadata;
        Self {
            uid: meta.uid.clone().unwrap_or_default(),
            kubelet_uid: meta.annotations.as_ref().and_then(|all| all.get(OF_A_FILE)).cloned(),
            node: spec.and_then(|s| s.node_name.clone()),
            labels: meta.labels.clone().unwrap_or_default(),
            addresses,
            ended: trine_typed::pods::is_finished(pod),
            host_network,
            going: meta.deletion_timestamp.is_some(),
            created: meta.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()),
            ports: spec.map(|s| named_ports(&s.containers, s.init_containers.as_deref())).unwrap_or_default(),
        }
    }
}

/// Ports of containers that run beside one another.
fn named_ports(containers: &[Container], init: Option<&[Container]>) -> Vec<(String, Proto, u16)> {
    let beside = init.into_iter().flatten().filter(|c| c.restart_policy.as_deref() == Some("Always"));
    let ports = containers.iter().chain(beside).flat_map(|c| c.ports.iter().flatten());
    let named = ports.filter_map(|port| {
        let proto = Proto::parse(port.protocol.as_deref())?;
        Some((port.name.clone()?, proto, u16::try_from(port.container_port).ok()?))
    });
    named.collect()
}

/// The cluster as policies see it.
#[derive(Debug, Default)]
pub struct Model {
    pods: HashMap<Key, PodFacts>,
    /// Addresses that the network plugin told, before the Pod's status does: by uid.
    told: HashMap<String, Vec<IpAddr>>,
    uids: HashMap<String, Key>,
    claims: HashMap<IpAddr, BTreeSet<Key>>,
    /// The node of each address's owner, and the other way round.
    nodes: HashMap<IpAddr, String>,
    by_node: HashMap<String, BTreeSet<IpAddr>>,
    namespaces: HashMap<String, BTreeMap<String, String>>,
    policies: BTreeMap<Key, Arc<Policy>>,
    lookups: Lookups,
    changed: bool,
}

impl Model {
    /// A Pod is there in this form, or is gone.
    pub fn set_pod(&mut self, key: &Key, pod: Option<PodFacts>) {
        let old = self.pods.get(key);
        if old == pod.as_ref() {
            return;
        }
        let mut touched = old.map(|pod| self.addresses(pod)).unwrap_or_default();
        if let Some(old) = self.pods.remove(key) {
            touched.iter().for_each(|address| self.release(*address, key));
            // What the plugin told holds until the status says the same: from then on the status is the newer one.
            let told = self.told.get(&old.uid);
            let holds = |pod: &PodFacts| pod.uid == old.uid && told != Some(&pod.addresses);
            if !pod.as_ref().is_some_and(holds) {
                self.told.remove(&old.uid);
            }
            for uid in std::iter::once(&old.uid).chain(&old.kubelet_uid) {
                self.uids.remove(uid);
            }
        }
        if let Some(pod) = pod {
            let now = self.addresses(&pod);
            self.claim(&now, key);
            for uid in std::iter::once(&pod.uid).chain(&pod.kubelet_uid) {
                self.uids.insert(uid.clone(), key.clone());
            }
            self.pods.insert(key.clone(), pod);
            touched.extend(now);
        }
        self.refresh(touched);
    }

    /// The network plugin has given a Pod addresses. False if no Pod is known by that uid.
    pub fn set_addresses(&mut self, uid: &str, addresses: &[IpAddr]) -> bool {
        let Some(key) = self.uids.get(uid).cloned() else { return false };
        let Some(pod) = self.pods.get(&key) else { return false };
        let mut addresses = addresses.to_vec();
        addresses.sort_unstable();
        let mut touched = self.addresses(pod);
        // Who has no address of its own, or none any more, claims none.
        if !pod.host_network && !pod.ended && touched != addresses {
            self.told.insert(pod.uid.clone(), addresses.clone());
            touched.iter().for_each(|address| self.release(*address, &key));
            self.claim(&addresses, &key);
            touched.extend(addresses);
            self.refresh(touched);
        }
        true
    }

    /// A namespace has these labels, or is gone.
    pub fn set_namespace(&mut self, name: &str, labels: Option<BTreeMap<String, String>>) {
        if self.namespaces.get(name) == labels.as_ref() {
            return;
        }
        match labels {
            Some(labels) => drop(self.namespaces.insert(name.to_owned(), labels)),
            None => drop(self.namespaces.remove(name)),
        }
        let within = |keys: &BTreeSet<Key>| keys.iter().any(|key| key.0 == name);
        let touched = self.claims.iter().filter(|(_, keys)| within(keys)).map(|(address, _)| *address);
        let touched: Vec<IpAddr> = touched.collect();
        self.refresh(touched);
    }

    /// A policy is there in this form, or is gone.
    pub fn set_policy(&mut self, key: &Key, policy: Option<Policy>) {
        if self.policies.get(key).map(AsRef::as_ref) == policy.as_ref() {
            return;
        }
        self.changed = true;
        match policy {
            Some(policy) => drop(self.policies.insert(key.clone(), Arc::new(policy))),
            None => drop(self.policies.remove(key)),
        }
    }

    /// The Pods that are not among these are gone.
    pub fn keep_pods(&mut self, listed: &BTreeSet<Key>) {
        let gone: Vec<Key> = self.pods.keys().filter(|key| !listed.contains(*key)).cloned().collect();
        gone.iter().for_each(|key| self.set_pod(key, None));
    }

    /// The namespaces that are not among these are gone.
    pub fn keep_namespaces(&mut self, listed: &BTreeSet<Key>) {
        let names: BTreeSet<&str> = listed.iter().map(|key| key.1.as_str()).collect();
        let gone = self.namespaces.keys().filter(|name| !names.contains(name.as_str())).cloned();
        let gone: Vec<String> = gone.collect();
        gone.iter().for_each(|name| self.set_namespace(name, None));
    }

    /// The policies that are not among these are gone.
    pub fn keep_policies(&mut self, listed: &BTreeSet<Key>) {
        let gone: Vec<Key> = self.policies.keys().filter(|key| !listed.contains(*key)).cloned().collect();
        gone.iter().for_each(|key| self.set_policy(key, None));
    }

    /// Forgets Pods and namespaces: nobody asks for them.
    pub fn forget_pods(&mut self) {
        let policies = std::mem::take(&mut self.policies);
        *self = Self { policies, changed: true, ..Self::default() };
    }

    /// Whether there are policies at all.
    #[must_use]
    pub fn has_policies(&self) -> bool {
        !self.policies.is_empty()
    }

    /// The policies, by namespace and name.
    pub fn policies(&self) -> impl Iterator<Item = (&Key, &Arc<Policy>)> {
        self.policies.iter()
    }

    /// The Pod that has a uid, by its own or its kubelet's word.
    #[must_use]
    pub fn pod_of(&self, uid: &str) -> Option<(&Key, &PodFacts)> {
        self.pods.get_key_value(self.uids.get(uid)?)
    }

    /// Whether anything changed since this was asked last.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// The addresses of a node's Pods with their owners.
    pub fn on_node<'a>(&'a self, node: &'a str) -> impl Iterator<Item = (IpAddr, &'a Key, &'a PodFacts)> {
        let addresses = self.by_node.get(node).into_iter().flatten();
        addresses.filter_map(|address| self.owner(*address).map(|(key, pod)| (*address, key, pod)))
    }

    /// The answer to a question, and the name of its set.
    pub fn ask(&mut self, query: &Query) -> (String, Arc<BTreeSet<Member>>) {
        let mut lookups = std::mem::take(&mut self.lookups);
        let everybody =
            self.claims.keys().filter_map(|address| Some((*address, self.owner_with_labels(*address)?)));
        let answer = lookups.ask(query, everybody);
        self.lookups = lookups;
        answer
    }

    /// Questions that are not asked until [`Model::end_questions`] are forgotten then.
    pub fn begin_questions(&mut self) {
        self.lookups.begin();
    }

    /// See [`Model::begin_questions`].
    pub fn end_questions(&mut self) {
        self.lookups.drop_unused();
    }

    fn addresses(&self, pod: &PodFacts) -> Vec<IpAddr> {
        if pod.host_network || pod.ended {
            return Vec::new();
        }
        self.told.get(&pod.uid).cloned().unwrap_or_else(|| pod.addresses.clone())
    }

    fn claim(&mut self, addresses: &[IpAddr], key: &Key) {
        for address in addresses {
            self.claims.entry(*address).or_default().insert(key.clone());
        }
    }

    fn release(&mut self, address: IpAddr, key: &Key) {
        if let Some(keys) = self.claims.get_mut(&address) {
            keys.remove(key);
            if keys.is_empty() {
                self.claims.remove(&address);
            }
        }
    }

    /// Whose an address is: an address that is used again is named by two Pods for a while.
    fn owner(&self, address: IpAddr) -> Option<(&Key, &PodFacts)> {
        let owners = self.claims.get(&address)?.iter().filter_map(|key| self.pods.get_key_value(key));
        owners.max_by_key(|(key, pod)| (self.told.contains_key(&pod.uid), !pod.going, pod.created, *key))
    }

    fn owner_with_labels(&self, address: IpAddr) -> Option<Owner<'_>> {
        let (key, pod) = self.owner(address)?;
        Some((pod, key.0.as_str(), self.namespaces.get(&key.0)))
    }

    /// Notes the node that an address is on.
    fn place(&mut self, address: IpAddr) {
        let node = self.owner(address).and_then(|(_, pod)| pod.node.clone());
        if self.nodes.get(&address) == node.as_ref() {
            return;
        }
        if let Some(old) = self.nodes.remove(&address)
            && let Some(addresses) = self.by_node.get_mut(&old)
        {
            addresses.remove(&address);
            if addresses.is_empty() {
                self.by_node.remove(&old);
            }
        }
        if let Some(node) = node {
            self.by_node.entry(node.clone()).or_default().insert(address);
            self.nodes.insert(address, node);
        }
    }

    fn refresh(&mut self, touched: Vec<IpAddr>) {
        self.changed |= !touched.is_empty();
        let mut lookups = std::mem::take(&mut self.lookups);
        for address in touched {
            lookups.refresh(address, self.owner_with_labels(address));
            self.place(address);
        }
        self.lookups = lookups;
    }
}
