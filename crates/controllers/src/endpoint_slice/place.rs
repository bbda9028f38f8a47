//! Endpoints into slices, with as few writes as possible: an endpoint stays in its slice, and a new one goes where something is
//! written anyway.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use trine_typed::k8s_openapi::api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};
use trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use trine_typed::mirror::Key;

/// Endpoints per slice. Upstream: `--max-endpoints-per-slice`.
pub const MAX_ENDPOINTS: usize = 100;
/// The label that says who keeps a slice.
pub const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// The label that names the Service.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Whose slices they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// The owner's version.
    pub api_version: &'static str,
    /// The owner's kind.
    pub kind: &'static str,
    /// Namespace of both.
    pub namespace: String,
    /// The owner's name, with which the slices' names begin.
    pub name: String,
    /// The owner's uid.
    pub uid: String,
    /// What the slices are labelled with, the Service's name included.
    pub labels: BTreeMap<String, String>,
    /// What the owner passes on besides.
    pub annotations: BTreeMap<String, String>,
    /// Who keeps them.
    pub manager: &'static str,
}

impl Owner {
    /// One that is no more: whatever slices there are of it go.
    #[must_use]
    pub fn gone(key: &Key, manager: &'static str) -> Self {
        Self {
            api_version: "v1",
            kind: "Service",
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            uid: String::new(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            manager,
        }
    }
}

/// Endpoints that can share a slice.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// `IPv4` or `IPv6`.
    pub family: &'static str,
    /// Their ports.
    pub ports: Vec<EndpointPort>,
    /// They.
    pub endpoints: Vec<Endpoint>,
}

/// One write.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// A slice that is missing.
    Create(EndpointSlice),
    /// A slice with other endpoints, ports or labels.
    Replace(EndpointSlice),
    /// A slice that nobody needs.
    Delete {
        /// Namespace.
        namespace: String,
        /// Name.
        name: String,
    },
}

/// A slice as it will be.
struct Draft {
    /// As it is, if it is there.
    from: Option<Arc<EndpointSlice>>,
    endpoints: Vec<Endpoint>,
    /// It is written whatever comes into it.
    changed: bool,
}

/// What to write so that the slices of an owner hold these groups. `slices` are all of the owner's name and manager.
#[must_use]
pub fn place(owner: &Owner, groups: Vec<Group>, slices: &[Arc<EndpointSlice>]) -> Vec<Action> {
    let is_of = |slice: &EndpointSlice| {
        let references = slice.metadata.owner_references.as_deref().unwrap_or_default();
        references.iter().any(|reference| reference.uid == owner.uid)
    };
    // What belonged to an earlier owner of this name goes, or the garbage collector takes it away unnoticed.
    let (mut spare, strange): (Vec<_>, Vec<_>) = slices.iter().cloned().partition(|slice| is_of(slice));
    spare.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    let mut names: BTreeSet<String> = slices.iter().filter_map(|s| s.metadata.name.clone()).collect();
    let mut actions = Vec::new();
    for mut group in groups {
        let fits = |slice: &Arc<EndpointSlice>| {
            slice.address_type == group.family && slice.ports.as_deref().unwrap_or_default() == group.ports
        };
        let (mine, others): (Vec<_>, Vec<_>) = spare.into_iter().partition(fits);
        spare = others;
        let mut drafts = kept(owner, &mut group, mine);
        if drafts.is_empty() && group.endpoints.is_empty() {
            // The last endpoint went: its slice becomes the one that says so, and keeps what others wrote into it.
            let reused = spare.iter().position(|slice| slice.address_type == group.family);
            let from = reused.map(|at| spare.remove(at));
            drafts.push(Draft { from, endpoints: Vec::new(), changed: true });
        }
        fill(&mut drafts, std::mem::take(&mut group.endpoints));
        actions.extend(drafts.into_iter().filter(|draft| draft.changed).map(|draft| match draft.from {
            Some(slice) => Action::Replace(with(owner, &slice, &group, draft.endpoints)),
            None => Action::Create(new(owner, &mut names, &group, draft.endpoints)),
        }));
    }
    actions.extend(spare.into_iter().chain(strange).map(|slice| Action::Delete {
        namespace: owner.namespace.clone(),
        name: slice.metadata.name.clone().unwrap_or_default(),
    }));
    actions
}

