//! Puts what is applied into what is there.

use super::TypeErrors;
use super::atom::{Atom, child, item_steps};
use super::step::Step;
use crate::schema::{ListRef, ObjectRef, SchemaRef};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Merges an applied object into a live one: fields of the applied one win, lists are merged by their marks.
///
/// # Errors
/// [`TypeErrors`] if list items cannot be told apart, or one is applied twice.
pub fn merge(schema: SchemaRef<'_>, live: &Value, applied: &Value) -> Result<Value, TypeErrors> {
    merged(schema, Some(live), Some(applied)).map(Option::unwrap_or_default)
}

fn merged(
    schema: SchemaRef<'_>,
    live: Option<&Value>,
    applied: Option<&Value>,
) -> Result<Option<Value>, TypeErrors> {
    let winner = applied.or(live);
    let leaf = || Ok(winner.cloned());
    let atom = Atom::of(schema, winner);
    if atom.is_atomic() {
        return leaf();
    }
    // A live value of another form is no object or list here, and so is replaced.
    match atom {
        Atom::Object(object) => {
            let (a, b) = (live.and_then(Value::as_object), applied.and_then(Value::as_object));
            if a.is_none_or(Map::is_empty) && b.is_none_or(Map::is_empty) {
                return leaf();
            }
            objects(object, a, b).map(|out| (!out.is_empty()).then_some(Value::Object(out)))
        }
        Atom::List(list) => {
            let (a, b) = (live.and_then(Value::as_array), applied.and_then(Value::as_array));
            if a.is_none_or(Vec::is_empty) && b.is_none_or(Vec::is_empty) {
                return leaf();
            }
            let empty = Vec::new();
            let out = lists(list, a.unwrap_or(&empty), b.unwrap_or(&empty))?;
            Ok((!out.is_empty()).then_some(Value::Array(out)))
        }
        Atom::Scalar(_) => leaf(),
    }
}

fn objects(
    object: ObjectRef<'_>,
    live: Option<&Map<String, Value>>,
    applied: Option<&Map<String, Value>>,
) -> Result<Map<String, Value>, TypeErrors> {
    let Some(applied) = applied else { return Ok(live.cloned().unwrap_or_default()) };
    let mut out = live.cloned().unwrap_or_default();
    for (name, change) in applied {
        let had = live.and_then(|l| l.get(name));
        let value =
            merged(child(object, name), had, Some(change)).map_err(|e| e.below(&Step::field(name)))?;
        match value {
            Some(value) => drop(out.insert(name.clone(), value)),
            None => drop(out.remove(name)),
        }
    }
    Ok(out)
}

/// Items that are only in the live list keep their order, applied ones have that of the applied list; where both meet, an
/// item that was before a shared one stays before it.
fn lists(list: ListRef<'_>, live: &[Value], applied: &[Value]) -> Result<Vec<Value>, TypeErrors> {
    let applied_steps = item_steps(list, applied)?;
    let live_steps = item_steps(list, live)?;
    let mut wanted: BTreeMap<&Step, &Value> = BTreeMap::new();
    let mut twice = TypeErrors::default();
    for (step, item) in applied_steps.iter().zip(applied) {
        if wanted.insert(step, item).is_some() {
            twice.add(&format!("duplicate entries for key {step}"));
        }
    }
    twice.or(())?;
    // Of a live item that is there more than once nothing is kept when it is applied.
    let mut had: BTreeMap<&Step, Option<&Value>> = BTreeMap::new();
    for (step, item) in live_steps.iter().zip(live) {
        had.entry(step).and_modify(|h| *h = None).or_insert(Some(item));
    }
    let combine = |step: &Step| {
        let item = had.get(step).copied().flatten();
        merged(list.items, item, wanted.get(step).copied()).map_err(|e| e.below(step))
    };
    let mut out = Vec::with_capacity(live.len().max(applied.len()));
    // The shared items in the order of the applied list; the next one is what live items are lined up with.
    let mut shared = applied_steps.iter().filter(|s| had.contains_key(s)).peekable();
    let (mut l, mut done) = (0, 0);
    let mut merged: BTreeSet<&Step> = BTreeSet::new();
    while l < live.len() || done < applied.len() {
        let next_live = live_steps.get(l);
        let next = applied_steps.get(done);
        match (next_live, next) {
            (Some(a), _) if !wanted.contains_key(a) => {
                out.push(live[l].clone());
                l += 1;
            }
            (Some(a), Some(b)) if a == b => {
                out.extend(combine(b)?);
                merged.insert(b);
                (l, done) = (l + 1, done + 1);
                shared.next();
            }
            // Another shared item is due first; this one comes with the applied list.
            (Some(a), Some(_)) if shared.peek().is_some_and(|due| *due != a) => l += 1,
            (a, Some(b)) => {
                l += usize::from(a.is_some_and(|a| merged.contains(a)));
                out.extend(combine(b)?);
                merged.insert(b);
                done += 1;
                if shared.peek() == Some(&b) {
                    shared.next();
                }
            }
            (_, None) => l += 1,
        }
    }
    Ok(out)
}
