//! Strategic merge patch: a partial object whose lists are merged by the marks of the schema.
//!
//! Directives in a patch: `$patch: replace|delete|merge` in an object or a list item, `$retainKeys`,
//! `$deleteFromPrimitiveList/FIELD` and `$setElementOrder/FIELD` beside the field.

use super::PatchError;
use super::order::{self, Keyed};
use crate::schema::{Field, Ty, Type};
use serde_json::{Map, Value};

type Object = Map<String, Value>;
type Result<T> = std::result::Result<T, PatchError>;

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const SET_ORDER: &str = "$setElementOrder/";

/// Merges `patch` into `object`, an object of the type. On an error the object is unchanged.
pub fn strategic(object: &mut Value, patch: &Value, ty: &'static Type) -> Result<()> {
    let Value::Object(patch) = patch else {
        return Err(malformed("a strategic merge patch must be a JSON object"));
    };
    let Value::Object(original) = &*object else {
        return Err(PatchError::Inapplicable("the object to patch is not a JSON object".to_owned()));
    };
    let mut merged = original.clone();
    merge_object(&mut merged, patch.clone(), Shape::Fields(ty))?;
    *object = Value::Object(merged);
    Ok(())
}

fn malformed(message: impl Into<String>) -> PatchError {
    PatchError::Malformed(message.into())
}

