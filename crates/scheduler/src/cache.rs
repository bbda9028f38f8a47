//! What is known of the cluster, kept by what its watches tell: each change touches only what has changed. Pods that were decided
//! for count as placed at once; the watch confirms them, or the binding has failed and they are forgotten.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use trine_typed::k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use trine_typed::k8s_openapi::api::core::v1::{
    Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, ReplicationController, Service,
};
use trine_typed::k8s_openapi::api::policy::v1::PodDisruptionBudget;
use trine_typed::k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use trine_typed::pods::is_finished;

use crate::devices::{DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice, claims};
use crate::events::{Event, Plugin, node_matters};
use crate::owners::Kind;
use crate::plugins::dynamic_resources::Given;
use crate::pod_info::PodInfo;
use crate::preemption::nominated_node;
use crate::profile::plugins::Point;
use crate::profile::{Config, Profile, scheduler_of};
use crate::queue::Queue;
use crate::snapshot::Snapshot;

/// An object as it was and as it is; none: it was made, or is gone.
pub type Pair<K> = (Option<Arc<K>>, Option<Arc<K>>);

/// What a watch has told.
#[derive(Debug, Clone)]
pub enum Change {
    /// Of a Pod.
    Pod(Pair<Pod>),
    /// Of a node.
    Node(Pair<Node>),
    /// Of a claim.
    Claim(Pair<PersistentVolumeClaim>),
    /// Of a volume.
    Volume(Pair<PersistentVolume>),
    /// Of a class.
    Class(Pair<StorageClass>),
    /// Of the drivers of a node.
    CsiNode(Pair<CSINode>),
    /// Of a budget.
    Budget(Pair<PodDisruptionBudget>),
    /// Of a namespace.
    Namespace(Pair<Namespace>),
    /// Of a Service.
    Service(Pair<Service>),
    /// Of a controller of Pods.
    ReplicationController(Pair<ReplicationController>),
    /// Of another.
    ReplicaSet(Pair<ReplicaSet>),
    /// Of another.
    StatefulSet(Pair<StatefulSet>),
    /// Of a claim of devices.
    DeviceClaim(Pair<ResourceClaim>),
    /// Of a class of devices.
    DeviceClass(Pair<DeviceClass>),
    /// Of what a driver offers.
    DeviceSlice(Pair<ResourceSlice>),
    /// Of a taint of devices.
    DeviceTaint(Pair<DeviceTaintRule>),
    /// The claims, classes and slices that there are have been told.
    DevicesListed,
}

/// Where a Pod is counted.
#[derive(Debug)]
struct Seat {
    node: String,
    /// Decided, and not yet seen bound.
    assumed: bool,
}

/// The cluster, and the Pods that wait for a node. Times are since any fixed start.
#[derive(Debug)]
pub struct Cache {
    /// What decisions are made of.
    pub snapshot: Snapshot,
    /// Who waits.
    pub queue: Queue,
    profiles: Vec<Profile>,
    seats: HashMap<String, Seat>,
    /// Pods on nodes that are not known (yet, or any more).
    homeless: HashMap<String, Vec<PodInfo>>,
    /// The node that each Pod was promised, by UID.
    promised: HashMap<String, String>,
    /// Pods that are not looked at before their claims of devices are as they have to be, by UID.
    gated: HashMap<String, Arc<Pod>>,
    /// Who waits for which claim, by namespace and name.
    gates: HashMap<(String, String), BTreeSet<String>>,
    /// Claims of devices that have changed.
    changed_claims: HashSet<(String, String)>,
}

