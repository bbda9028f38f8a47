//! How ownership moves: by what a write changes, and by what an apply names.

use super::diff::{Diff, diff};
use super::fields::fields_of;
use super::managers::{ManagerId, Managers, Owned};
use super::merge::merge;
use super::remove::{migrated, remove, with_named};
use super::set::{Set, shown};
use super::step::{Step, same};
use super::{Filter, TypeErrors, Versions};
use crate::schema::SchemaRef;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// A field that somebody else owns, with another value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// Its owner.
    pub owner: ManagerId,
    /// The field.
    pub path: Vec<Step>,
}

impl Conflict {
    /// `conflict with "kubectl" using apps/v1`.
    pub fn message(&self) -> String {
        format!("conflict with {}", self.owner)
    }

    /// `.spec.replicas`.
    pub fn field(&self) -> String {
        shown(&self.path)
    }
}

/// Why ownership cannot be worked out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    #[error("there are conflicts")]
    Conflicts(Vec<Conflict>),
    #[error("{0}: {1}")]
    Types(&'static str, TypeErrors),
}

/// What a write is seen with.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub versions: &'a dyn Versions,
    /// The version of the request.
    pub api_version: &'a str,
    pub schema: SchemaRef<'a>,
    pub filter: &'a Filter,
}

impl<'a> View<'a> {
    fn to<'v>(self, object: &'v Value, version: &str) -> Option<Cow<'v, Value>> {
        let has = object["apiVersion"].as_str().unwrap_or_default();
        if has == version || has.is_empty() && version == self.api_version {
            return Some(Cow::Borrowed(object));
        }
        self.versions.convert(object, version)
    }

    fn schema(self, version: &str) -> Option<SchemaRef<'a>> {
        if version == self.api_version { Some(self.schema) } else { self.versions.schema(version) }
    }

    /// Sets of former schemas, as this one would have made them.
    fn migrate(self, managers: Managers) -> Managers {
        let migrate = |(id, mut owned): (ManagerId, Owned)| {
            let schema = self.schema(&owned.api_version)?;
            owned.fields = migrated(schema, owned.fields);
            Some((id, owned))
        };
        Managers(managers.0.into_iter().filter_map(migrate).collect())
    }
}

/// Takes from the other managers what differs between two objects.
///
/// # Errors
/// The conflicts, unless forced.
fn take_from_others(
    view: View<'_>,
    old: &Value,
    new: &Value,
    managers: &mut Managers,
    own: Option<&ManagerId>,
    force: bool,
) -> Result<Diff, Refused> {
    let compare = |schema, old: &Value, new: &Value| {
        let found = diff(schema, old, new).map_err(|e| Refused::Types("failed to compare objects", e))?;
        Ok(found.map(|set| view.filter.apply(set)))
    };
    let mut diffs: BTreeMap<String, Diff> = BTreeMap::new();
    diffs.insert(view.api_version.to_owned(), compare(view.schema, old, new)?);
    let mut conflicts = Vec::new();
    let mut lost: BTreeMap<ManagerId, Set> = BTreeMap::new();
    let mut unknown = Vec::new();
    for (id, owned) in managers.0.iter().filter(|(id, _)| own != Some(*id)) {
        if !diffs.contains_key(&owned.api_version) {
            let (old, new) = (view.to(old, &owned.api_version), view.to(new, &owned.api_version));
            let (Some(schema), Some(old), Some(new)) = (view.schema(&owned.api_version), old, new) else {
                unknown.push(id.clone());
                continue;
            };
            diffs.insert(owned.api_version.clone(), compare(schema, &old, &new)?);
        }
        let Some(found) = diffs.get(&owned.api_version) else { continue };
        let taken = owned.fields.intersection(&found.modified).union(owned.fields.intersection(&found.added));
        conflicts.extend(taken.paths().into_iter().map(|path| Conflict { owner: id.clone(), path }));
        let gone = taken.union(owned.fields.intersection(&found.removed));
        if !gone.is_empty() {
            lost.insert(id.clone(), gone);
        }
    }
    if !force && !conflicts.is_empty() {
        return Err(Refused::Conflicts(conflicts));
    }
    managers.0.retain(|id, owned| {
        if let Some(gone) = lost.get(id) {
            owned.fields = std::mem::take(&mut owned.fields).difference(gone);
        }
        !unknown.contains(id) && !owned.fields.is_empty()
    });
    Ok(diffs.remove(view.api_version).unwrap_or_default())
}

