//! Label and field selectors, as they stand in a query.

use trine_objects::selector::field::FieldSelector;
use trine_objects::selector::label::LabelSelector;

/// Reads text as both. A label selector that was written down selects what it selected before.
#[must_use]
pub fn selector(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let labels = LabelSelector::parse(text);
    if let Ok(selector) = &labels {
        let shown = selector.to_string();
        let again = LabelSelector::parse(&shown).expect("what was written can be read");
        assert_eq!(again.to_string(), shown);
        for value in [None, Some(""), Some("a"), Some("7")] {
            assert_eq!(selector.matches_with(|_| value), again.matches_with(|_| value), "{shown}");
        }
    }
    let fields = FieldSelector::parse(text);
    if let Ok(selector) = &fields {
        let values: Vec<(String, String)> =
            selector.terms.iter().map(|t| (t.field.clone(), t.value.clone())).collect();
        let _ = selector.matches(&values);
        assert_eq!(selector.is_empty(), selector.terms.is_empty());
        for term in &selector.terms {
            if term.equal {
                assert!(selector.required(&term.field).is_some());
            }
        }
    }
    labels.is_ok() || fields.is_ok()
}
