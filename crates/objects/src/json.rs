//! Reading JSON with an eye on what an ordinary parser hides.

use crate::schema::{FieldError, Problem};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::cell::RefCell;
use std::fmt;

/// Reads a document of any format; what is there twice must reach the visitor.
///
/// # Errors
/// What the deserializer says.
pub fn read_reporting_duplicates<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<(Value, Vec<FieldError>), D::Error> {
    let found = RefCell::new(Vec::new());
    let value = Node { path: &Path::Root, found: &found }.deserialize(deserializer)?;
    Ok((value, found.into_inner()))
}

/// Reads a document; fields that are there twice are reported with their paths, and the last one counts.
pub fn parse_reporting_duplicates(bytes: &[u8]) -> Result<(Value, Vec<FieldError>), serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let read = read_reporting_duplicates(&mut deserializer)?;
    deserializer.end()?;
    Ok(read)
}

/// The way to a node, linked through the stack so that nothing is built until it is needed.
enum Path<'a> {
    Root,
    Field(&'a Path<'a>, &'a str),
    Item(&'a Path<'a>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Root => Ok(()),
            Path::Field(Path::Root, name) => f.write_str(name),
            Path::Field(parent, name) => write!(f, "{parent}.{name}"),
            Path::Item(parent, i) => write!(f, "{parent}[{i}]"),
        }
    }
}

struct Node<'a> {
    path: &'a Path<'a>,
    found: &'a RefCell<Vec<FieldError>>,
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, v: bool) -> Result<Value, E> {
        Ok(Value::Bool(v))
    }

    fn visit_i64<E>(self, v: i64) -> Result<Value, E> {
        Ok(Value::Number(v.into()))
    }

    fn visit_u64<E>(self, v: u64) -> Result<Value, E> {
        Ok(Value::Number(v.into()))
    }

    fn visit_f64<E: Error>(self, v: f64) -> Result<Value, E> {
        Number::from_f64(v).map(Value::Number).ok_or_else(|| E::custom("not a finite number"))
    }

    fn visit_str<E>(self, v: &str) -> Result<Value, E> {
        Ok(Value::String(v.to_owned()))
    }

    fn visit_string<E>(self, v: String) -> Result<Value, E> {
        Ok(Value::String(v))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            let path = Path::Item(self.path, list.len());
            match seq.next_element_seed(Node { path: &path, found: self.found })? {
                Some(item) => list.push(item),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            let path = Path::Field(self.path, &key);
            let value = access.next_value_seed(Node { path: &path, found: self.found })?;
            if map.contains_key(&key) {
                self.found
                    .borrow_mut()
                    .push(FieldError { path: path.to_string(), problem: Problem::Duplicate });
            }
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn duplicates_are_reported_and_the_last_counts() {
        let text = br#"{"a": 1, "spec": {"l": [{"x": 1, "x": 2}], "x": 1}, "a": {"b": null, "b": 1.5}}"#;
        let (value, found) = parse_reporting_duplicates(text).unwrap();
        assert_eq!(value, json!({"a": {"b": 1.5}, "spec": {"l": [{"x": 2}], "x": 1}}));
        let shown: Vec<String> = found.iter().map(FieldError::to_string).collect();
        assert_eq!(
            shown,
            ["duplicate field \"spec.l[0].x\"", "duplicate field \"a.b\"", "duplicate field \"a\""]
        );
    }

    #[test]
    fn malformed_documents_are_refused() {
        let deep = "[".repeat(10_000);
        for text in ["", "{", "{} x", "{'a': 1}", &deep] {
            assert!(parse_reporting_duplicates(text.as_bytes()).is_err());
        }
    }
}
