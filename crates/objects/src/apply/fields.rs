//! The fields that an object has: what its applier owns.

use super::atom::{Atom, child, item_step};
use super::set::Set;
use super::step::Step;
use crate::schema::{ListRef, ObjectRef, SchemaRef};
use serde_json::{Map, Value};

/// The fields that a valid object has. Objects with fields of their own are not among them unless they are empty or null;
/// list items and free keys are.
pub fn fields_of(schema: SchemaRef<'_>, value: &Value) -> Set {
    below(schema, value).1
}

/// Whether the place itself is a field, and the fields below it.
fn below(schema: SchemaRef<'_>, value: &Value) -> (bool, Set) {
    let atom = Atom::of(schema, Some(value));
    if atom.is_atomic() {
        return (true, Set::EMPTY);
    }
    let set = match (atom, value) {
        (Atom::Object(object), Value::Object(map)) => of_object(object, map),
        (Atom::List(list), Value::Array(items)) => of_list(list, items),
        _ => Set::EMPTY,
    };
    (false, set)
}

fn of_object(object: ObjectRef<'_>, map: &Map<String, Value>) -> Set {
    let mut set = Set::EMPTY;
    for (name, inner) in map {
        let (leaf, fields) = below(child(object, name), inner);
        let empty = inner.is_null() || inner.as_object().is_some_and(Map::is_empty);
        let member = leaf || empty || object.property(name).is_none();
        set.add(Step::field(name), member, fields);
    }
    set
}

fn of_list(list: ListRef<'_>, items: &[Value]) -> Set {
    let steps: Vec<Option<Step>> = items.iter().map(|item| item_step(list, item).ok()).collect();
    let mut set = Set::EMPTY;
    for (item, step) in items.iter().zip(&steps) {
        let Some(step) = step else { continue };
        // Of items that are there more than once, only that they are there is known.
        let once = steps.iter().flatten().filter(|s| *s == step).count() == 1;
        let fields = if once { below(list.items, item).1 } else { Set::EMPTY };
        set.add(step.clone(), true, fields);
    }
    set
}
