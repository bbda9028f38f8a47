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
    let response = match (form, done.json) {
        (Form::Plain(resource), Some(json)) if resource.is_served_as_stored(&json) => {
            let mut response = json_bytes(json);
            *response.status_mut() = code;
            response
        }
        _ => json_response(code, &form.value(done.object)),
    };
    warned(response, done.warnings)
}

/// The answer with warnings for the client's eyes.
pub(super) fn warned(mut response: Response, warnings: Vec<String>) -> Response {
    for warning in warnings {
        if let Ok(value) = HeaderValue::from_bytes(warning_value(&warning).as_bytes()) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
    response
}

/// A warning as a header has it: a quoted string (RFC 9110, section 5.6.4) behind a code and no agent.
fn warning_value(warning: &str) -> String {
    let mut value = "299 - \"".to_owned();
    for c in warning.chars().filter(|c| !c.is_control()) {
        if c == '"' || c == '\\' {
            value.push('\\');
        }
        value.push(c);
    }
    value.push('"');
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_in_a_warning_are_told_as_they_are() {
        assert_eq!(warning_value("unknown field \"a\\b\"\n"), r#"299 - "unknown field \"a\\b\"""#);
    }
}
