//! What a mirror holds, and how it changes: by what the watch tells, in the order of versions, and by what this side wrote
//! before the watch told of it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;
use kube::runtime::watcher::Event;

/// Namespace (empty for kinds without one) and name of an object.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl Key {
    /// Of a namespace and a name.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// Of an object.
    #[must_use]
    pub fn of(meta: &ObjectMeta) -> Self {
        Self {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
        }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

/// The owner of an object that controls it.
#[must_use]
pub fn controller_of(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.as_ref()?.iter().find(|owner| owner.controller == Some(true))
}

/// One object that is made, changed or gone.
#[derive(Debug)]
pub(super) struct Change<K> {
    pub old: Option<Arc<K>>,
    pub new: Option<Arc<K>>,
}

/// By whom objects are found.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Holder {
    /// The UID of their controller.
    Controller(String),
    /// Nobody, in this namespace.
    Nobody(String),
}

#[derive(Debug)]
pub(super) struct Table<K> {
    objects: BTreeMap<Key, Arc<K>>,
    held: HashMap<Holder, BTreeSet<Key>>,
    /// The newest version that the watch told of.
    seen: u64,
    /// What was learned and not yet told of by the watch, by version.
    learned: BTreeMap<u64, Key>,
    /// The UIDs of what is known to be gone, until the watch tells it.
    gone: HashSet<String>,
    /// Controllers of which it is not known what they have: the answer to a write was lost.
    doubted: HashSet<String>,
    /// What a list has brought so far.
    listing: Option<BTreeMap<Key, K>>,
    /// Takes out what need not be kept.
    leave_out: fn(&mut K),
}

impl<K> Table<K> {
    pub fn new(leave_out: fn(&mut K)) -> Self {
        Self {
            leave_out,
            objects: BTreeMap::new(),
            held: HashMap::new(),
            seen: 0,
            learned: BTreeMap::new(),
            gone: HashSet::new(),
            doubted: HashSet::new(),
            listing: None,
        }
    }
}

/// Versions are numbers that grow, by the API's own promise; 0 for what is none.
fn version(meta: &ObjectMeta) -> u64 {
    meta.resource_version.as_deref().and_then(|v| v.parse().ok()).unwrap_or_default()
}

fn uid(meta: &ObjectMeta) -> &str {
    meta.uid.as_deref().unwrap_or_default()
}

fn holder(meta: &ObjectMeta) -> Holder {
    match controller_of(meta) {
        Some(owner) => Holder::Controller(owner.uid.clone()),
        None => Holder::Nobody(meta.namespace.clone().unwrap_or_default()),
    }
}

impl<K: Resource<DynamicType = ()>> Table<K> {
    pub fn all(&self) -> impl Iterator<Item = &Arc<K>> {
        self.objects.values()
    }

    pub fn get(&self, key: &Key) -> Option<&Arc<K>> {
        self.objects.get(key)
    }

    pub fn in_namespace(&self, namespace: &str) -> impl Iterator<Item = &Arc<K>> {
        let of_it = move |(key, _): &(&Key, &Arc<K>)| key.namespace == namespace;
        self.objects.range(Key::new(namespace, "")..).take_while(of_it).map(|(_, object)| object)
    }

    pub fn controlled_by(&self, uid: &str) -> impl Iterator<Item = &Arc<K>> {
        self.held_by(Holder::Controller(uid.to_owned()))
    }

    pub fn orphans(&self, namespace: &str) -> impl Iterator<Item = &Arc<K>> {
        self.held_by(Holder::Nobody(namespace.to_owned()))
    }

    fn held_by(&self, holder: Holder) -> impl Iterator<Item = &Arc<K>> {
        self.held.get(&holder).into_iter().flatten().filter_map(|key| self.objects.get(key))
    }

    /// What the watch tells.
    pub fn watched(&mut self, event: Event<K>) -> Vec<Change<K>> {
        match event {
            Event::Apply(mut object) => {
                self.keep_part(&mut object);
                let mut changes = self.reached(object.meta());
                changes.extend(self.put(object));
                changes
            }
            Event::Delete(object) => {
                let mut changes = self.reached(object.meta());
                self.gone.remove(uid(object.meta()));
                changes.extend(self.take(&Key::of(object.meta()), uid(object.meta())));
                changes
            }
            Event::Init => {
                self.listing = Some(BTreeMap::new());
                Vec::new()
            }
            Event::InitApply(mut object) => {
                self.keep_part(&mut object);
                let listing = self.listing.get_or_insert_default();
                listing.insert(Key::of(object.meta()), object);
                Vec::new()
            }
            Event::InitDone => self.listed(),
        }
    }

    /// What this side wrote. What the watch has passed already is no news.
    pub fn learn(&mut self, mut object: K) -> Vec<Change<K>> {
        let version = version(object.meta());
        if version <= self.seen {
            return Vec::new();
        }
        self.keep_part(&mut object);
        let key = Key::of(object.meta());
        let changes = self.put(object);
        if !changes.is_empty() {
            self.learned.insert(version, key);
        }
        changes
    }

