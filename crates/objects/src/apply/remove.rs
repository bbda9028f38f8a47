//! Takes fields out of an object.

use super::atom::{Atom, child, item_step};
use super::set::Set;
use super::step::Step;
use crate::schema::SchemaRef;
use serde_json::{Map, Value};

/// The object without the fields of the set. An object or list that loses its last field becomes null, as an item of a list it
/// becomes empty.
pub fn remove(schema: SchemaRef<'_>, value: &Value, fields: &Set) -> Value {
    let atom = Atom::of(schema, Some(value));
    match (atom, value) {
        (Atom::Scalar(_), value) => value.clone(),
        (atom, _) if atom.is_atomic() => Value::Null,
        (Atom::Object(object), Value::Object(map)) => {
            let mut kept = Map::new();
            for (name, inner) in map {
                match fields.get(&Step::field(name)) {
                    Some(node) if node.member => {}
                    Some(node) => {
                        drop(kept.insert(name.clone(), remove(child(object, name), inner, &node.below)))
                    }
                    None => drop(kept.insert(name.clone(), inner.clone())),
                }
            }
            if kept.is_empty() { Value::Null } else { Value::Object(kept) }
        }
        (Atom::List(list), Value::Array(items)) => {
            let mut kept = Vec::with_capacity(items.len());
            for item in items {
                match item_step(list, item).ok().and_then(|step| fields.get(&step)) {
                    Some(node) if node.member => {}
                    // An item stays one, as upstream's null becomes when it is read: its key may stand in what is left by default.
                    Some(node) => kept.push(match remove(list.items, item, &node.below) {
                        Value::Null if item.is_object() => Value::Object(Map::new()),
                        left => left,
                    }),
                    None => kept.push(item.clone()),
                }
            }
            if kept.is_empty() { Value::Null } else { Value::Array(kept) }
        }
        _ => Value::Null,
    }
}

/// The set with all fields that the schema names on the way to its members: who owns `spec.replicas` owns `spec` too.
#[must_use]
pub fn with_named(schema: SchemaRef<'_>, mut set: Set) -> Set {
    for node in set.nodes_mut() {
        if node.below.is_empty() {
            continue;
        }
        let inner = match (&node.step, Atom::of(schema, None)) {
            (Step::Field(name), Atom::Object(object)) => {
                node.member |= object.property(name).is_some();
                child(object, name)
            }
            (Step::Key(_), Atom::List(list)) => list.items,
            _ => SchemaRef::ANY,
        };
        node.below = with_named(inner, std::mem::take(&mut node.below));
    }
    set
}

/// The set as it would be had the schema always been as it is: what became atomic is owned as a whole.
#[must_use]
pub fn migrated(schema: SchemaRef<'_>, mut set: Set) -> Set {
    for node in set.nodes_mut() {
        if node.below.is_empty() {
            continue;
        }
        let inner = match (&node.step, Atom::of(schema, None)) {
            (Step::Field(name), Atom::Object(object)) => object.known(name),
            (Step::Field(_), _) => None,
            (_, Atom::List(list)) => Some(list.items),
            _ => None,
        };
        let Some(inner) = inner else { continue };
        match Atom::of(inner, None) {
            Atom::Scalar(_) => {}
            atom if atom.is_atomic() => {
                node.member = true;
                node.below = Set::EMPTY;
            }
            _ => node.below = migrated(inner, std::mem::take(&mut node.below)),
        }
    }
    set
}
