//! Whose reconcile a change asks for.

use std::sync::Arc;
use std::time::Duration;

use trine_objects::selector::label::LabelSelector;
use trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use trine_typed::mirror::{Key, Kind, Mirror, Subscription, controller_of};
use trine_typed::work_queue::WorkQueue;

use super::selecting::selects;

/// Adds the key of every object that is there or changes.
pub fn by_themselves<O: Kind>(owners: &Mirror<O>, queue: &Arc<WorkQueue<Key>>) -> Subscription {
    let queue = Arc::clone(queue);
    owners.subscribe(move |old, new| {
        if let Some(object) = new.or(old) {
            queue.add(Key::of(object.meta()));
        }
    })
}

/// The same, but for changes of the status alone.
pub fn by_new_generations<O: Kind>(owners: &Mirror<O>, queue: &Arc<WorkQueue<Key>>) -> Subscription {
    let queue = Arc::clone(queue);
    owners.subscribe(move |old, new| {
        let facts = |object: &Arc<O>| (object.meta().uid.clone(), object.meta().generation);
        if let Some(object) = new
            && old.map(facts) != Some(facts(object))
        {
            queue.add(Key::of(object.meta()));
        }
    })
}

/// Adds the key of whoever controls, or did, what changes; if nobody does, of those who would take it (`selector`).
pub fn by_what_they_own<O: Kind, D: Kind>(
    owned: &Mirror<D>,
    owners: &Mirror<O>,
    queue: &Arc<WorkQueue<Key>>,
    selector: impl Fn(&O) -> Option<LabelSelector> + Send + Sync + 'static,
) -> Subscription {
    by_what_they_own_after(Duration::ZERO, owned, owners, queue, selector)
}

/// The same after a time, in which more may change.
pub fn by_what_they_own_after<O: Kind, D: Kind>(
    wait: Duration,
    owned: &Mirror<D>,
    owners: &Mirror<O>,
    queue: &Arc<WorkQueue<Key>>,
    selector: impl Fn(&O) -> Option<LabelSelector> + Send + Sync + 'static,
) -> Subscription {
    let (owners, queue) = (owners.clone(), Arc::clone(queue));
    let add = move |owner: &O| {
        let key = Key::of(owner.meta());
        if wait.is_zero() { queue.add(key) } else { queue.add_after(key, wait) }
    };
    owned.subscribe(move |old, new| {
        let (old, new) = (old.map(|o| o.meta()), new.map(|o| o.meta()));
        let (before, after) = (old.and_then(controller_of), new.and_then(controller_of));
        for (meta, owner) in [(old, before.filter(|b| Some(*b) != after)), (new, after)] {
            if let (Some(meta), Some(owner)) = (meta, owner)
                && let Some(owner) = resolve(&owners, meta, owner)
            {
                add(&owner);
            }
        }
        let Some(meta) = new.filter(|m| after.is_none() && m.deletion_timestamp.is_none()) else { return };
        if old.is_some_and(|old| before.is_none() && old.labels == meta.labels) {
            return;
        }
        for owner in owners.in_namespace(meta.namespace.as_deref().unwrap_or_default()) {
            if selector(&owner).is_some_and(|selector| selects(&selector, meta)) {
                add(&owner);
            }
        }
    })
}

/// The object that an owner reference of `owned` means, if it is of this kind and there.
#[must_use]
pub fn resolve<O: Kind>(owners: &Mirror<O>, owned: &ObjectMeta, owner: &OwnerReference) -> Option<Arc<O>> {
    if owner.kind != O::kind(&()) || owner.api_version != O::api_version(&()) {
        return None;
    }
    let found = owners.get(owned.namespace.as_deref().unwrap_or_default(), &owner.name)?;
    (found.meta().uid.as_deref() == Some(owner.uid.as_str())).then_some(found)
}
