//! Whose token is this?

use serde_json::{Value, json};

use crate::access::gate::Gate;
use crate::access::token::accounts::user_info;
use crate::kinds::{Cause, Invalid};
use crate::registry::text;
use crate::status::ApiError;

/// The status of a TokenReview.
///
/// # Errors
/// [`ApiError::Invalid`] if there is no token in it.
pub fn whose(gate: &Gate, review: &mut Value, now: i64) -> Result<Value, ApiError> {
    let token = text(&review["spec"]["token"]);
    if token.is_empty() {
        return Err(ApiError::Invalid {
            kind: "TokenReview".to_owned(),
            group: "authentication.k8s.io".to_owned(),
            name: String::new(),
            causes: Invalid::from(Cause::required("spec.token", "")),
        });
    }
    let wanted = review["spec"]["audiences"].as_array().into_iter().flatten();
    let wanted: Vec<String> = wanted.map(|a| text(a).to_owned()).collect();
    Ok(match gate.bearer(token, &wanted, now) {
        Ok(believed) => json!({"authenticated": true, "user": user_info(&believed.user),
            "audiences": believed.audiences}),
        Err(why) => json!({"user": {}, "error": format!("[invalid bearer token, {why}]")}),
    })
}
