//! Keys that a YAML document has twice in one mapping, by line. The configurations of server-side apply are read strictly in this
//! form upstream (`sigs.k8s.io/yaml`), whose words a client's test may look for.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

/// What upstream's strict reader says of a document that has keys twice.
///
/// # Errors
/// If it is not YAML.
pub fn complaint(text: &str) -> Result<String, serde_saphyr::Error> {
    let found = RefCell::default();
    let options = serde_saphyr::options! {
        duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::PassThrough,
    };
    serde_saphyr::with_deserializer_from_str_with_options(text, options, |d| Node(&found).deserialize(d))?;
    let lines: Vec<String> = found
        .into_inner()
        .iter()
        .map(|(line, key)| format!("\n  line {line}: key {key:?} already set in map"))
        .collect();
    Ok(format!("error converting YAML to JSON: yaml: unmarshal errors:{}", lines.concat()))
}

/// The keys that came again, with the line of each.
type Found = RefCell<Vec<(u64, String)>>;

struct Node<'a>(&'a Found);

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("YAML")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = HashSet::new();
        while let Some(key) = map.next_key::<Spanned<String>>()? {
            if !seen.insert(key.value.clone()) {
                self.0.borrow_mut().push((key.referenced.line(), key.value));
            }
            map.next_value_seed(Node(self.0))?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element_seed(Node(self.0))?.is_some() {}
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_bytes<E>(self, _: &[u8]) -> Result<(), E> {
        Ok(())
    }

    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_that_comes_again_is_told_with_its_line() {
        let said = |text| complaint(text).unwrap();
        let start = "error converting YAML to JSON: yaml: unmarshal errors:";
        assert_eq!(
            said("\nspec:\n  foo: a\n  foo: b\n  l:\n  - {x: 1, x: ~}\nspec: 2\n"),
            format!(
                "{start}\n  line 4: key \"foo\" already set in map\n  line 6: key \"x\" already set in map\n  \
                 line 7: key \"spec\" already set in map"
            )
        );
        assert_eq!(
            said(r#"{"a": true, "a": 1.5}"#),
            format!("{start}\n  line 1: key \"a\" already set in map")
        );
        assert!(complaint("a: [").is_err());
    }
}
