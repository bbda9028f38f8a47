//! AdmissionReviews: what a webhook is asked, and what it answers.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use crate::admission::attempt::Attempt;
use crate::admission::wanted::Wanted;
use crate::registry::text;
use crate::status::ApiError;

/// The versions that are spoken.
const VERSIONS: [&str; 2] = ["v1", "v1beta1"];

/// A question.
pub struct Question {
    version: String,
    uid: String,
    /// As it is sent.
    pub body: Value,
}

/// An answer.
#[derive(Debug, Default, PartialEq)]
pub struct Answer {
    /// Whether the request may be done.
    pub allowed: bool,
    /// A JSON patch, not empty.
    pub patch: Option<Value>,
    /// Why it may not be done.
    pub result: Value,
    /// For the client's eyes.
    pub warnings: Vec<String>,
    /// For the notes of the request.
    pub annotations: Map<String, Value>,
}

impl Question {
    /// Asks about a request, in the first version that the webhook understands and the server speaks.
    pub fn new(understood: &[String], attempt: &Attempt, wanted: &Wanted) -> Result<Self, String> {
        let version = understood.iter().find(|v| VERSIONS.contains(&v.as_str())).ok_or(
            "could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)",
        )?;
        let uid = uuid::Uuid::new_v4().to_string();
        let mut request = attempt.told(&wanted.version);
        request["uid"] = uid.as_str().into();
        request["object"] = wanted.object.clone().unwrap_or_default();
        request["oldObject"] = wanted.old.clone().unwrap_or_default();
        let api_version = format!("admission.k8s.io/{version}");
        let body = json!({"kind": "AdmissionReview", "apiVersion": api_version, "request": request});
        Ok(Self { version: version.clone(), uid, body })
    }

    /// Reads the answer.
    ///
    /// # Errors
    /// What makes it none.
    pub fn read(&self, review: &Value, mutating: bool) -> Result<Answer, String> {
        let invalid = |why: String| format!("received invalid webhook response: {why}");
        let response = &review["response"];
        if !response.is_object() {
            return Err(invalid("webhook response was absent".to_owned()));
        }
        let has_type = response["patchType"].is_string();
        let patch = text(&response["patch"]);
        if self.version == "v1" {
            let uid = text(&response["uid"]);
            if uid != self.uid {
                return Err(invalid(format!("expected response.uid={:?}, got {uid:?}", self.uid)));
            }
            let (got, kind) = (text(&review["apiVersion"]), text(&review["kind"]));
            if (got, kind) != ("admission.k8s.io/v1", "AdmissionReview") {
                let got = if got.contains('/') { got.to_owned() } else { format!("/{got}") };
                return Err(invalid(format!(
                    "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {got}, Kind={kind}"
                )));
            }
            let why = match (mutating, !patch.is_empty(), has_type) {
                (true, true, false) => Some("webhook returned response.patch but not response.patchType"),
                (true, false, true) => Some("webhook returned response.patchType but not response.patch"),
                (false, true, _) => Some("validating webhook may not return response.patch"),
                (false, _, true) => Some("validating webhook may not return response.patchType"),
                _ => None,
            };
            if let Some(why) = why {
                return Err(invalid(why.to_owned()));
            }
            if has_type && response["patchType"] != "JSONPatch" {
                return Err(format!("unsupported patch type {:?}", text(&response["patchType"])));
            }
        }
        let patch = if mutating && !patch.is_empty() { decoded(patch)? } else { Value::Null };
        let warnings = response["warnings"].as_array().into_iter().flatten();
        Ok(Answer {
            allowed: response["allowed"] == true,
            patch: Some(patch).filter(|p| p.as_array().is_some_and(|p| !p.is_empty())),
            result: response["status"].clone(),
            warnings: warnings.map(|w| text(w).to_owned()).collect(),
            annotations: response["auditAnnotations"].as_object().cloned().unwrap_or_default(),
        })
    }
}

