//! Whether an object can be applied: it fits its schema, and its list items can be told apart.

use super::atom::{Atom, item_step};
use super::step::Step;
use crate::schema::{ListKind, ListRef, ObjectRef, Scalar, SchemaRef};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::fmt;

/// What does not fit, with its path, in upstream's words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TypeErrors(Vec<(String, String)>);

impl TypeErrors {
    pub(super) fn add(&mut self, why: &str) {
        self.0.push((String::new(), why.to_owned()));
    }

    pub(super) fn or<T>(self, value: T) -> Result<T, Self> {
        if self.0.is_empty() { Ok(value) } else { Err(self) }
    }

    /// The same, seen from the object around.
    pub(super) fn below(mut self, step: &Step) -> Self {
        let prefix = step.to_string();
        self.0.iter_mut().for_each(|(path, _)| path.insert_str(0, &prefix));
        self
    }
}

impl fmt::Display for TypeErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one = |(path, why): &(String, String)| {
            if path.is_empty() { why.clone() } else { format!("{path}: {why}") }
        };
        match self.0.as_slice() {
            [only] => f.write_str(&one(only)),
            all => {
                f.write_str("errors:")?;
                all.iter().try_for_each(|e| write!(f, "\n  {}", one(e)))
            }
        }
    }
}

impl std::error::Error for TypeErrors {}

/// Checks an object. In what is applied an item must not be there twice; in what is stored it may.
///
/// # Errors
/// [`TypeErrors`].
pub fn validate(schema: SchemaRef<'_>, value: &Value, duplicates: bool) -> Result<(), TypeErrors> {
    let mut walk = Walk { path: String::new(), duplicates, errors: TypeErrors::default() };
    walk.value(schema, value);
    walk.errors.or(())
}

struct Walk {
    path: String,
    duplicates: bool,
    errors: TypeErrors,
}

impl Walk {
    fn report(&mut self, why: String) {
        self.errors.0.push((self.path.clone(), why));
    }

    fn within(&mut self, step: &Step, visit: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        self.path.push_str(&step.to_string());
        visit(self);
        self.path.truncate(length);
    }

    fn value(&mut self, schema: SchemaRef<'_>, value: &Value) {
        if value.is_null() {
            return;
        }
        match (Atom::of(schema, Some(value)), value) {
            (Atom::Scalar(scalar), value) => {
                if let Some(why) = misfit(scalar, value) {
                    self.report(why);
                }
            }
            (Atom::Object(object), Value::Object(map)) => self.object(object, map),
            (Atom::Object(_), other) => self.report(format!("expected map, got &{{{}}}", Go(other))),
            (Atom::List(list), Value::Array(items)) => self.list(list, items),
            (Atom::List(_), other) => self.report(format!("expected list, got &{{{}}}", Go(other))),
        }
    }

    fn object(&mut self, object: ObjectRef<'_>, map: &Map<String, Value>) {
        for (name, inner) in map {
            self.within(&Step::field(name), |walk| match object.known(name) {
                Some(schema) => walk.value(schema, inner),
                None => walk.report("field not declared in schema".to_owned()),
            });
        }
    }

    fn list(&mut self, list: ListRef<'_>, items: &[Value]) {
        let mut seen = BTreeSet::new();
        for (i, item) in items.iter().enumerate() {
            let step = if matches!(list.kind, ListKind::Atomic) {
                Step::Index(i64::try_from(i).unwrap_or(i64::MAX))
            } else {
                match item_step(list, item) {
                    Ok(step) => step,
                    Err(why) => return self.report(format!("element {i}: {why}")),
                }
            };
            if seen.contains(&step) && !self.duplicates {
                self.report(format!("duplicate entries for key {step}"));
            }
            self.within(&step, |walk| walk.value(list.items, item));
            seen.insert(step);
        }
    }
}

fn misfit(scalar: Option<Scalar>, value: &Value) -> Option<String> {
    let (fits, why): (bool, String) = match scalar {
        Some(Scalar::Int32 | Scalar::Int64 | Scalar::Double) => {
            if value.is_number() {
                return None;
            }
            (false, format!("expected numeric (int or float), got {}", go_type(value)))
        }
        Some(Scalar::String | Scalar::Bytes) => {
            if value.is_string() {
                return None;
            }
            (false, format!("expected string, got &value.valueUnstructured{{Value:{}}}", Go(value)))
        }
        Some(Scalar::Bool) => (value.is_boolean(), format!("expected boolean, got &{{{}}}", Go(value))),
        Some(Scalar::Time | Scalar::Quantity | Scalar::IntOrString) | None => {
            (!value.is_object() && !value.is_array(), format!("expected any scalar, got &{{{}}}", Go(value)))
        }
    };
    (!fits).then_some(why)
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// A value as Go prints it.
struct Go<'a>(&'a Value);

impl fmt::Display for Go<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => f.write_str("<nil>"),
            Value::String(text) => f.write_str(text),
            Value::Array(list) => {
                f.write_str("[")?;
                for (i, item) in list.iter().enumerate() {
                    write!(f, "{}{}", if i > 0 { " " } else { "" }, Go(item))?;
                }
                f.write_str("]")
            }
            Value::Object(map) => {
                f.write_str("map[")?;
                for (i, (key, item)) in map.iter().enumerate() {
                    write!(f, "{}{key}:{}", if i > 0 { " " } else { "" }, Go(item))?;
                }
                f.write_str("]")
            }
            plain => write!(f, "{plain}"),
        }
    }
}