/// What a write that is no apply makes its writer own; the others lose it.
pub(super) fn update(
    view: View<'_>,
    old: &Value,
    new: &Value,
    managers: Managers,
) -> Result<(Set, Managers), Refused> {
    let mut managers = view.migrate(managers);
    let found = take_from_others(view, old, new, &mut managers, None, true)?;
    Ok((found.modified.union(found.added), managers))
}

/// Applies: merges, drops what its manager applied before and does not now, and moves ownership. Gives the object, if it
/// is another one than before.
pub(super) fn apply(
    view: View<'_>,
    live: &Value,
    config: &Value,
    managers: Managers,
    own: &ManagerId,
    force: bool,
) -> Result<(Option<Value>, Managers), Refused> {
    let mut managers = view.migrate(managers);
    let merged = merge(view.schema, live, config).map_err(|e| Refused::Types("failed to merge config", e))?;
    let last = managers.0.remove(own);
    let fields = view.filter.apply(fields_of(view.schema, config));
    let time = last.as_ref().and_then(|l| l.time.clone());
    managers.0.insert(own.clone(), Owned { api_version: view.api_version.to_owned(), time, fields });
    let new = match last {
        Some(last) if !last.fields.is_empty() => pruned(view, merged, &managers, &last),
        _ => merged,
    };
    take_from_others(view, live, &new, &mut managers, Some(own), force)?;
    Ok(((!same(live, &new)).then_some(new), managers))
}

/// The merged object without what was applied last time by this manager, and now is by none.
fn pruned(view: View<'_>, merged: Value, managers: &Managers, last: &Owned) -> Value {
    let done = (|| {
        let (all, schema) = (view.to(&merged, &last.api_version)?, view.schema(&last.api_version)?);
        let named = |set: Set| with_named(schema, set);
        let last_fields = named(last.fields.clone());
        let without = remove(schema, &all, &last_fields);
        let kept = with_owned(view, &all, without, &last.api_version, managers);
        // What the manager did not apply itself stays, whoever put it there.
        let kept = view.to(&kept, &last.api_version)?;
        let gone = named(fields_of(schema, &all)).difference(&named(fields_of(schema, &kept)));
        let out = remove(schema, &all, &gone.intersection(&last_fields));
        view.to(&out, view.api_version).map(Cow::into_owned)
    })();
    done.unwrap_or(merged)
}

/// Puts back what is owned by anybody.
fn with_owned(view: View<'_>, all: &Value, pruned: Value, first: &str, managers: &Managers) -> Value {
    let mut owned: BTreeMap<&str, Set> = BTreeMap::new();
    for (_, o) in managers.iter() {
        let set = owned.entry(&o.api_version).or_default();
        *set = std::mem::take(set).union(o.fields.clone());
    }
    // The version that was pruned comes first: converting may need what its owners put back.
    let mut order: Vec<&str> = owned.keys().copied().collect();
    order.sort_by_key(|version| *version != first);
    let mut pruned = pruned;
    for version in order {
        let Some(schema) = view.schema(version) else { continue };
        let (Some(all), Some(left)) = (view.to(all, version), view.to(&pruned, version)) else { continue };
        let named = |set: Set| with_named(schema, set);
        let keep = named(fields_of(schema, &left)).union(named(owned.remove(version).unwrap_or_default()));
        pruned = remove(schema, &all, &named(fields_of(schema, &all)).difference(&keep));
    }
    pruned
}