fn decoded(patch: &str) -> Result<Value, String> {
    let undecodable =
        |e: &dyn std::fmt::Display| format!("received undecodable patch in webhook response: {e}");
    let bytes = STANDARD.decode(patch).map_err(|e| undecodable(&e))?;
    serde_json::from_slice(&bytes).map_err(|e| undecodable(&e))
}

/// The refusal of a webhook, with what it says itself.
pub fn refusal(name: &str, mut status: Value) -> ApiError {
    if !status.is_object() {
        status = json!({});
    }
    if status["code"].as_u64().unwrap_or_default() < 400 {
        status["code"] = 400.into();
    }
    if matches!(text(&status["status"]), "" | "Success") {
        status["status"] = "Failure".into();
    }
    let by = format!("admission webhook {name:?} denied the request");
    let message = match (text(&status["message"]), text(&status["reason"])) {
        ("", "") => format!("{by} without explanation"),
        ("", reason) => format!("{by}: {reason}"),
        (message, _) => format!("{by}: {message}"),
    };
    status["message"] = message.into();
    ApiError::Refused { status: Box::new(status) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(version: &str) -> Question {
        Question { version: version.to_owned(), uid: "u".to_owned(), body: Value::Null }
    }

    fn review(response: Value) -> Value {
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
    }

    #[test]
    fn an_answer_is_checked_before_it_counts() {
        let v1 = question("v1");
        let patch = STANDARD.encode(r#"[{"op":"add","path":"/a","value":1}]"#);
        for (mutating, answer, wanted) in [
            (true, json!({}), "webhook response was absent"),
            (true, review(json!({"uid": "x"})), "expected response.uid=\"u\", got \"x\""),
            (
                true,
                json!({"response": {"uid": "u"}}),
                "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind=",
            ),
            (true, review(json!({"uid": "u", "patch": patch})), "response.patch but not response.patchType"),
            (
                true,
                review(json!({"uid": "u", "patchType": "JSONPatch"})),
                "response.patchType but not response.patch",
            ),
            (
                false,
                review(json!({"uid": "u", "patch": patch})),
                "validating webhook may not return response.patch",
            ),
            (
                true,
                review(json!({"uid": "u", "patch": "!", "patchType": "JSONPatch"})),
                "received undecodable patch",
            ),
            (
                true,
                review(json!({"uid": "u", "patch": patch, "patchType": "Other"})),
                "unsupported patch type \"Other\"",
            ),
        ] {
            let error = v1.read(&answer, mutating).unwrap_err();
            assert!(error.contains(wanted), "{error}");
        }
        let good = review(
            json!({"uid": "u", "allowed": true, "patch": patch, "patchType": "JSONPatch", "warnings": ["w"]}),
        );
        let read = v1.read(&good, true).unwrap();
        assert!(read.allowed && read.warnings == ["w"]);
        assert_eq!(read.patch, Some(json!([{"op": "add", "path": "/a", "value": 1}])));
        // The older version looks at less.
        let loose = json!({"response": {"allowed": true, "patch": patch}});
        assert!(question("v1beta1").read(&loose, true).unwrap().patch.is_some());
    }

    #[test]
    fn a_refusal_keeps_the_words_and_is_never_a_success() {
        let said = |status: Value| {
            let error = refusal("w", status);
            (error.code().0.as_u16(), error.to_string())
        };
        let by = "admission webhook \"w\" denied the request";
        assert_eq!(said(Value::Null), (400, format!("{by} without explanation")));
        assert_eq!(said(json!({"code": 200, "message": "no"})), (400, format!("{by}: no")));
        assert_eq!(said(json!({"code": 403, "reason": "Forbidden"})), (403, format!("{by}: Forbidden")));
        let status = refusal("w", json!({"message": "no", "reason": "Policy"})).status();
        assert_eq!((&status["kind"], &status["reason"]), (&json!("Status"), &json!("Policy")));
        assert_eq!(status["status"], "Failure");
    }
}
