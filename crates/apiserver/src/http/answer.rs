//! Answers, as the client gets them.

use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};

use super::form::Form;
use crate::status::json_response;
use crate::verbs::Written;

/// JSON that is written already.
pub(super) fn json_bytes(bytes: impl Into<Body>) -> Response {
    let mut response = Response::new(bytes.into());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// What was written, with its warnings.
pub(super) fn written(code: StatusCode, form: &Form, done: Written) -> Response {
    warned(json_response(code, &form.value(done.object)), done.warnings)
}

/// The answer with warnings for the client's eyes.
pub(super) fn warned(mut response: Response, warnings: Vec<String>) -> Response {
    for warning in warnings {
        let text: String =
            warning.chars().map(|c| if c == '"' || c == '\\' || c.is_control() { '\'' } else { c }).collect();
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{text}\"")) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
    response
}
