//! Resources of containers for which classes of devices stand: of what a node does not offer by itself, devices are asked for in a
//! claim that nobody wrote. Pure. Source: KEP-5004, upstream's `extendeddynamicresources`.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use trine_typed::k8s_openapi::api::core::v1::{Container, ContainerExtendedResourceRequest, Pod};
use trine_typed::k8s_openapi::api::resource::v1::{
    DeviceClaim, DeviceRequest, ExactDeviceRequest, ResourceClaimSpec,
};
use trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use trine_typed::mirror::controller_of;

use super::inventory::Inventory;
use super::{DeviceClass, ResourceClaim};

/// By this and its name every class can be asked for.
const BY_CLASS: &str = "deviceclass.resource.kubernetes.io/";
/// Tells such claims from others.
const ANNOTATION: &str = "resource.kubernetes.io/extended-resource-claim";
/// The name of one that is not written yet; it is no name that an object can have. Upstream's.
const UNWRITTEN: &str = "<extended-resources>";

/// A claim, and which container has which request of it.
#[derive(Debug)]
pub struct Variant {
    /// As it would be written.
    pub claim: Arc<ResourceClaim>,
    /// For the Pod's status.
    pub mappings: Vec<ContainerExtendedResourceRequest>,
}

/// What a Pod asks for by resources that classes stand for.
#[derive(Debug)]
pub struct Extended {
    resources: BTreeSet<String>,
    /// By what nodes do not offer by themselves.
    variants: BTreeMap<BTreeSet<String>, Variant>,
}

impl Extended {
    /// Nothing if no class stands for what it asks for. `offers` says of each node whether it offers a resource by itself.
    pub fn of<'n, N: 'n>(
        pod: &Pod,
        inventory: &Inventory,
        nodes: impl Iterator<Item = &'n N>,
        offers: impl Fn(&N, &str) -> bool,
    ) -> Option<Self> {
        let classes = classes(pod, inventory);
        if classes.is_empty() {
            return None;
        }
        let resources: BTreeSet<String> = classes.keys().map(|name| (*name).to_owned()).collect();
        let mut variants = BTreeMap::new();
        for node in nodes {
            let lacking: BTreeSet<String> =
                resources.iter().filter(|name| !offers(node, name)).cloned().collect();
            if !lacking.is_empty() && !variants.contains_key(&lacking) {
                let asked = classes.iter().filter(|(name, _)| lacking.contains(**name));
                let variant = variant(pod, asked.map(|(name, class)| (*name, &***class)));
                variants.insert(lacking, variant);
            }
        }
        Some(Self { resources, variants })
    }

    /// What there may be to ask for, each by its number.
    pub fn variants(&self) -> impl Iterator<Item = &Variant> {
        self.variants.values()
    }

    /// Which of them is for a node, by its number; none if it offers everything.
    pub fn on(&self, offers: impl Fn(&str) -> bool) -> Option<usize> {
        let lacking: BTreeSet<String> = self.resources.iter().filter(|name| !offers(name)).cloned().collect();
        self.variants.keys().position(|of| *of == lacking)
    }
}

/// Whether a resource may be one that a class stands for.
fn may_be(name: &str) -> bool {
    name.starts_with(BY_CLASS)
        || (name.contains('/') && !name.contains("kubernetes.io/") && !name.starts_with("requests."))
}

/// The class that stands for a resource: of several the newest, then the first by name.
#[must_use]
pub fn class_of<'a>(name: &str, inventory: &'a Inventory) -> Option<&'a Arc<DeviceClass>> {
    if let Some(class) = name.strip_prefix(BY_CLASS) {
        return inventory.classes.get(class);
    }
    if !may_be(name) {
        return None;
    }
    let stands = |class: &&Arc<DeviceClass>| {
        class.spec.as_ref().is_some_and(|spec| spec.extended_resource_name.as_deref() == Some(name))
    };
    let made = |class: &Arc<DeviceClass>| class.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let all = inventory.classes.values().filter(stands);
    all.max_by_key(|class| (made(class), Reverse(class.metadata.name.clone())))
}

fn containers(pod: &Pod) -> Vec<(bool, &Container)> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    // Those that go before the others begin.
    let first = spec.init_containers.iter().flatten();
    let first = first.map(|container| (container.restart_policy.as_deref() != Some("Always"), container));
    first.chain(spec.containers.iter().map(|container| (false, container))).collect()
}

fn amounts(container: &Container) -> impl Iterator<Item = (&str, i64)> {
    let requests = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    requests.into_iter().flatten().map(|(name, amount)| {
        let amount = amount.0.parse::<trine_objects::quantity::Quantity>();
        let whole = amount.map(|amount| amount.milli() / 1000).unwrap_or_default();
        (name.as_str(), i64::try_from(whole).unwrap_or(i64::MAX))
    })
}

/// The classes of what a Pod's containers ask for.
fn classes<'p, 'a>(pod: &'p Pod, inventory: &'a Inventory) -> BTreeMap<&'p str, &'a Arc<DeviceClass>> {
    if inventory.classes.is_empty() {
        return BTreeMap::new();
    }
    let all = containers(pod).into_iter().flat_map(|(_, container)| amounts(container));
    let some = all.filter(|(name, amount)| *amount > 0 && may_be(name));
    some.filter_map(|(name, _)| Some((name, class_of(name, inventory)?))).collect()
}

