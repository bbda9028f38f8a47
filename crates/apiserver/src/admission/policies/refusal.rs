//! How a policy refuses.

use http::StatusCode;
use serde_json::{Value, json};

use crate::admission::attempt::Attempt;
use crate::registry::text;
use crate::status::ApiError;

/// The code that goes with the reason of a validation. Source: `reasonToCode`.
pub(super) fn code(reason: &str) -> StatusCode {
    match reason {
        "Forbidden" => StatusCode::FORBIDDEN,
        "Unauthorized" => StatusCode::UNAUTHORIZED,
        "RequestEntityTooLarge" => StatusCode::PAYLOAD_TOO_LARGE,
        _ => StatusCode::UNPROCESSABLE_ENTITY,
    }
}

/// The refusal of a request: `messages` are all that was found, `shown` what is said.
pub(super) fn refused(
    attempt: &Attempt,
    object: Option<&Value>,
    (reason, code): (&str, StatusCode),
    shown: Option<&str>,
    messages: &[String],
) -> ApiError {
    let named = object.map(|o| &o["metadata"]).map_or("", |m| match text(&m["name"]) {
        "" => text(&m["generateName"]),
        name => name,
    });
    let name = if named.is_empty() { attempt.name.clone() } else { named.to_owned() };
    let why = messages.first().cloned().unwrap_or_default();
    let mut status = ApiError::Denied { resource: attempt.resource.qualified(), name, why }.status();
    if let Some(shown) = shown {
        status["message"] = shown.into();
    }
    status["reason"] = reason.into();
    status["code"] = code.as_u16().into();
    let causes: Vec<Value> = messages.iter().map(|m| json!({"message": m})).collect();
    status["details"]["causes"] = causes.into();
    ApiError::Refused { status: Box::new(status) }
}