/// What is known of an object's inside.
#[derive(Clone, Copy)]
enum Shape<'a> {
    /// It has the fields of a type.
    Fields(&'static Type),
    /// It has free keys with values of one type.
    Values(&'a Ty),
    /// Nothing.
    Unknown,
}

impl<'a> Shape<'a> {
    fn of(ty: Option<&'a Ty>) -> Self {
        match ty {
            Some(Ty::Ref(id)) => Shape::Fields(id.get()),
            Some(Ty::Map(item)) => Shape::Values(item),
            _ => Shape::Unknown,
        }
    }

    /// The type of what lies under a key, and its marks if it is a field.
    fn below(self, key: &str) -> (Option<&'a Ty>, Marks) {
        match self {
            Shape::Fields(ty) => ty.field(key).map_or((None, Marks::NONE), |f| (Some(&f.ty), Marks::of(f))),
            Shape::Values(item) => (Some(item), Marks::NONE),
            Shape::Unknown => (None, Marks::NONE),
        }
    }
}

/// How a list is merged.
#[derive(Clone, Copy)]
struct Marks {
    merge: bool,
    key: &'static str,
}

impl Marks {
    const NONE: Self = Self { merge: false, key: "" };

    fn of(field: &Field) -> Self {
        Self { merge: field.merge, key: field.merge_key }
    }
}

fn merge_object(original: &mut Object, mut patch: Object, shape: Shape) -> Result<()> {
    if let Some(directive) = patch.remove(PATCH) {
        match directive.as_str() {
            Some("replace") => *original = patch,
            Some("delete") => original.clear(),
            // Merging is what happens anyway.
            Some("merge") => return merge_object(original, patch, shape),
            _ => return Err(malformed(format!("unknown patch type [{directive}]"))),
        }
        return Ok(());
    }
    retain_keys(original, &mut patch)?;
    merge_ordered_lists(original, &mut patch, shape)?;
    for (key, change) in patch {
        if let Some(field) = key.strip_prefix(DELETE_FROM) {
            delete_from_list(original, field, &change)?;
            continue;
        }
        if change.is_null() {
            original.remove(&key);
            continue;
        }
        let (ty, marks) = shape.below(&key);
        let merged = match (original.remove(&key), change) {
            (Some(Value::Object(mut old)), Value::Object(new)) => {
                merge_object(&mut old, new, Shape::of(ty))?;
                Value::Object(old)
            }
            (Some(Value::Array(old)), Value::Array(new)) if marks.merge => {
                Value::Array(merge_list(&key, old, new, ty, marks)?)
            }
            (None, Value::Array(new)) if marks.merge => {
                Value::Array(merge_list(&key, Vec::new(), new, ty, marks)?)
            }
            (_, new) => without_directives(new),
        };
        original.insert(key, merged);
    }
    Ok(())
}

/// Drops from the original what `$retainKeys` does not name.
fn retain_keys(original: &mut Object, patch: &mut Object) -> Result<()> {
    let Some(kept) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let kept = kept.as_array().ok_or_else(|| malformed("invalid patch format of retainKeys"))?;
    let named = |key: &str| kept.iter().any(|k| k == key);
    for (key, value) in patch.iter() {
        let is_directive = key.starts_with(DELETE_FROM) || key.starts_with(SET_ORDER);
        if !value.is_null() && !is_directive && !named(key) {
            return Err(malformed("invalid patch format of retainKeys"));
        }
    }
    original.retain(|key, _| named(key));
    Ok(())
}

/// Takes the lists with a `$setElementOrder` out of the patch and merges them in the order that it gives.
fn merge_ordered_lists(original: &mut Object, patch: &mut Object, shape: Shape) -> Result<()> {
    let directives: Vec<String> = patch.keys().filter(|k| k.starts_with(SET_ORDER)).cloned().collect();
    for directive in directives {
        let field = directive[SET_ORDER.len()..].to_owned();
        let Some(Value::Array(wanted)) = patch.remove(&directive) else {
            return Err(malformed("invalid patch format of setElementOrder list"));
        };
        // A null deletes the list; there is nothing to order then.
        if patch.get(&field).is_some_and(Value::is_null) {
            continue;
        }
        let (ty, marks) = shape.below(&field);
        let live = match original.get(&field) {
            Some(Value::Array(list)) => Some(list.clone()),
            _ => None,
        };
        // Deletions come first, so that a deleted value is not held in place by the live list.
        let deletions = patch.remove(&format!("{DELETE_FROM}{field}"));
        if let Some(deletions) = &deletions {
            delete_from_list(original, &field, deletions)?;
        }
        let old = match original.remove(&field) {
            Some(Value::Array(list)) => Some(list),
            _ => None,
        };
        let new = match patch.remove(&field) {
            Some(Value::Array(list)) => Some(list),
            Some(_) => return Err(malformed(format!("{field:?} has an element order and is not a list"))),
            None => None,
        };
        if old.is_none() && new.is_none() {
            continue;
        }
        if let Some(new) = &new {
            agrees_with_order(&field, new, &wanted, marks.key)?;
        }
        let merged = merge_list(&field, old.unwrap_or_default(), new.unwrap_or_default(), ty, marks)?;
        let ordered = order::arrange(merged, &wanted, &live.unwrap_or_default(), marks.key);
        original.insert(field, Value::Array(ordered));
    }
    Ok(())
}

/// The items of a patch list, those to delete aside, come in the order of `$setElementOrder` and are all named there.
fn agrees_with_order(field: &str, new: &[Value], wanted: &[Value], key: &str) -> Result<()> {
    let mut from = 0;
    for item in new.iter().filter(|i| i.get(PATCH).is_none()) {
        let at = wanted[from..].iter().position(|w| Keyed(w, key).same(item));
        match at {
            Some(offset) => from += offset + 1,
            None => {
                return Err(malformed(format!(
                    "the order of {field:?} in the patch does not match its {SET_ORDER} list"
                )));
            }
        }
    }
    Ok(())
}

/// Takes values out of a list of plain values.
fn delete_from_list(original: &mut Object, field: &str, values: &Value) -> Result<()> {
    let values = values.as_array().ok_or_else(|| malformed("invalid patch format of primitive list"))?;
    if let Some(Value::Array(list)) = original.get_mut(field) {
        list.retain(|v| !values.contains(v));
    }
    Ok(())
}

fn merge_list(
    field: &str,
    old: Vec<Value>,
    new: Vec<Value>,
    ty: Option<&Ty>,
    marks: Marks,
) -> Result<Vec<Value>> {
    if !marks.merge {
        return Ok(if new.is_empty() { old } else { new.into_iter().map(without_directives).collect() });
    }
    let objects = new.iter().chain(&old).filter(|v| v.is_object()).count();
    if objects == 0 {
        return Ok(merge_plain(old, &new));
    }
    if objects != new.len() + old.len() {
        return Err(malformed(format!("the list {field:?} mixes objects and plain values")));
    }
    if marks.key.is_empty() {
        return Err(malformed(format!("cannot merge lists without merge key for {field:?}")));
    }
    merge_keyed(old, new, ty, marks.key)
}

/// The union, in the order: values of the patch as there, the others as in the original.
fn merge_plain(old: Vec<Value>, new: &[Value]) -> Vec<Value> {
    let mut union: Vec<Value> = Vec::with_capacity(old.len() + new.len());
    for value in old.iter().chain(new) {
        if !union.contains(value) {
            union.push(value.clone());
        }
    }
    order::arrange(union, new, &old, "")
}

fn merge_keyed(mut old: Vec<Value>, new: Vec<Value>, ty: Option<&Ty>, key: &str) -> Result<Vec<Value>> {
    let live = old.clone();
    let (mut plain, mut replace) = (Vec::new(), false);
    for item in new {
        match item.get(PATCH).map(|d| d.as_str().unwrap_or_default()) {
            None => plain.push(item),
            Some("delete") => {
                keyed(&item, key)?;
                old.retain(|o| !Keyed(o, key).same(&item));
            }
            Some("replace") => replace = true,
            Some("merge") => return Err(malformed("merging lists cannot yet be specified in the patch")),
            Some(other) => return Err(malformed(format!("unknown patch type [{other}]"))),
        }
    }
    if replace {
        return Ok(plain);
    }
    let item_shape = match ty {
        Some(Ty::List(item)) => Shape::of(Some(item)),
        _ => Shape::Unknown,
    };
    let in_patch = plain.clone();
    for item in plain {
        keyed(&item, key)?;
        let found = old.iter_mut().find(|o| Keyed(o, key).same(&item));
        match (found, item) {
            (Some(Value::Object(target)), Value::Object(change)) => merge_object(target, change, item_shape)?,
            (_, item) => old.push(without_directives(item)),
        }
    }
    Ok(order::arrange(old, &in_patch, &live, key))
}

fn keyed(item: &Value, key: &str) -> Result<()> {
    match item.get(key) {
        Some(value) if !value.is_null() => Ok(()),
        _ => Err(malformed(format!("map: {item} does not contain declared merge key: {key}"))),
    }
}

/// A part of a patch that meets nothing to merge with: its nulls and directives have done their work.
fn without_directives(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let is_directive = |k: &str| {
                k == PATCH || k == RETAIN_KEYS || k.starts_with(DELETE_FROM) || k.starts_with(SET_ORDER)
            };
            if map.get(PATCH).is_some_and(|d| d == "delete") {
                return Value::Object(Object::new());
            }
            let kept = map.into_iter().filter(|(k, v)| !v.is_null() && !is_directive(k));
            Value::Object(kept.map(|(k, v)| (k, without_directives(v))).collect())
        }
        Value::Array(list) => {
            let kept = list.into_iter().filter(|v| {
                !v.get(PATCH).is_some_and(|d| d == "delete" || v.as_object().is_some_and(|m| m.len() == 1))
            });
            Value::Array(kept.map(without_directives).collect())
        }
        plain => plain,
    }
}

#[cfg(test)]
#[path = "strategic_tests.rs"]
mod tests;