/// The group's slices with those endpoints that stay, which are taken out of the group; empty slices but one go to the end.
fn kept(owner: &Owner, group: &mut Group, slices: Vec<Arc<EndpointSlice>>) -> Vec<Draft> {
    let address = |e: &Endpoint| e.addresses.first().cloned().unwrap_or_default();
    let order: Vec<String> = group.endpoints.iter().map(address).collect();
    let mut wanted: HashMap<String, Endpoint> = group.endpoints.drain(..).map(|e| (address(&e), e)).collect();
    let drafts = slices.into_iter().map(|slice| {
        let before = slice.endpoints.as_deref().unwrap_or_default();
        let stays = |e: &Endpoint| wanted.remove(&address(e));
        let endpoints: Vec<Endpoint> = before.iter().filter_map(stays).collect();
        let changed = endpoints != before || metadata(owner, &slice.metadata) != slice.metadata;
        Draft { from: Some(slice), endpoints, changed }
    });
    let drafts = drafts.collect();
    group.endpoints = order.iter().filter_map(|address| wanted.remove(address)).collect();
    drafts
}

/// Puts the new ones into slices that are written anyway, the fullest first; then into one other that has room for all that are
/// left; then into new ones.
fn fill(drafts: &mut Vec<Draft>, mut fresh: Vec<Endpoint>) {
    let mut written: Vec<&mut Draft> = drafts.iter_mut().filter(|draft| draft.changed).collect();
    written.sort_by_key(|draft| std::cmp::Reverse(draft.endpoints.len()));
    for draft in written {
        let room = MAX_ENDPOINTS.saturating_sub(draft.endpoints.len()).min(fresh.len());
        draft.endpoints.extend(fresh.drain(..room));
    }
    if fresh.is_empty() {
        return;
    }
    let roomy = drafts.iter_mut().filter(|d| !d.changed && d.endpoints.len() + fresh.len() <= MAX_ENDPOINTS);
    if let Some(draft) = roomy.max_by_key(|draft| draft.endpoints.len()) {
        draft.endpoints.append(&mut fresh);
        draft.changed = true;
    }
    while !fresh.is_empty() {
        let count = MAX_ENDPOINTS.min(fresh.len());
        drafts.push(Draft { from: None, endpoints: fresh.drain(..count).collect(), changed: true });
    }
}

/// The metadata of a slice with the owner's labels, as upstream has it without others; finalizers and annotations stay.
fn metadata(owner: &Owner, before: &ObjectMeta) -> ObjectMeta {
    let mut labels = owner.labels.clone();
    labels.insert(MANAGED_BY.to_owned(), owner.manager.to_owned());
    let mut meta = before.clone();
    meta.labels = Some(labels);
    if !owner.annotations.is_empty() {
        meta.annotations.get_or_insert_default().extend(owner.annotations.clone());
    }
    meta
}

fn with(owner: &Owner, slice: &EndpointSlice, group: &Group, endpoints: Vec<Endpoint>) -> EndpointSlice {
    EndpointSlice {
        metadata: metadata(owner, &slice.metadata),
        address_type: slice.address_type.clone(),
        endpoints: Some(endpoints),
        ports: Some(group.ports.clone()),
    }
}