    /// What this side has removed.
    pub fn forget(&mut self, key: &Key, uid: &str) -> Vec<Change<K>> {
        let changes = self.take(key, uid);
        if !changes.is_empty() {
            self.gone.insert(uid.to_owned());
        }
        changes
    }

    pub fn doubt(&mut self, controller: &str) {
        self.doubted.insert(controller.to_owned());
    }

    pub fn is_doubted(&self, controller: &str) -> bool {
        self.doubted.contains(controller)
    }

    pub fn trust(&mut self, controller: &str) {
        self.doubted.remove(controller);
    }

    /// The watch has come to what it tells of this object. It tells in order: what was learned of an earlier version of another
    /// object and not told of is no more.
    fn reached(&mut self, told: &ObjectMeta) -> Vec<Change<K>> {
        self.seen = self.seen.max(version(told));
        let later = self.learned.split_off(&(version(told) + 1));
        let passed = std::mem::replace(&mut self.learned, later);
        let mut changes = Vec::new();
        for (learned, key) in passed {
            let same = |object: &&Arc<K>| version(object.meta()) == learned && key != Key::of(told);
            if let Some(object) = self.objects.get(&key).filter(same) {
                let uid = uid(object.meta()).to_owned();
                changes.extend(self.take(&key, &uid));
            }
        }
        changes
    }

    /// The list is whole: it replaces what was there, but for what was learned later.
    fn listed(&mut self) -> Vec<Change<K>> {
        let listing = self.listing.take().unwrap_or_default();
        let newest = listing.values().map(|o| version(o.meta())).max().unwrap_or_default();
        self.seen = self.seen.max(newest);
        self.learned = self.learned.split_off(&(newest + 1));
        let listed: HashSet<&str> = listing.values().map(|o| uid(o.meta())).collect();
        self.gone.retain(|uid| listed.contains(uid.as_str()));
        let later: BTreeSet<&Key> = self.learned.values().collect();
        let absent = |key: &&Key| !listing.contains_key(*key) && !later.contains(*key);
        let absent: Vec<Key> = self.objects.keys().filter(absent).cloned().collect();
        let mut changes = Vec::new();
        for key in absent {
            let uid = self.objects.get(&key).map(|o| uid(o.meta()).to_owned()).unwrap_or_default();
            changes.extend(self.take(&key, &uid));
        }
        for object in listing.into_values() {
            changes.extend(self.put(object));
        }
        changes
    }

    fn keep_part(&self, object: &mut K) {
        object.meta_mut().managed_fields = None;
        (self.leave_out)(object);
    }

    /// Puts in what is newer than what is there.
    fn put(&mut self, object: K) -> Vec<Change<K>> {
        let (key, new) = (Key::of(object.meta()), uid(object.meta()).to_owned());
        if self.gone.contains(&new) {
            return Vec::new();
        }
        let mut changes = Vec::new();
        let old = self.objects.get(&key).cloned();
        if let Some(old) = &old {
            let newer = version(object.meta()) > version(old.meta());
            if !newer && version(object.meta()) != 0 {
                return Vec::new();
            }
            if uid(old.meta()) != new {
                changes.extend(self.take(&key, uid(old.meta())));
            }
        }
        if let Some(old) = &old {
            self.let_go(&key, old.meta());
        }
        self.held.entry(holder(object.meta())).or_default().insert(key.clone());
        let object = Arc::new(object);
        self.objects.insert(key, Arc::clone(&object));
        let old = old.filter(|_| changes.is_empty());
        changes.push(Change { old, new: Some(object) });
        changes
    }

    /// Takes out the object of this UID.
    fn take(&mut self, key: &Key, uid: &str) -> Vec<Change<K>> {
        if self.objects.get(key).is_none_or(|object| self::uid(object.meta()) != uid) {
            return Vec::new();
        }
        let old = self.objects.remove(key);
        if let Some(old) = &old {
            self.let_go(key, old.meta());
        }
        vec![Change { old, new: None }]
    }

