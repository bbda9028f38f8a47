//! Conversion by a webhook: objects of one version become objects of another. Source: the API's documentation, "Versions in
//! CustomResourceDefinitions"; the checks are those of upstream's webhook converter.

use std::time::Duration;

use serde_json::{Map, Value, json};
use trine_objects::names::{label_value, qualified_name};
use trine_objects::resources::split_api_version;

use crate::registry::{Registry, text};
use crate::status::ApiError;
use crate::webhook::Endpoint;

/// How long one call may take. Upstream: the default of its clients.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The versions of ConversionReview that are spoken.
const VERSIONS: [&str; 2] = ["v1", "v1beta1"];

/// The webhook of a definition.
#[derive(Debug)]
pub struct Converter {
    endpoint: Result<Endpoint, String>,
    /// The versions of ConversionReview that it understands.
    versions: Vec<String>,
}

impl Converter {
    /// Reads `spec.conversion.webhook`.
    #[must_use]
    pub fn read(webhook: &Value) -> Self {
        let versions = webhook["conversionReviewVersions"].as_array().into_iter().flatten();
        Self {
            endpoint: Endpoint::read(&webhook["clientConfig"]),
            versions: versions.map(|v| text(v).to_owned()).collect(),
        }
    }

    /// Converts objects to a version. Those that have it already are not sent.
    ///
    /// # Errors
    /// [`ApiError::Failed`] if the webhook does not answer, or its answer is none.
    pub async fn convert(
        &self,
        registry: &Registry,
        mut objects: Vec<Value>,
        to: &str,
    ) -> Result<Vec<Value>, ApiError> {
        let others: Vec<usize> =
            (0..objects.len()).filter(|i| text(&objects[*i]["apiVersion"]) != to).collect();
        let Some(first) = others.first() else { return Ok(objects) };
        let of = {
            let (version, kind) = (text(&objects[*first]["apiVersion"]), text(&objects[*first]["kind"]));
            format!("conversion webhook for {version}, Kind={kind}")
        };
        let asked: Vec<Value> = others.iter().map(|i| objects[*i].clone()).collect();
        let answer = self.ask(registry, &asked, to).await;
        let converted = answer.map_err(|why| ApiError::Failed(format!("{of} failed: {why}")))?;
        if converted.len() != asked.len() {
            let (got, wanted) = (converted.len(), asked.len());
            return Err(ApiError::Failed(format!("{of} returned {got} objects, expected {wanted}")));
        }
        for ((place, i), object) in others.into_iter().enumerate().zip(converted) {
            let checked = checked(&objects[i], object, to);
            objects[i] = checked.map_err(|why| {
                ApiError::Failed(format!("{of} returned invalid converted object at index {place}: {why}"))
            })?;
        }
        Ok(objects)
    }

    async fn ask(&self, registry: &Registry, objects: &[Value], to: &str) -> Result<Vec<Value>, String> {
        let version = self.versions.iter().find(|v| VERSIONS.contains(&v.as_str()));
        let version = version.ok_or("no supported conversion review versions")?;
        let endpoint = self.endpoint.as_ref().map_err(Clone::clone)?;
        let uid = uuid::Uuid::new_v4().to_string();
        let review = json!({"kind": "ConversionReview", "apiVersion": format!("apiextensions.k8s.io/{version}"),
            "request": {"uid": uid, "desiredAPIVersion": to, "objects": objects}});
        let answer = endpoint.post(registry, &review, TIMEOUT).await?;
        read(&answer, version, &uid)
    }
}

/// The objects of an answer.
fn read(review: &Value, version: &str, uid: &str) -> Result<Vec<Value>, String> {
    let response = &review["response"];
    if version == "v1" {
        let (got, kind) = (text(&review["apiVersion"]), text(&review["kind"]));
        if (got, kind) != ("apiextensions.k8s.io/v1", "ConversionReview") {
            let slash = if got.contains('/') { "" } else { "/" };
            return Err(format!(
                "expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got {slash}{got}, Kind={kind}"
            ));
        }
    }
    if !response.is_object() {
        return Err("no response provided".to_owned());
    }
    let got = text(&response["uid"]);
    if version == "v1" && got != uid {
        return Err(format!("expected response.uid={uid:?}, got {got:?}"));
    }
    let (status, message) = (text(&response["result"]["status"]), text(&response["result"]["message"]));
    match (status, message) {
        ("Success", _) => Ok(response["convertedObjects"].as_array().cloned().unwrap_or_default()),
        (_, "") => Err(format!("response.result.status was '{status}', not 'Success'")),
        (_, message) => Err(message.to_owned()),
    }
}

