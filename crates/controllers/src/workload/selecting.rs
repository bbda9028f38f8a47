//! Selectors of specs, ready to be asked.

use std::collections::BTreeMap;

use trine_objects::selector::label::{LabelSelector, Requirement, Test};
use trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::{self as meta, ObjectMeta};

/// A spec's selector; none if it cannot be understood, or is empty: what selects everything by mistake selects nothing.
#[must_use]
pub fn selector(selector: &meta::LabelSelector) -> Option<LabelSelector> {
    let mut requirements = of_labels(selector.match_labels.as_ref()).requirements;
    for expression in selector.match_expressions.iter().flatten() {
        let values = || expression.values.iter().flatten().cloned().collect();
        let test = match expression.operator.as_str() {
            "In" => Test::In(values()),
            "NotIn" => Test::NotIn(values()),
            "Exists" => Test::Exists,
            "DoesNotExist" => Test::DoesNotExist,
            _ => return None,
        };
        requirements.push(Requirement { key: expression.key.clone(), test });
    }
    (!requirements.is_empty()).then_some(LabelSelector { requirements })
}

/// A selector of exactly these labels.
#[must_use]
pub fn of_labels(labels: Option<&BTreeMap<String, String>>) -> LabelSelector {
    let one = |(key, value): (&String, &String)| Requirement {
        key: key.clone(),
        test: Test::In([value.clone()].into()),
    };
    LabelSelector { requirements: labels.into_iter().flatten().map(one).collect() }
}

/// Whether the labels of an object are selected.
#[must_use]
pub fn selects(selector: &LabelSelector, object: &ObjectMeta) -> bool {
    let labels = object.labels.as_ref();
    selector.matches_with(|key| labels.and_then(|labels| labels.get(key)).map(String::as_str))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn labels_and_expressions_are_anded_and_what_is_empty_or_unknown_selects_nothing() {
        let rows = [
            (json!({"matchLabels": {"a": "1"}}), Some(true)),
            (json!({"matchLabels": {"a": "2"}}), Some(false)),
            (
                json!({"matchLabels": {"a": "1"}, "matchExpressions": [{"key": "b", "operator": "DoesNotExist"}]}),
                Some(true),
            ),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1", "2"]}]}),
                Some(false),
            ),
            (json!({"matchExpressions": [{"key": "a", "operator": "Near", "values": ["1"]}]}), None),
            (json!({}), None),
        ];
        let object = ObjectMeta { labels: Some([("a".into(), "1".into())].into()), ..Default::default() };
        for (spec, expected) in rows {
            let found = selector(&serde_json::from_value(spec.clone()).unwrap());
            assert_eq!(found.map(|s| selects(&s, &object)), expected, "{spec}");
        }
    }
}