fn new(
    owner: &Owner,
    names: &mut BTreeSet<String>,
    group: &Group,
    endpoints: Vec<Endpoint>,
) -> EndpointSlice {
    let begin: String = owner.uid.chars().filter(char::is_ascii_alphanumeric).take(5).collect();
    let candidates = (1..).map(|number| format!("{}-{begin}-{number}", owner.name));
    let name = candidates.into_iter().find(|name| !names.contains(name)).unwrap_or_default();
    names.insert(name.clone());
    let reference = OwnerReference {
        api_version: owner.api_version.to_owned(),
        kind: owner.kind.to_owned(),
        name: owner.name.clone(),
        uid: owner.uid.clone(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    };
    let before = ObjectMeta {
        name: Some(name),
        namespace: Some(owner.namespace.clone()),
        owner_references: Some(vec![reference]),
        ..ObjectMeta::default()
    };
    EndpointSlice {
        metadata: metadata(owner, &before),
        address_type: group.family.to_owned(),
        endpoints: Some(endpoints),
        ports: Some(group.ports.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner() -> Owner {
        Owner {
            api_version: "v1",
            kind: "Service",
            namespace: "default".to_owned(),
            name: "web".to_owned(),
            uid: "12345-6".to_owned(),
            labels: BTreeMap::from([
                (SERVICE_NAME.to_owned(), "web".to_owned()),
                ("a".to_owned(), "b".to_owned()),
            ]),
            annotations: BTreeMap::new(),
            manager: "m",
        }
    }

    fn group(endpoints: impl IntoIterator<Item = usize>) -> Group {
        let one = |i: usize| Endpoint {
            addresses: vec![format!("10.0.{}.{}", i / 256, i % 256)],
            ..Endpoint::default()
        };
        let endpoints: Vec<Endpoint> = endpoints.into_iter().map(one).collect();
        let port = EndpointPort { port: Some(80), ..EndpointPort::default() };
        let ports = if endpoints.is_empty() { Vec::new() } else { vec![port] };
        Group { family: "IPv4", ports, endpoints }
    }

    /// The slices after the writes.
    fn written(actions: Vec<Action>, slices: &[Arc<EndpointSlice>]) -> Vec<Arc<EndpointSlice>> {
        let mut all: BTreeMap<String, Arc<EndpointSlice>> =
            slices.iter().map(|s| (s.metadata.name.clone().unwrap(), Arc::clone(s))).collect();
        for action in actions {
            match action {
                Action::Create(slice) => {
                    let before = all.insert(slice.metadata.name.clone().unwrap(), Arc::new(slice));
                    assert!(before.is_none(), "a name is free");
                }
                Action::Replace(slice) => {
                    let before = all.insert(slice.metadata.name.clone().unwrap(), Arc::new(slice));
                    assert!(before.is_some());
                }
                Action::Delete { name, .. } => drop(all.remove(&name).unwrap()),
            }
        }
        all.into_values().collect()
    }

    fn sizes(slices: &[Arc<EndpointSlice>]) -> Vec<usize> {
        let mut sizes: Vec<usize> = slices.iter().map(|s| s.endpoints.as_ref().unwrap().len()).collect();
        sizes.sort_unstable();
        sizes
    }

    #[test]
    fn a_change_of_one_endpoint_writes_one_slice() {
        let slices = written(place(&owner(), vec![group(0..250)], &[]), &[]);
        assert_eq!(sizes(&slices), [50, 100, 100]);
        assert_eq!(place(&owner(), vec![group(0..250)], &slices), [], "nothing is to be done twice");
        let actions = place(&owner(), vec![group((0..250).filter(|i| *i != 7))], &slices);
        assert!(matches!(&actions[..], [Action::Replace(_)]), "{actions:?}");
        let slices = written(actions, &slices);
        assert_eq!(sizes(&slices), [50, 99, 100]);
        let moved = (0..251).filter(|i| *i != 8);
        let actions = place(&owner(), vec![group(moved)], &slices);
        assert_eq!(actions.len(), 1, "what is written anyway takes the new ones");
        assert_eq!(sizes(&written(actions, &slices)), [50, 100, 100]);
        let actions = place(&owner(), vec![group((0..250).filter(|i| *i != 7).chain([900]))], &slices);
        assert_eq!(
            sizes(&written(actions, &slices)),
            [50, 100, 100],
            "the fullest with room takes a new one"
        );
        let grown = place(&owner(), vec![group((0..250).filter(|i| *i != 7).chain(300..360))], &slices);
        assert!(matches!(&grown[..], [Action::Create(_)]), "none has room for all");
    }

    #[test]
    fn the_last_slice_says_that_nobody_is_there_and_keeps_what_others_wrote() {
        let mut slices = written(place(&owner(), vec![group(0..1)], &[]), &[]);
        Arc::make_mut(&mut slices[0]).metadata.finalizers = Some(vec!["theirs".to_owned()]);
        let slices = written(place(&owner(), vec![group([])], &slices), &slices);
        assert_eq!(sizes(&slices), [0]);
        assert_eq!(slices[0].metadata.finalizers.as_deref(), Some(&["theirs".to_owned()][..]));
        assert_eq!(place(&owner(), vec![group([])], &slices), []);
        let again = written(place(&owner(), vec![group(0..2)], &slices), &slices);
        assert_eq!(sizes(&again), [2]);
    }

    #[test]
    fn slices_of_an_earlier_service_of_this_name_are_not_taken_over() {
        let old = Owner { uid: "other".to_owned(), ..owner() };
        let slices = written(place(&old, vec![group(0..1)], &[]), &[]);
        let actions = place(&owner(), vec![group(0..1)], &slices);
        assert!(matches!(&actions[..], [Action::Create(_), Action::Delete { .. }]), "{actions:?}");
        assert!(matches!(place(&owner(), Vec::new(), &slices)[..], [Action::Delete { .. }]));
    }

    #[test]
    fn labels_follow_the_owner() {
        let slices = written(place(&owner(), vec![group(0..1)], &[]), &[]);
        let mut changed = owner();
        changed.labels.insert("a".to_owned(), "c".to_owned());
        let slices = written(place(&changed, vec![group(0..1)], &slices), &slices);
        let label = |key: &str| slices[0].metadata.labels.as_ref().unwrap().get(key).map(String::as_str);
        assert_eq!((label("a"), label(MANAGED_BY), label(SERVICE_NAME)), (Some("c"), Some("m"), Some("web")));
        changed.labels.remove("a");
        let slices = written(place(&changed, vec![group(0..1)], &slices), &slices);
        assert_eq!(slices[0].metadata.labels.as_ref().unwrap().get("a"), None);
    }
}