    fn let_go(&mut self, key: &Key, meta: &ObjectMeta) {
        let holder = holder(meta);
        if let Some(keys) = self.held.get_mut(&holder) {
            keys.remove(key);
            if keys.is_empty() {
                self.held.remove(&holder);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::*;

    fn map(name: &str, uid: &str, version: u64, controller: Option<&str>) -> ConfigMap {
        let owner = controller.map(
            |uid| json!([{"apiVersion": "v1", "kind": "K", "name": "n", "uid": uid, "controller": true}]),
        );
        serde_json::from_value(json!({"metadata": {"namespace": "ns", "name": name, "uid": uid,
            "resourceVersion": version.to_string(), "ownerReferences": owner}}))
        .unwrap()
    }

    fn names<'a>(objects: impl Iterator<Item = &'a Arc<ConfigMap>>) -> String {
        let names: Vec<String> = objects
            .map(|o| {
                format!(
                    "{}@{}",
                    o.metadata.name.as_deref().unwrap(),
                    o.metadata.resource_version.as_deref().unwrap()
                )
            })
            .collect();
        names.join(" ")
    }

    fn told(changes: &[Change<ConfigMap>]) -> String {
        let one = |o: &Option<Arc<ConfigMap>>| {
            o.as_ref().map_or("-".to_owned(), |o| o.metadata.uid.clone().unwrap_or_default())
        };
        changes.iter().map(|c| format!("{}>{}", one(&c.old), one(&c.new))).collect::<Vec<_>>().join(" ")
    }

    fn listed(objects: impl IntoIterator<Item = ConfigMap>) -> Table<ConfigMap> {
        let mut table = Table::new(|_| {});
        relist(&mut table, objects);
        table
    }

    fn relist(table: &mut Table<ConfigMap>, objects: impl IntoIterator<Item = ConfigMap>) -> String {
        table.watched(Event::Init);
        for object in objects {
            table.watched(Event::InitApply(object));
        }
        told(&table.watched(Event::InitDone))
    }

    #[test]
    fn objects_are_found_by_namespace_controller_and_the_lack_of_one() {
        let mut table = listed([map("a", "1", 1, Some("o")), map("b", "2", 2, None)]);
        assert_eq!(names(table.in_namespace("ns")), "a@1 b@2");
        assert_eq!(names(table.in_namespace("n")), "");
        assert_eq!(
            (names(table.controlled_by("o")), names(table.orphans("ns"))),
            ("a@1".into(), "b@2".into())
        );
        table.watched(Event::Apply(map("a", "1", 3, None)));
        table.watched(Event::Delete(map("b", "2", 4, None)));
        assert_eq!(
            (names(table.controlled_by("o")), names(table.orphans("ns"))),
            (String::new(), "a@3".into())
        );
    }

    #[test]
    fn what_was_written_is_there_before_the_watch_tells_of_it() {
        let mut table = listed([map("a", "1", 5, None)]);
        assert_eq!(told(&table.learn(map("b", "2", 7, None))), "->2");
        assert_eq!(told(&table.watched(Event::Apply(map("a", "1", 6, None)))), "1>1", "what came before it");
        assert_eq!(told(&table.watched(Event::Apply(map("b", "2", 7, None)))), "", "no news");
        assert_eq!(told(&table.watched(Event::Apply(map("b", "2", 8, None)))), "2>2");
        assert_eq!(told(&table.learn(map("b", "2", 7, None))), "", "an answer that came late");
    }

    #[test]
    fn what_was_written_and_removed_before_it_was_learned_does_not_stay() {
        let mut table = listed([]);
        table.watched(Event::Delete(map("b", "2", 8, None)));
        assert_eq!(told(&table.learn(map("b", "2", 7, None))), "", "the watch has passed it");

        // Made and removed before a list whose version is not known.
        let mut table = listed([map("a", "1", 5, None)]);
        table.learn(map("b", "2", 7, None));
        assert_eq!(told(&table.watched(Event::Apply(map("a", "1", 9, None)))), "2>- 1>1");
    }

    #[test]
    fn what_was_removed_is_gone_before_the_watch_tells_of_it() {
        let mut table = listed([map("a", "1", 5, None)]);
        assert_eq!(told(&table.forget(&Key::new("ns", "a"), "1")), "1>-");
        assert_eq!(told(&table.watched(Event::Apply(map("a", "1", 6, None)))), "", "before its end");
        assert_eq!(told(&table.learn(map("a", "2", 9, None))), "->2", "another of that name");
        assert_eq!(told(&table.watched(Event::Delete(map("a", "1", 8, None)))), "");
        assert_eq!(names(table.all()), "a@9");
        assert!(table.gone.is_empty());
        assert_eq!(told(&table.forget(&Key::new("ns", "a"), "1")), "", "that one is long gone");
        assert!(table.gone.is_empty());
    }

    #[test]
    fn one_that_is_made_anew_is_told_as_gone_and_made() {
        let mut table = listed([map("a", "1", 5, None)]);
        assert_eq!(told(&table.watched(Event::Apply(map("a", "2", 9, None)))), "1>- ->2");
    }

    #[test]
    fn a_list_replaces_all_but_what_was_learned_later() {
        let mut table = listed([map("a", "1", 5, None), map("b", "2", 6, None)]);
        table.learn(map("c", "3", 20, None));
        table.learn(map("d", "4", 9, None));
        let changes = relist(&mut table, [map("b", "2", 6, None), map("e", "5", 10, None)]);
        assert_eq!(changes, "1>- 4>- ->5");
        assert_eq!(names(table.all()), "b@6 c@20 e@10");
    }
}