/// A converted object with the metadata of the original: only labels and annotations may be the webhook's.
fn checked(original: &Value, mut converted: Value, to: &str) -> Result<Value, String> {
    let same = |what: &str, a: &Value, b: &Value| {
        let (a, b) = (text(a), text(b));
        if a == b { Ok(()) } else { Err(format!("must have the same {what}: {a} != {b}")) }
    };
    let got = text(&converted["apiVersion"]);
    if split_api_version(got) != split_api_version(to) {
        return Err(format!("invalid groupVersion (expected {to}, received {got})"));
    }
    let (expected, got) = (text(&original["kind"]), text(&converted["kind"]));
    if expected != got {
        return Err(format!("invalid kind (expected {expected}, received {got})"));
    }
    let (before, after) = (&original["metadata"], &converted["metadata"]);
    if converted.get("metadata").is_none() {
        return Err("missing metadata in converted object".to_owned());
    }
    if !after.is_object() {
        return Err("invalid metadata in converted object".to_owned());
    }
    same("name", &before["name"], &after["name"])?;
    same("namespace", &before["namespace"], &after["namespace"])?;
    same("UID", &before["uid"], &after["uid"])?;
    let mut metadata = before.as_object().cloned().unwrap_or_default();
    for field in ["labels", "annotations"] {
        let Some(given) = after.get(field).filter(|v| !v.is_null()) else {
            metadata.remove(field);
            continue;
        };
        let given =
            given.as_object().ok_or_else(|| format!("invalid metadata.{field} in converted object"))?;
        if before[field].as_object() != Some(given) {
            words(field, given)?;
        }
        metadata.insert(field.to_owned(), given.clone().into());
    }
    converted["metadata"] = metadata.into();
    Ok(converted)
}

/// Labels and annotations are texts under names.
fn words(field: &str, map: &Map<String, Value>) -> Result<(), String> {
    for (key, value) in map {
        let Some(value) = value.as_str() else {
            return Err(format!("metadata.{field}[{key}] must be a string in converted object"));
        };
        let wrong = |what: &str, why: Vec<String>| {
            Err(format!("metadata.{field}: Invalid value: {what:?}: {}", why.join("; ")))
        };
        if let Err(why) = qualified_name(key) {
            return wrong(key, why);
        }
        if field == "labels"
            && let Err(why) = label_value(value)
        {
            return wrong(value, why);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn original() -> Value {
        json!({"apiVersion": "x.io/v1", "kind": "A", "metadata": {"name": "a", "namespace": "d", "uid": "u",
            "resourceVersion": "7", "labels": {"k": "v"}}, "spec": {"old": 1}})
    }

    #[test]
    fn only_labels_and_annotations_of_the_metadata_are_the_webhooks() {
        let mut converted = original();
        converted["apiVersion"] = "x.io/v2".into();
        converted["metadata"]["resourceVersion"] = "forged".into();
        converted["metadata"]["labels"] = json!({"k": "w"});
        converted["spec"] = json!({"new": 1});
        let checked = checked(&original(), converted, "x.io/v2").unwrap();
        assert_eq!(checked["metadata"]["resourceVersion"], "7");
        assert_eq!(
            (&checked["metadata"]["labels"], &checked["spec"]),
            (&json!({"k": "w"}), &json!({"new": 1}))
        );
    }

    #[test]
    fn an_object_that_is_another_one_is_refused() {
        for (pointer, value, wanted) in [
            ("/apiVersion", json!("x.io/v3"), "invalid groupVersion (expected x.io/v2, received x.io/v3)"),
            ("/kind", json!("B"), "invalid kind (expected A, received B)"),
            ("/metadata/name", json!("b"), "must have the same name: a != b"),
            ("/metadata/namespace", json!("e"), "must have the same namespace: d != e"),
            ("/metadata/uid", json!("w"), "must have the same UID: u != w"),
            ("/metadata/labels", json!({"k": 1}), "metadata.labels[k] must be a string in converted object"),
            ("/metadata/labels", json!({"-": "v"}), "metadata.labels: Invalid value: \"-\""),
            ("/metadata", json!([]), "invalid metadata in converted object"),
        ] {
            let mut converted = original();
            converted["apiVersion"] = "x.io/v2".into();
            *converted.pointer_mut(pointer).unwrap() = value;
            let error = checked(&original(), converted, "x.io/v2").unwrap_err();
            assert!(error.starts_with(wanted), "{wanted}: {error}");
        }
    }

    #[test]
    fn an_answer_is_for_this_question_and_a_success() {
        let answer = |response: Value| json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response});
        let said = |review: &Value| read(review, "v1", "u").unwrap_err();
        assert_eq!(said(&answer(json!(null))), "no response provided");
        assert_eq!(said(&answer(json!({"uid": "x"}))), "expected response.uid=\"u\", got \"x\"");
        assert_eq!(said(&answer(json!({"uid": "u"}))), "response.result.status was '', not 'Success'");
        let failure = json!({"uid": "u", "result": {"status": "Failure", "message": "cannot"}});
        assert_eq!(said(&answer(failure)), "cannot");
        assert!(said(&json!({})).contains("got /, Kind="));
        let good = answer(json!({"uid": "u", "result": {"status": "Success"}, "convertedObjects": [{}]}));
        assert_eq!(read(&good, "v1", "u"), Ok(vec![json!({})]));
    }
}
