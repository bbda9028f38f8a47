//! What may I do?

use serde_json::{Value, json};

use crate::access::Authorizer;
use crate::registry::text;
use crate::status::ApiError;
use crate::user::User;

/// The status of a SelfSubjectRulesReview.
///
/// # Errors
/// [`ApiError::BadRequest`] without a namespace.
pub fn own(authorizer: &Authorizer, user: &User, review: &Value) -> Result<Value, ApiError> {
    let namespace = text(&review["spec"]["namespace"]);
    if namespace.is_empty() {
        return Err(ApiError::BadRequest("no namespace on request".to_owned()));
    }
    let (mut objects, mut paths) = (Vec::new(), Vec::new());
    for rule in authorizer.rules(user, namespace) {
        if !rule.paths.is_empty() {
            paths.push(rule.json());
        }
        if !rule.resources.is_empty() {
            objects.push(rule.json());
        }
    }
    let mut status = json!({"resourceRules": objects, "nonResourceRules": paths, "incomplete": false});
    if user.node().is_some() {
        status["incomplete"] = true.into();
        status["evaluationError"] = "node authorizer does not support user rule resolution".into();
    }
    Ok(status)
}
