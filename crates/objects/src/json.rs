//! Reading JSON with an eye on what an ordinary parser hides.

use crate::schema::{FieldError, Problem};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;

/// Fields that are there twice, and where every field stands if there are any: a strict reader names what it has against a
/// document in the document's order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Duplicates {
    found: Vec<(usize, FieldError)>,
    /// By the hash of the path: paths can be long, and many.
    places: HashMap<u64, usize>,
}

impl Duplicates {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// These and others, in the document's order. Without any of these the others keep their own.
    #[must_use]
    pub fn among(self, others: Vec<FieldError>) -> Vec<FieldError> {
        let place =
            |error: &FieldError| self.places.get(&hash(BASIS, &error.path)).copied().unwrap_or_default();
        let others = others.into_iter().map(|error| (place(&error), error));
        let mut all: Vec<(usize, FieldError)> = self.found.into_iter().chain(others).collect();
        all.sort_by_key(|(place, _)| *place);
        all.into_iter().map(|(_, error)| error).collect()
    }
}

/// Reads a document of any format; what is there twice must reach the visitor. `open` gives it to `read` from the beginning, a
/// second time if something is there twice.
///
/// # Errors
/// What the deserializer says.
pub fn read_reporting_duplicates<E>(
    mut open: impl FnMut(Reader<'_>) -> Result<Value, E>,
) -> Result<(Value, Duplicates), E> {
    let mut notes = Notes::default();
    let value = open(Reader(&notes))?;
    let found = std::mem::take(notes.found.get_mut());
    if found.is_empty() {
        return Ok((value, Duplicates::default()));
    }
    let again = Notes { places: Some(RefCell::default()), ..Notes::default() };
    open(Reader(&again))?;
    let places = again.places.map(RefCell::into_inner).unwrap_or_default();
    Ok((value, Duplicates { found, places }))
}

/// Reads one document out of a deserializer.
pub struct Reader<'a>(&'a Notes);

impl Reader<'_> {
    /// Reads it.
    ///
    /// # Errors
    /// What the deserializer says.
    pub fn read<'de, D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        Node { path: &Path::ROOT, notes: self.0 }.deserialize(deserializer)
    }
}

/// Reads a document; fields that are there twice are reported with their paths, and the last one counts.
pub fn parse_reporting_duplicates(bytes: &[u8]) -> Result<(Value, Duplicates), serde_json::Error> {
    read_reporting_duplicates(|reader| {
        let mut deserializer = serde_json::Deserializer::from_slice(bytes);
        let value = reader.read(&mut deserializer)?;
        deserializer.end().map(|()| value)
    })
}

/// What is noted on the way.
#[derive(Default)]
struct Notes {
    /// How many fields have come.
    count: Cell<usize>,
    found: RefCell<Vec<(usize, FieldError)>>,
    /// Where each path came first; only once it is known that this is wanted.
    places: Option<RefCell<HashMap<u64, usize>>>,
}

/// The most duplicates that are named; upstream's reader stops noting after as many.
const MOST: usize = 100;

/// Where FNV-1a begins.
const BASIS: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a, which goes on from where it was: a path's hash is its parent's and the rest.
fn hash(state: u64, text: &str) -> u64 {
    text.bytes().fold(state, |state, byte| (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The way to a node, linked through the stack so that nothing is built until it is needed.
struct Path<'a> {
    last: Step<'a>,
    /// Of the path as it is shown, if places are noted.
    hash: u64,
}

enum Step<'a> {
    Root,
    Field(&'a Path<'a>, &'a str),
    Item(&'a Path<'a>, usize),
}

impl<'a> Path<'a> {
    const ROOT: Path<'static> = Path { last: Step::Root, hash: BASIS };

    fn field(parent: &'a Path<'a>, name: &'a str, hashed: bool) -> Self {
        let dot = if matches!(parent.last, Step::Root) { "" } else { "." };
        let hash = if hashed { hash(hash(parent.hash, dot), name) } else { BASIS };
        Self { last: Step::Field(parent, name), hash }
    }

    fn item(parent: &'a Path<'a>, index: usize, hashed: bool) -> Self {
        let hash = if hashed { hash(parent.hash, &format!("[{index}]")) } else { BASIS };
        Self { last: Step::Item(parent, index), hash }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.last {
            Step::Root => Ok(()),
            Step::Field(Path { last: Step::Root, .. }, name) => f.write_str(name),
            Step::Field(parent, name) => write!(f, "{parent}.{name}"),
            Step::Item(parent, i) => write!(f, "{parent}[{i}]"),
        }
    }
}

struct Node<'a> {
    path: &'a Path<'a>,
    notes: &'a Notes,
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
            let path = Path::item(self.path, list.len(), self.notes.places.is_some());
            match seq.next_element_seed(Node { path: &path, notes: self.notes })? {
                Some(item) => list.push(item),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            let path = Path::field(self.path, &key, self.notes.places.is_some());
            let place = self.notes.count.get();
            self.notes.count.set(place + 1);
            if let Some(places) = &self.notes.places {
                places.borrow_mut().entry(path.hash).or_insert(place);
            }
            if map.contains_key(&key) && self.notes.found.borrow().len() < MOST {
                let error = FieldError { path: path.to_string(), problem: Problem::Duplicate };
                self.notes.found.borrow_mut().push((place, error));
            }
            let value = access.next_value_seed(Node { path: &path, notes: self.notes })?;
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
        let unknown = |path: &str| FieldError { path: path.to_owned(), problem: Problem::Unknown };
        let all = found.among(vec![unknown("a"), unknown("spec.x")]);
        let shown: Vec<String> = all.iter().map(FieldError::to_string).collect();
        assert_eq!(
            shown,
            [
                "unknown field \"a\"",
                "duplicate field \"spec.l[0].x\"",
                "unknown field \"spec.x\"",
                "duplicate field \"a\"",
                "duplicate field \"a.b\"",
            ]
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
