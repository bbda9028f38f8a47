//! What changed between two objects.

use super::TypeErrors;
use super::atom::{Atom, child, item_steps, one_form};
use super::set::Set;
use super::step::{Step, same};
use crate::schema::{ListRef, ObjectRef, SchemaRef};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The fields that differ between two objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Diff {
    /// Only in the old one.
    pub removed: Set,
    /// In both, with other values.
    pub modified: Set,
    /// Only in the new one.
    pub added: Set,
}

/// Compares two objects of one schema.
///
/// # Errors
/// [`TypeErrors`] if list items cannot be told apart.
pub fn diff(schema: SchemaRef<'_>, old: &Value, new: &Value) -> Result<Diff, TypeErrors> {
    let mut out = Diff::default();
    let mut root = Place::default();
    visit(schema, Some(old), Some(new), &mut root)?;
    std::mem::swap(&mut out, &mut root.below);
    Ok(out)
}

/// What changed at one place and below it.
#[derive(Default)]
struct Place {
    removed: bool,
    modified: bool,
    added: bool,
    below: Diff,
}

impl Place {
    /// One value as a whole.
    fn leaf(&mut self, old: Option<&Value>, new: Option<&Value>) {
        match (old, new) {
            (None, _) => self.added = true,
            (_, None) => self.removed = true,
            (Some(old), Some(new)) => self.modified |= !same(old, new),
        }
    }
}

impl Diff {
    fn take(&mut self, step: Step, place: Place) {
        let Place { removed, modified, added, below } = place;
        if removed || !below.removed.is_empty() {
            self.removed.add(step.clone(), removed, below.removed);
        }
        if modified || !below.modified.is_empty() {
            self.modified.add(step.clone(), modified, below.modified);
        }
        if added || !below.added.is_empty() {
            self.added.add(step, added, below.added);
        }
    }

    /// Only what `keep` lets through.
    #[must_use]
    pub fn map(self, keep: impl Fn(Set) -> Set) -> Self {
        Self { removed: keep(self.removed), modified: keep(self.modified), added: keep(self.added) }
    }
}

fn visit(
    schema: SchemaRef<'_>,
    old: Option<&Value>,
    new: Option<&Value>,
    place: &mut Place,
) -> Result<(), TypeErrors> {
    match (old, new) {
        (Some(a), Some(b)) if !one_form(schema, a, b) => {
            visit_as(Atom::of(schema, old), old, new, place)?;
            visit_as(Atom::of(schema, new), old, new, place)
        }
        _ => visit_as(Atom::of(schema, new.or(old)), old, new, place),
    }
}

fn visit_as(
    atom: Atom<'_>,
    old: Option<&Value>,
    new: Option<&Value>,
    place: &mut Place,
) -> Result<(), TypeErrors> {
    // What is there now and was not, or the other way, is a change itself, beside what lies below it.
    place.added |= old.is_none();
    place.removed |= new.is_none();
    if atom.is_atomic() {
        place.leaf(old, new);
        return Ok(());
    }
    match atom {
        Atom::Object(object) => {
            let (a, b) = (old.and_then(Value::as_object), new.and_then(Value::as_object));
            if a.is_none_or(Map::is_empty) && b.is_none_or(Map::is_empty) {
                place.leaf(old, new);
                return Ok(());
            }
            let there = (old.is_some(), new.is_some());
            of_objects(object, (a, b), there, &mut place.below)
        }
        Atom::List(list) => {
            let (a, b) = (old.and_then(Value::as_array), new.and_then(Value::as_array));
            if a.is_none_or(Vec::is_empty) && b.is_none_or(Vec::is_empty) {
                place.leaf(old, new);
                return Ok(());
            }
            let empty = Vec::new();
            of_lists(list, a.unwrap_or(&empty), b.unwrap_or(&empty), &mut place.below)
        }
        Atom::Scalar(_) => Ok(()),
    }
}

type Fields<'a> = Option<&'a Map<String, Value>>;

/// `there` says of either whether there is an object at all; what typed programs cannot leave out of it is then there, too.
fn of_objects(
    object: ObjectRef<'_>,
    (old, new): (Fields<'_>, Fields<'_>),
    there: (bool, bool),
    out: &mut Diff,
) -> Result<(), TypeErrors> {
    let mut one = |name: &String, a: Option<&Value>, b: Option<&Value>| {
        // Most of an object is as it was; of that nothing needs to be made.
        if a == b {
            return Ok(());
        }
        let schema = child(object, name);
        let (mut a, mut b) = (a, b);
        if schema.always_there() {
            a = a.or(there.0.then_some(&Value::Null));
            b = b.or(there.1.then_some(&Value::Null));
            if a.is_some_and(is_void) && b.is_some_and(is_void) {
                return Ok(());
            }
        }
        let mut place = Place::default();
        let step = || Step::field(name);
        visit(schema, a, b, &mut place).map_err(|e| e.below(&step()))?;
        out.take(step(), place);
        Ok(())
    };
    for (name, a) in old.into_iter().flatten() {
        one(name, Some(a), new.and_then(|n| n.get(name)))?;
    }
    let only_new = new.into_iter().flatten().filter(|(name, _)| old.is_none_or(|o| !o.contains_key(*name)));
    for (name, b) in only_new {
        one(name, None, Some(b))?;
    }
    Ok(())
}

fn is_void(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}

fn of_lists(list: ListRef<'_>, old: &[Value], new: &[Value], out: &mut Diff) -> Result<(), TypeErrors> {
    let mut items: BTreeMap<Step, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
    for (step, item) in item_steps(list, old)?.into_iter().zip(old) {
        items.entry(step).or_default().0.push(item);
    }
    for (step, item) in item_steps(list, new)?.into_iter().zip(new) {
        items.entry(step).or_default().1.push(item);
    }
    for (step, (a, b)) in items {
        let mut place = Place::default();
        let mut compare = |a: Option<&Value>, b: Option<&Value>| {
            visit(list.items, a, b, &mut place).map_err(|e| e.below(&step))
        };
        match (a.as_slice(), b.as_slice()) {
            ([] | [_], [] | [_]) => {
                if a != b {
                    compare(a.first().copied(), b.first().copied())?;
                }
            }
            // An item that is there more than once is one thing.
            ([] | [_], _) => {
                if let [only] = a.as_slice() {
                    compare(Some(only), None)?;
                }
                place.added = true;
            }
            (_, [] | [_]) => {
                if let [only] = b.as_slice() {
                    compare(None, Some(only))?;
                }
                place.removed = true;
            }
            (a, b) => place.modified = !(a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))),
        }
        out.take(step, place);
    }
    Ok(())
}
