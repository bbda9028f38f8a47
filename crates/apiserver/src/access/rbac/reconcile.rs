//! Puts the default roles and bindings into a cluster, and back: what a user added stays, what is missing returns, unless the
//! object says that it is not to be touched.

use serde_json::{Value, json};
use trine_store::Expect;

use super::defaults::{AUTO_UPDATE, GROUP, all};
use super::rule::{Rule, missing};
use crate::registry::{Registry, text};
use crate::status::ApiError;
use crate::verbs::create;
use crate::verbs::options::WriteOptions;
use crate::verbs::update::parse;

/// Brings all of them up to date.
///
/// # Errors
/// What the store says.
pub async fn reconcile(registry: &Registry) -> Result<(), ApiError> {
    // The store commits in groups: what waits together is written together.
    let waiting =
        all().into_iter().map(|(plural, namespace, wanted)| one(registry, plural, namespace, wanted));
    futures::future::try_join_all(waiting).await.map(drop)
}

async fn one(registry: &Registry, plural: &str, namespace: &str, wanted: Value) -> Result<(), ApiError> {
    let resource = &registry.resource(GROUP, "v1", plural)?;
    let name = text(&wanted["metadata"]["name"]).to_owned();
    let Ok(current) = registry.get(resource, namespace, &name) else {
        return match create::create(registry, resource, namespace, wanted, &WriteOptions::of_server()).await {
            Ok(_) | Err(ApiError::AlreadyExists { .. }) => Ok(()),
            Err(error) => Err(error),
        };
    };
    let have = parse(current.json())?;
    let changed = if plural.ends_with("bindings") { binding(&have, &wanted) } else { role(&have, &wanted) };
    match changed {
        Some(mut changed) => {
            // A binding to another role is another binding: it is made anew.
            let expect = Expect::At(current.revision);
            if changed["roleRef"] != have["roleRef"] {
                changed["metadata"]["uid"] = uuid::Uuid::new_v4().to_string().into();
            }
            match registry.put(resource, changed, expect).await {
                Ok(_) | Err(ApiError::Conflict { .. }) => Ok(()),
                Err(error) => Err(error),
            }
        }
        None => Ok(()),
    }
}

fn protected(have: &Value) -> bool {
    have["metadata"]["annotations"][AUTO_UPDATE] == "false"
}

/// Labels and annotations that are wanted and not there.
fn marks(have: &Value, wanted: &Value, result: &mut Value) {
    for field in ["labels", "annotations"] {
        for (key, value) in wanted["metadata"][field].as_object().into_iter().flatten() {
            if have["metadata"][field][key].is_null() {
                if !result["metadata"][field].is_object() {
                    result["metadata"][field] = json!({});
                }
                result["metadata"][field][key] = value.clone();
            }
        }
    }
}

/// The role as it should be; `None` if it is.
fn role(have: &Value, wanted: &Value) -> Option<Value> {
    if protected(have) {
        return None;
    }
    let mut result = have.clone();
    marks(have, wanted, &mut result);
    if wanted["aggregationRule"].is_null() {
        let lacks = missing(&Rule::of_role(have), &Rule::of_role(wanted));
        if !lacks.is_empty() {
            let mut rules = have["rules"].as_array().cloned().unwrap_or_default();
            rules.extend(lacks.iter().map(Rule::json));
            result["rules"] = rules.into();
        }
    } else if have["aggregationRule"].is_null() {
        result["aggregationRule"] = wanted["aggregationRule"].clone();
    }
    (result != *have).then_some(result)
}

/// The binding as it should be; `None` if it is.
fn binding(have: &Value, wanted: &Value) -> Option<Value> {
    if protected(have) {
        return None;
    }
    let mut result = have.clone();
    marks(have, wanted, &mut result);
    result["roleRef"] = wanted["roleRef"].clone();
    let mut subjects = have["subjects"].as_array().cloned().unwrap_or_default();
    for subject in wanted["subjects"].as_array().into_iter().flatten() {
        if !subjects.contains(subject) {
            subjects.push(subject.clone());
        }
    }
    if !subjects.is_empty() {
        result["subjects"] = subjects.into();
    }
    (result != *have).then_some(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted() -> Value {
        json!({"metadata": {"name": "r", "labels": {"a": "1"}, "annotations": {AUTO_UPDATE: "true"}},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]})
    }

    #[test]
    fn what_is_missing_returns_and_what_was_added_stays() {
        assert_eq!(role(&wanted(), &wanted()), None);
        let mut have = wanted();
        have["rules"] = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
            {"apiGroups": ["x"], "resources": ["y"], "verbs": ["z"]}]);
        let result = role(&have, &wanted()).unwrap();
        assert_eq!(result["rules"].as_array().unwrap().len(), 3);
        assert_eq!(result["rules"][2]["verbs"], json!(["list"]));
        have["metadata"]["annotations"][AUTO_UPDATE] = "false".into();
        assert_eq!(role(&have, &wanted()), None, "it is not to be touched");
    }

    #[test]
    fn subjects_are_added_to_a_binding() {
        let wanted = json!({"metadata": {}, "roleRef": {"name": "r"}, "subjects": [{"name": "a"}]});
        let have = json!({"metadata": {}, "roleRef": {"name": "r"}, "subjects": [{"name": "b"}]});
        let result = binding(&have, &wanted).unwrap();
        assert_eq!(result["subjects"], json!([{"name": "b"}, {"name": "a"}]));
        assert_eq!(binding(&result, &wanted), None);
    }
}
