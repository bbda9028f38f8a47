//! What stands at a place of an object: a leaf, a list or an object, by the schema, and where that says nothing by the value.

use super::step::Step;
use crate::schema::{Keys, ListKind, ListRef, ObjectRef, Scalar, SchemaRef, Shape};
use serde_json::Value;

/// What stands at a place.
#[derive(Debug, Clone, Copy)]
pub(super) enum Atom<'a> {
    /// A plain value; `None`: any plain value.
    Scalar(Option<Scalar>),
    /// A list.
    List(ListRef<'a>),
    /// An object.
    Object(ObjectRef<'a>),
}

impl<'a> Atom<'a> {
    /// What stands at a place of this schema that has this value.
    pub(super) fn of(schema: SchemaRef<'a>, value: Option<&Value>) -> Self {
        match (schema.shape(), value) {
            (Shape::Scalar(scalar), _) => Self::Scalar(Some(scalar)),
            (Shape::List(list), _) => Self::List(list),
            (Shape::Object(object), _) => Self::Object(object),
            (Shape::Any, None | Some(Value::Null | Value::Object(_))) => Self::Object(ObjectRef::FREE),
            (Shape::Any, Some(Value::Array(_))) => {
                Self::List(ListRef { items: SchemaRef::ANY, kind: ListKind::Atomic })
            }
            (Shape::Any, Some(_)) => Self::Scalar(None),
        }
    }

    /// Whether it is taken as one value.
    pub(super) fn is_atomic(&self) -> bool {
        match self {
            Self::Scalar(_) => true,
            Self::List(list) => matches!(list.kind, ListKind::Atomic),
            Self::Object(object) => object.atomic,
        }
    }
}

/// Whether two values are of one form, so that one atom serves both. Where the schema speaks, its form is that of both.
pub(super) fn one_form(schema: SchemaRef<'_>, a: &Value, b: &Value) -> bool {
    let form = |value: &Value| match value {
        Value::Null => 0,
        Value::Object(_) => 1,
        Value::Array(_) => 2,
        _ => 3,
    };
    !matches!(schema.shape(), Shape::Any) || form(a) == form(b)
}

/// What lies under a key. What the schema does not know is taken as it comes: it was refused before, or is dropped later.
pub(super) fn child<'a>(object: ObjectRef<'a>, name: &str) -> SchemaRef<'a> {
    object.known(name).unwrap_or(SchemaRef::ANY)
}

/// The step to a list item.
///
/// # Errors
/// Why there is none, in the words of upstream.
pub(super) fn item_step(list: ListRef<'_>, item: &Value) -> Result<Step, String> {
    match list.kind {
        ListKind::Atomic => Err("invalid indexing of non-associative list".to_owned()),
        ListKind::Map(keys) => keyed(list, keys, item),
        ListKind::Set => match item {
            Value::Object(_) => {
                Err("associative list without keys has an element that's a map type".to_owned())
            }
            Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
            Value::Null => {
                Err("associative list without keys has an element that's an explicit null".to_owned())
            }
            plain => Ok(Step::Value(plain.clone())),
        },
    }
}

fn keyed(list: ListRef<'_>, keys: Keys<'_>, item: &Value) -> Result<Step, String> {
    let map = match item {
        Value::Object(map) => map,
        Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
        _ => return Err("associative list with keys may not have non-map elements".to_owned()),
    };
    let object = match list.items.shape() {
        Shape::Object(object) => object,
        _ => ObjectRef::FREE,
    };
    let found: Vec<(String, Value)> = keys
        .iter()
        .filter_map(|key| {
            let value = map.get(key).cloned().or_else(|| object.key_default(key))?;
            Some((key.to_owned(), value))
        })
        .collect();
    if found.is_empty() {
        let names: Vec<String> = keys.iter().map(|k| format!("{k:?}")).collect();
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for \
             any key fields)",
            names.join(" ")
        ));
    }
    Ok(Step::key(found))
}

/// The steps to all items of a list.
///
/// # Errors
/// [`super::TypeErrors`] naming the items that have none.
pub(super) fn item_steps(list: ListRef<'_>, items: &[Value]) -> Result<Vec<Step>, super::TypeErrors> {
    let (mut steps, mut errors) = (Vec::with_capacity(items.len()), super::TypeErrors::default());
    for (i, item) in items.iter().enumerate() {
        match item_step(list, item) {
            Ok(step) => steps.push(step),
            Err(why) => errors.add(&format!("element {i}: {why}")),
        }
    }
    errors.or(steps)
}