impl Cache {
    /// Of nothing, for the Pods of the profiles.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self {
            snapshot: Snapshot::default(),
            queue: Queue::new(config.backoff),
            profiles: config.profiles.clone(),
            seats: HashMap::new(),
            homeless: HashMap::new(),
            promised: HashMap::new(),
            gated: HashMap::new(),
            gates: HashMap::new(),
            changed_claims: HashSet::new(),
        }
    }

    /// Takes changes over, in their order, and wakes Pods that they can help.
    pub fn apply(&mut self, changes: impl IntoIterator<Item = Change>, now: Duration) {
        let mut events = Vec::new();
        for change in changes {
            for event in self.change(change, now) {
                if !events.contains(&event) {
                    events.push(event);
                }
            }
        }
        for event in events {
            self.queue.happened(event, now);
        }
        let claims = std::mem::take(&mut self.changed_claims);
        self.queue.claims_changed(&claims, now);
    }

    fn change(&mut self, change: Change, now: Duration) -> Vec<Event> {
        let s = &mut self.snapshot;
        match change {
            Change::Pod((old, new)) => return self.pod(old.as_deref(), new, now),
            Change::Node((old, new)) => return self.node(old.as_deref(), new),
            Change::Claim((old, new)) => put(&mut s.claims, old, new, |o| key(&o.metadata)),
            Change::Volume((old, new)) => put(&mut s.volumes, old, new, |o| name(&o.metadata)),
            Change::Class((old, new)) => put(&mut s.classes, old, new, |o| name(&o.metadata)),
            Change::CsiNode((old, new)) => put(&mut s.csi_nodes, old, new, |o| name(&o.metadata)),
            Change::DeviceClaim(pair) => return self.device_claim(pair, now),
            Change::DeviceClass((old, new)) => {
                let helps = new.is_some();
                put(&mut s.devices.classes, old, new, |o| name(&o.metadata));
                return if helps { vec![Event::Devices] } else { Vec::new() };
            }
            Change::DeviceSlice(pair) => {
                let helps = pair.1.is_some();
                s.devices.put_slice(pair);
                return if helps { vec![Event::Devices] } else { Vec::new() };
            }
            Change::DeviceTaint(pair) => {
                s.devices.put_rule(pair);
                return vec![Event::Devices];
            }
            Change::DevicesListed => {
                s.devices.listed = true;
                for pod in std::mem::take(&mut self.gated).into_values() {
                    self.look_again(pod, now);
                }
                return vec![Event::Devices];
            }
            Change::Budget((old, new)) => {
                put(&mut s.budgets, old, new, |o| key(&o.metadata));
                return Vec::new();
            }
            Change::Namespace((old, new)) => {
                let Some(meta) = new.as_ref().or(old.as_ref()).map(|n| &n.metadata) else {
                    return Vec::new();
                };
                let labels = new.as_ref().map(|n| n.metadata.labels.clone().unwrap_or_default());
                s.set_namespace(&name(meta), labels);
                return vec![Event::Namespace];
            }
            Change::Service((old, new)) => {
                let selector =
                    |service: &Service| service.spec.as_ref().and_then(|spec| spec.selector.clone());
                let Some(meta) = new.as_ref().or(old.as_ref()).map(|s| &s.metadata) else {
                    return Vec::new();
                };
                let (namespace, name) = key(meta);
                s.owners.set_service(&namespace, &name, new.as_deref().and_then(selector));
                return Vec::new();
            }
            Change::ReplicationController(pair) => {
                let selector = |o: &ReplicationController| {
                    let equal = o.spec.as_ref()?.selector.clone()?;
                    Some(LabelSelector { match_labels: Some(equal), match_expressions: None })
                };
                return self.owner(Kind::ReplicationController, &pair, |o| &o.metadata, selector);
            }
            Change::ReplicaSet(pair) => {
                let selector = |o: &ReplicaSet| Some(o.spec.selector.clone());
                return self.owner(Kind::ReplicaSet, &pair, |o| &o.metadata, selector);
            }
            Change::StatefulSet(pair) => {
                let selector = |o: &StatefulSet| Some(o.spec.selector.clone());
                return self.owner(Kind::StatefulSet, &pair, |o| &o.metadata, selector);
            }
        }
        vec![Event::Storage]
    }

    /// Whom a controller selects; nobody waits for that.
    fn owner<K>(
        &mut self,
        kind: Kind,
        (old, new): &Pair<K>,
        meta: impl Fn(&K) -> &ObjectMeta,
        selector: impl Fn(&K) -> Option<LabelSelector>,
    ) -> Vec<Event> {
        if let Some(object) = new.as_ref().or(old.as_ref()) {
            let (namespace, name) = key(meta(object));
            let owners = &mut self.snapshot.owners;
            owners.set_controller(kind, &namespace, &name, new.as_deref().and_then(selector));
        }
        Vec::new()
    }

    fn device_claim(&mut self, pair: Pair<ResourceClaim>, now: Duration) -> Vec<Event> {
        let claim = pair.1.as_ref().or(pair.0.as_ref());
        let key = claim.map(|claim| key(&claim.metadata)).unwrap_or_default();
        // Who has it, or is ready for it, is nobody's business here.
        let matters = match &pair {
            (Some(old), Some(new)) => {
                old.status != new.status
                    || old.metadata.uid != new.metadata.uid
                    || old.metadata.deletion_timestamp != new.metadata.deletion_timestamp
            }
            _ => true,
        };
        let freed = self.snapshot.devices.put_claim(pair);
        if !matters {
            return Vec::new();
        }
        for uid in self.gates.remove(&key).into_iter().flatten() {
            if let Some(pod) = self.gated.remove(&uid) {
                self.look_again(pod, now);
            }
        }
        self.changed_claims.insert(key);
        if freed { vec![Event::Devices] } else { Vec::new() }
    }

    /// What has kept a Pod from being looked at may be over.
    fn look_again(&mut self, pod: Arc<Pod>, now: Duration) {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        drop(self.waits(Some(&Arc::clone(&pod)), pod, &uid, now));
    }

    /// Whether a Pod's claims of devices are as they have to be before it is looked at.
    fn has_claims(&mut self, pod: &Arc<Pod>, uid: &str) -> bool {
        if claims::wanted(pod).is_empty() {
            return true;
        }
        let profile = self.profiles.iter().find(|profile| profile.name == scheduler_of(pod));
        let heeds = |profile: &Profile| profile.chosen.has(Plugin::DynamicResources, Point::PreEnqueue);
        if !profile.is_some_and(heeds) {
            return true;
        }
        let devices = &self.snapshot.devices;
        let missing = match claims::of(pod, devices) {
            Ok(_) if devices.listed => return true,
            Ok(_) => None,
            Err(missing) => missing.claim,
        };
        // Without one it is the Pod's own change that helps, or all that there is being told.
        if let Some(name) = missing {
            let namespace = pod.metadata.namespace.clone().unwrap_or_default();
            self.gates.entry((namespace, name)).or_default().insert(uid.to_owned());
        }
        self.gated.insert(uid.to_owned(), Arc::clone(pod));
        false
    }

    fn node(&mut self, old: Option<&Node>, new: Option<Arc<Node>>) -> Vec<Event> {
        let Some(new) = new else {
            let name = old.map(|old| name(&old.metadata)).unwrap_or_default();
            let pods = self.snapshot.take_node(&name);
            self.homeless.entry(name).or_default().extend(pods);
            self.homeless.retain(|_, pods| !pods.is_empty());
            return vec![Event::PlacedPodGone];
        };
        let matters = old.is_none_or(|old| node_matters(old, &new));
        let name = name(&new.metadata);
        self.snapshot.put_node(new);
        for pod in self.homeless.remove(&name).into_iter().flatten() {
            self.place(&name, pod);
        }
        if matters { vec![Event::Node] } else { Vec::new() }
    }

    fn pod(&mut self, old: Option<&Pod>, new: Option<Arc<Pod>>, now: Duration) -> Vec<Event> {
        let Some(new) = new.filter(|pod| !is_finished(pod)) else {
            let Some(uid) = old.and_then(|old| old.metadata.uid.as_deref()) else { return Vec::new() };
            return self.gone(uid);
        };
        let uid = new.metadata.uid.clone().unwrap_or_default();
        self.gated.remove(&uid);
        match new.spec.as_ref().and_then(|spec| spec.node_name.clone()).filter(|node| !node.is_empty()) {
            Some(node) => {
                self.queue.remove(&uid);
                self.promise(&uid, None);
                self.seen_on(&node, &uid, &new, false)
            }
            None => self.waits(old, new, &uid, now),
        }
    }

    /// A Pod has ended or is gone.
    fn gone(&mut self, uid: &str) -> Vec<Event> {
        self.queue.remove(uid);
        if self.gated.remove(uid).is_some() {
            self.gates.retain(|_, uids| {
                uids.remove(uid);
                !uids.is_empty()
            });
        }
        let mut events = Vec::new();
        if self.snapshot.devices.release(uid) {
            events.push(Event::Devices);
        }
        let promised = self.promise(uid, None);
        let seat = self.seats.remove(uid);
        let freed = promised || seat.is_some();
        if let Some(seat) = seat {
            self.unseat(&seat.node, uid);
        }
        events.extend(freed.then_some(Event::PlacedPodGone));
        events
    }

    /// A Pod is on a node, or is thought to be.
    fn seen_on(&mut self, node: &str, uid: &str, pod: &Arc<Pod>, assumed: bool) -> Vec<Event> {
        let mut events = Vec::new();
        let seat = self.seats.insert(uid.to_owned(), Seat { node: node.to_owned(), assumed });
        let Some(seat) = seat else {
            self.place(node, Arc::clone(pod).into());
            return vec![Event::PlacedPodIs];
        };
        if seat.assumed && !assumed {
            events.push(Event::PlacedPodIs);
        }
        let known = self.snapshot.nodes.get(node).and_then(|info| info.pods.iter().find(|p| p.uid() == uid));
        if let Some(renewed) = known.and_then(|known| known.renewed(pod)) {
            self.snapshot.renew_on(node, renewed);
            return events;
        }
        self.unseat(&seat.node, uid);
        self.place(node, Arc::clone(pod).into());
        vec![Event::PlacedPodIs, Event::PlacedPodGone]
    }

    /// A Pod has no node.
    fn waits(&mut self, old: Option<&Pod>, pod: Arc<Pod>, uid: &str, now: Duration) -> Vec<Event> {
        let mut events = Vec::new();
        if let Some(seat) = self.seats.get(uid).filter(|seat| seat.assumed) {
            let node = seat.node.clone();
            events = self.seen_on(&node, uid, &pod, true);
        }
        // What was promised a moment ago is not yet in the object.
        let node = match old.map(|old| nominated_node(old)) == Some(nominated_node(&pod)) {
            true => self.promised.get(uid).cloned(),
            false => nominated_node(&pod).map(str::to_owned),
        };
        let lost = self.promised.get(uid).is_some_and(|before| Some(before) != node.as_ref());
        events.extend(lost.then_some(Event::PlacedPodGone));
        self.promise(uid, node.map(|node| (node, Arc::clone(&pod).into())));
        if !self.is_mine(&pod) || !self.has_claims(&pod, uid) {
            self.queue.remove(uid);
            return events;
        }
        let known = self.queue.get(uid).and_then(|known| known.renewed(&pod));
        self.queue.put(known.unwrap_or_else(|| pod.into()), now);
        events
    }

    /// Whether a Pod without a node is to get one from here, and now.
    fn is_mine(&self, pod: &Pod) -> bool {
        let Some(spec) = &pod.spec else { return false };
        let gated = spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty());
        let heeds = |profile: &Profile| profile.chosen.has(Plugin::SchedulingGates, Point::PreEnqueue);
        let profile = self.profiles.iter().find(|profile| profile.name == scheduler_of(pod));
        pod.metadata.deletion_timestamp.is_none() && profile.is_some_and(|profile| !(gated && heeds(profile)))
    }

    /// Counts a Pod as placed, and devices as its claims': it was decided for.
    pub fn assume(&mut self, pod: &PodInfo, node: &str, devices: &Given) {
        for (claim, allocation) in &devices.claims {
            self.snapshot.devices.reserve(claim, pod.uid(), allocation.clone());
        }
        self.promise(pod.uid(), None);
        self.seats.insert(pod.uid().to_owned(), Seat { node: node.to_owned(), assumed: true });
        self.place(node, pod.clone());
    }

    /// A binding has failed: unless the Pod was seen bound meanwhile it is tried again, after its back-off.
    pub fn forget(&mut self, uid: &str, now: Duration) {
        if self.seats.get(uid).is_some_and(|seat| seat.assumed)
            && let Some(seat) = self.seats.remove(uid)
        {
            self.unseat(&seat.node, uid);
            self.queue.happened(Event::PlacedPodGone, now);
        }
        if self.snapshot.devices.release(uid) {
            self.queue.happened(Event::Devices, now);
        }
        self.queue.put_back(uid, now);
    }

    /// Something about a Pod has to be put right; it is tried again after its back-off.
    pub fn put_back(&mut self, uid: &str, now: Duration) {
        self.queue.put_back(uid, now);
    }

    /// A Pod had no place; it waits for what can help it.
    pub fn set_aside(&mut self, uid: &str, rejected_by: BTreeSet<Plugin>, now: Duration) {
        self.queue.set_aside(uid, rejected_by, now);
    }

    /// Notes the node that a Pod is promised, and who it is; takes an older promise back. True if there was one.
    pub fn promise(&mut self, uid: &str, to: Option<(String, PodInfo)>) -> bool {
        let before = self.promised.remove(uid);
        if let Some(node) = &before
            && let Some(pods) = self.snapshot.nominated.get_mut(node)
        {
            pods.retain(|pod| pod.uid() != uid);
            if pods.is_empty() {
                self.snapshot.nominated.remove(node);
            }
        }
        if let Some((node, pod)) = to {
            self.promised.insert(uid.to_owned(), node.clone());
            self.snapshot.nominated.entry(node).or_default().push(pod);
        }
        before.is_some()
    }

    fn place(&mut self, node: &str, pod: PodInfo) {
        if let Err(pod) = self.snapshot.place_on(node, pod) {
            self.homeless.entry(node.to_owned()).or_default().push(pod);
        }
    }

    fn unseat(&mut self, node: &str, uid: &str) {
        if self.snapshot.remove_from(node, uid).is_none()
            && let Some(pods) = self.homeless.get_mut(node)
        {
            pods.retain(|pod| pod.uid() != uid);
            if pods.is_empty() {
                self.homeless.remove(node);
            }
        }
    }
}

fn put<Key: Ord, K>(
    map: &mut std::collections::BTreeMap<Key, Arc<K>>,
    old: Option<Arc<K>>,
    new: Option<Arc<K>>,
    key: impl Fn(&K) -> Key,
) {
    match (old, new) {
        (_, Some(new)) => drop(map.insert(key(&new), new)),
        (Some(old), None) => drop(map.remove(&key(&old))),
        (None, None) => {}
    }
}

fn name(meta: &ObjectMeta) -> String {
    meta.name.clone().unwrap_or_default()
}

fn key(meta: &ObjectMeta) -> (String, String) {
    (meta.namespace.clone().unwrap_or_default(), name(meta))
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