/// The claim for these resources. What containers that go before the others have is taken from what later ones ask for; of what they
/// need beyond that, one request is enough for all.
fn variant<'a>(pod: &Pod, resources: impl Iterator<Item = (&'a str, &'a DeviceClass)>) -> Variant {
    let containers = containers(pod);
    let (mut requests, mut mappings) = (Vec::new(), Vec::new());
    for (resource, class) in resources {
        let class = class.metadata.name.as_deref().unwrap_or_default();
        let mut lasting: Vec<Option<(String, i64)>> = vec![None; containers.len()];
        for (i, (_, container)) in containers.iter().enumerate().filter(|(_, (first, _))| !first) {
            let (request, of) = asked(i, container, resource, &[]);
            lasting[i] = request;
            mappings.extend(of);
        }
        let (mut most, mut own, mut passing): (Option<(String, i64)>, BTreeSet<String>, Vec<_>) =
            Default::default();
        for (i, (_, container)) in containers.iter().enumerate().filter(|(_, (first, _))| *first) {
            let (request, of) = asked(i, container, resource, &lasting[i..]);
            if let Some((name, count)) = request {
                own.insert(name.clone());
                if most.as_ref().is_none_or(|(_, other)| *other < count) {
                    most = Some((name, count));
                }
            }
            passing.extend(of);
        }
        if let Some((name, _)) = &most {
            for mapping in passing.iter_mut().filter(|mapping| own.contains(&mapping.request_name)) {
                mapping.request_name.clone_from(name);
            }
        }
        mappings.extend(passing);
        let all = most.into_iter().chain(lasting.into_iter().flatten());
        requests.extend(all.map(|(name, count)| request(name, class, count)));
    }
    requests.sort_by(|a: &DeviceRequest, b| a.name.cmp(&b.name));
    Variant { claim: Arc::new(claim(pod, requests)), mappings }
}

/// What a container asks for beyond what it can have of others' requests, and what it has.
fn asked(
    at: usize,
    container: &Container,
    resource: &str,
    others: &[Option<(String, i64)>],
) -> (Option<(String, i64)>, Vec<ContainerExtendedResourceRequest>) {
    let Some((place, (_, wanted))) = amounts(container).enumerate().find(|(_, (name, _))| *name == resource)
    else {
        return (None, Vec::new());
    };
    let mapping = |request: &str| ContainerExtendedResourceRequest {
        container_name: container.name.clone(),
        resource_name: resource.to_owned(),
        request_name: request.to_owned(),
    };
    let (mut has, mut mappings) = (0, Vec::new());
    for (name, count) in others.iter().flatten() {
        if has >= wanted {
            break;
        }
        has += count;
        mappings.push(mapping(name));
    }
    if has >= wanted {
        return (None, mappings);
    }
    let name = format!("container-{at}-request-{place}");
    mappings.push(mapping(&name));
    (Some((name, wanted - has)), mappings)
}

fn request(name: String, class: &str, count: i64) -> DeviceRequest {
    let exactly = ExactDeviceRequest {
        device_class_name: class.to_owned(),
        allocation_mode: Some("ExactCount".to_owned()),
        count: Some(count),
        ..ExactDeviceRequest::default()
    };
    DeviceRequest { name, exactly: Some(exactly), first_available: None }
}

fn claim(pod: &Pod, requests: Vec<DeviceRequest>) -> ResourceClaim {
    let (name, uid) =
        (pod.metadata.name.clone().unwrap_or_default(), pod.metadata.uid.clone().unwrap_or_default());
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        name: name.clone(),
        uid: uid.clone(),
        controller: Some(true),
        block_owner_deletion: None,
    };
    let metadata = ObjectMeta {
        namespace: pod.metadata.namespace.clone(),
        name: Some(UNWRITTEN.to_owned()),
        uid: Some(unwritten_uid(&uid)),
        generate_name: Some(format!("{name}-extended-resources-")),
        owner_references: Some(vec![owner]),
        annotations: Some(BTreeMap::from([(ANNOTATION.to_owned(), "true".to_owned())])),
        ..ObjectMeta::default()
    };
    let devices = DeviceClaim { requests: Some(requests), ..DeviceClaim::default() };
    ResourceClaim { metadata, spec: Some(ResourceClaimSpec { devices: Some(devices) }), status: None }
}

/// By what a Pod's claim is known before it is written.
#[must_use]
pub fn unwritten_uid(pod: &str) -> String {
    format!("{UNWRITTEN}{pod}")
}

/// Whether a claim is still to be written.
#[must_use]
pub fn is_unwritten(claim: &ResourceClaim) -> bool {
    claim.metadata.name.as_deref() == Some(UNWRITTEN)
}

/// The UID of the Pod that a claim of this sort was written for.
#[must_use]
pub fn written_for(claim: &ResourceClaim) -> Option<&str> {
    let annotations = claim.metadata.annotations.as_ref()?;
    annotations.get(ANNOTATION).filter(|value| *value == "true")?;
    controller_of(&claim.metadata).map(|owner| owner.uid.as_str())
}

#[cfg(test)]
#[path = "extended_tests.rs"]
mod tests;
