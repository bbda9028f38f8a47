//! A stored object's bytes, without a tree of all that is in them.
//!
//! What labels and field selectors look at lies near the root; most of an object does not. Reading only that costs a tenth of
//! reading all.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// `metadata.labels.NAME` lies so deep.
const DEPTH: usize = 3;
/// Large, and nothing that anybody selects by.
const CONTENT: [&str; 2] = ["binaryData", "data"];
const REVISION: &str = "resourceVersion";

/// The scalars of an object down to three levels, and the objects that hold them. Lists are left out, as is what ConfigMaps and
/// Secrets hold.
///
/// # Errors
/// If the bytes are no JSON.
pub fn outline(json: &[u8]) -> Result<Value, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_slice(json);
    let value = Near(DEPTH).deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

/// What is left of the depth.
#[derive(Clone, Copy)]
struct Near(usize);

impl<'de> DeserializeSeed<'de> for Near {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Near {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Value::Null)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut kept = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if self.0 == 0 || self.0 == DEPTH && CONTENT.contains(&key.as_str()) {
                entries.next_value::<IgnoredAny>()?;
                continue;
            }
            match entries.next_value_seed(Self(self.0 - 1))? {
                Value::Null => {}
                value => drop(kept.insert(key, value)),
            }
        }
        Ok(Value::Object(kept))
    }
}

/// A canonical object (keys in order, no spaces) with its revision put in. `None` if it has none to replace and no metadata to
/// put it into, or is no object.
#[must_use]
pub fn with_revision(json: &[u8], revision: u64) -> Option<Vec<u8>> {
    #[derive(Deserialize)]
    struct Whole<'a> {
        #[serde(borrow)]
        metadata: &'a RawValue,
    }
    let whole: Whole<'_> = serde_json::from_slice(json).ok()?;
    let metadata = whole.metadata.get();
    let begin = (metadata.as_ptr() as usize).checked_sub(json.as_ptr() as usize)?;
    let place = place(metadata)?;
    let at = begin + place.at;
    let comma = |wanted| if wanted { "," } else { "" };
    let entry = format!("{}\"{REVISION}\":\"{revision}\"{}", comma(place.follows), comma(place.leads));
    let mut out = Vec::with_capacity(json.len() + entry.len());
    out.extend_from_slice(json.get(..at)?);
    out.extend_from_slice(entry.as_bytes());
    out.extend_from_slice(json.get(at..)?);
    Some(out)
}

/// Where an entry belongs.
struct Place {
    at: usize,
    /// Something stands before it.
    follows: bool,
    /// Something stands behind it.
    leads: bool,
}

/// Where the revision belongs in metadata that has none.
fn place(metadata: &str) -> Option<Place> {
    struct Entries(Vec<(bool, usize)>, usize);
    impl<'de> Visitor<'de> for Entries {
        type Value = Vec<(bool, usize)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("metadata")
        }

        /// Whether each entry stands before the revision, and where it ends.
        fn visit_map<A: MapAccess<'de>>(mut self, mut entries: A) -> Result<Self::Value, A::Error> {
            while let Some(key) = entries.next_key::<String>()? {
                let value = entries.next_value::<&RawValue>()?.get();
                if key == REVISION {
                    return Err(serde::de::Error::custom("there is one already"));
                }
                let end = value.as_ptr() as usize + value.len() - self.1;
                self.0.push((key.as_str() < REVISION, end));
            }
            Ok(self.0)
        }
    }
    let mut reader = serde_json::Deserializer::from_str(metadata);
    let entries = reader.deserialize_map(Entries(Vec::new(), metadata.as_ptr() as usize)).ok()?;
    let before = entries.iter().filter(|(before, _)| *before).count();
    // After the last that stands before it, or right behind the brace.
    let at = entries.get(..before)?.last().map_or(1, |(_, end)| *end);
    Some(Place { at, follows: before > 0, leads: before == 0 && !entries.is_empty() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_outline_has_what_selectors_name() {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "data": {"a": "b"}, "metadata": {"name": "a", "labels": {"x": "y"},
            "ownerReferences": [{"name": "o"}], "managedFields": [{"fieldsV1": {"f:spec": {}}}]},
            "spec": {"nodeName": "n", "hostNetwork": true, "containers": [{"name": "c"}], "deep": {"deeper": {"no": 1}}},
            "status": {"phase": "Running", "n": 3}, "reason": null});
        let wanted = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {"x": "y"}},
            "spec": {"nodeName": "n", "hostNetwork": true, "deep": {"deeper": {}}}, "status": {"phase": "Running", "n": 3}});
        assert_eq!(outline(pod.to_string().as_bytes()).unwrap(), wanted);
        assert!(outline(b"{\"a\":").is_err());
        assert!(outline(b"{} x").is_err());
    }

    #[test]
    fn a_revision_goes_where_a_tree_would_have_put_it() {
        let rows = [
            json!({"metadata": {}}),
            json!({"metadata": {"name": "a"}}),
            json!({"metadata": {"uid": "u"}}),
            json!({"metadata": {"annotations": {"resourceVersion": "no", "x": "\"metadata\":{}"}, "name": "a", "uid": "u"}}),
            json!({"apiVersion": "v1", "data": {"metadata": {"uid": 1}}, "metadata": {"name": "ä\n", "ownerReferences": []},
                "spec": {"metadata": {}}}),
        ];
        for object in rows {
            let mut wanted = object.clone();
            wanted["metadata"]["resourceVersion"] = "42".into();
            let made = with_revision(object.to_string().as_bytes(), 42).unwrap();
            assert_eq!(String::from_utf8(made).unwrap(), wanted.to_string());
        }
        for other in ["{}", "{\"metadata\":1}", "{\"metadata\":{\"resourceVersion\":\"1\"}}", "[]", "{"] {
            assert_eq!(with_revision(other.as_bytes(), 1), None, "{other}");
        }
    }
}
