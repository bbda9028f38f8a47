//! What a client is told when something is refused: a `Status` with upstream's reasons, codes and words.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::{Value, json};
use trine_objects::resources::Resource;

use crate::kinds::Invalid;

/// Largest object that is stored, bytes; about what the store takes. Upstream: etcd's limit of a request, 1.5 MiB.
const MAX_VALUE: usize = 4 << 20;

/// Why a request was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    /// No such path or resource type.
    #[error("the server could not find the requested resource")]
    NoResource,
    /// No such object.
    #[error("{resource} {name:?} not found")]
    NotFound {
        /// `pods`, `storageclasses.storage.k8s.io`.
        resource: String,
        /// The object's name.
        name: String,
    },
    /// An object of that name is there.
    #[error("{resource} {name:?} already exists")]
    AlreadyExists {
        /// `pods`.
        resource: String,
        /// The object's name.
        name: String,
    },
    /// An address or port was given away by another server at the same moment; another may be free.
    #[error("{0} is already allocated")]
    Claimed(String),
    /// The object changed meanwhile, or a precondition does not hold.
    #[error("Operation cannot be fulfilled on {resource} {name:?}: {why}")]
    Conflict {
        /// `pods`.
        resource: String,
        /// The object's name.
        name: String,
        /// What does not hold.
        why: String,
    },
    /// Others own fields that an apply would change.
    #[error("{message}")]
    ApplyConflict {
        /// All of them.
        message: String,
        /// Each: what is to be said of it, and the field.
        causes: Vec<(String, String)>,
    },
    /// The object is wrong.
    #[error("{} {name:?} is invalid: {causes}", qualified(kind, group))]
    Invalid {
        /// `Pod`.
        kind: String,
        /// Group of the kind.
        group: String,
        /// The object's name.
        name: String,
        /// Field by field.
        causes: Invalid,
    },
    /// The request itself cannot be read.
    #[error("{0}")]
    BadRequest(String),
    /// Well-formed, but cannot be done (a patch that does not fit).
    #[error("{0}")]
    Unprocessable(String),
    /// The user is not known.
    #[error("Unauthorized")]
    Unauthorized,
    /// The user is known, and may not.
    #[error("{0}")]
    Forbidden(String),
    /// The user is known, and may not do this.
    #[error("{}", forbidden(resource, name, why))]
    Denied {
        /// `pods`, `deployments.apps`; empty for what is no object.
        resource: String,
        /// The object's name, perhaps empty.
        name: String,
        /// Who may not do what, and perhaps why.
        why: String,
    },
    /// The verb is not served here.
    #[error("the server does not allow this method on the requested resource")]
    MethodNotAllowed,
    /// Not now.
    #[error("{why}")]
    TooManyRequests {
        /// Why.
        why: String,
        /// When to ask again; 0 says nothing.
        retry_seconds: u32,
        /// Reasons and messages.
        causes: Vec<(String, String)>,
    },
    /// The body is larger than this many bytes.
    #[error("Request entity too large: limit is {0}")]
    TooLarge(usize),
    /// The request asks for too much at once.
    #[error("{0}")]
    TooMuch(String),
    /// The namespace is being deleted.
    #[error(
        "{resource} {name:?} is forbidden: unable to create new content in namespace {namespace} because it is being \
         terminated"
    )]
    Terminating {
        /// `pods`.
        resource: String,
        /// The object's name.
        name: String,
        /// The namespace.
        namespace: String,
    },
    /// The body's content type is not read here.
    #[error("{0}")]
    UnsupportedMediaType(String),
    /// The client takes none of these media types.
    #[error("only the following media types are accepted: {0}")]
    NotAcceptable(String),
    /// The revision asked for is forgotten.
    #[error("{message}")]
    Expired {
        /// Which, in upstream's words.
        message: String,
        /// Where a list can go on, though not as of that revision.
        next: Option<String>,
    },
    /// The revision asked for has not been yet.
    #[error("Timeout: Too large resource version: {asked}, current: {current}")]
    TooLargeRevision {
        /// The revision asked for.
        asked: u64,
        /// The newest.
        current: u64,
    },
    /// The request was not done in its time.
    #[error("Timeout: {0}")]
    Timeout(String),
    /// Something that is needed does not answer.
    #[error("{0}")]
    Unavailable(String),
    /// Somebody else refuses, in words of his own: the `Status` of a webhook or a policy.
    #[error("{}", status["message"].as_str().unwrap_or_default())]
    Refused {
        /// With message, reason and code.
        status: Box<Value>,
    },
    /// It cannot be done, and upstream has no reason for it.
    #[error("{0}")]
    Failed(String),
    /// Trine's own fault.
    #[error("Internal error occurred: {0}")]
    Internal(String),
}

impl ApiError {
    /// No object `name`.
    #[must_use]
    pub fn not_found(resource: &Resource, name: &str) -> Self {
        Self::NotFound { resource: resource.qualified(), name: name.to_owned() }
    }

    /// A revision is forgotten.
    #[must_use]
    pub fn expired(message: impl Into<String>) -> Self {
        Self::Expired { message: message.into(), next: None }
    }

    /// The object changed between reading and writing it.
    #[must_use]
    pub fn modified(resource: &Resource, name: &str) -> Self {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::Conflict { resource: resource.qualified(), name: name.to_owned(), why: why.to_owned() }
    }

    /// The HTTP code and the `reason`.
    #[must_use]
    pub fn code(&self) -> (StatusCode, &'static str) {
        match self {
            Self::NoResource | Self::NotFound { .. } => (StatusCode::NOT_FOUND, "NotFound"),
            Self::AlreadyExists { .. } => (StatusCode::CONFLICT, "AlreadyExists"),
            Self::Conflict { .. } | Self::ApplyConflict { .. } | Self::Claimed(_) => {
                (StatusCode::CONFLICT, "Conflict")
            }
            Self::Invalid { .. } | Self::Unprocessable(_) => (StatusCode::UNPROCESSABLE_ENTITY, "Invalid"),
            Self::BadRequest(_) => (StatusCode::BAD_REQUEST, "BadRequest"),
            Self::Unauthorized => (StatusCode::UNAUTHORIZED, "Unauthorized"),
            Self::Forbidden(_) | Self::Denied { .. } | Self::Terminating { .. } => {
                (StatusCode::FORBIDDEN, "Forbidden")
            }
            Self::Failed(_) => (StatusCode::INTERNAL_SERVER_ERROR, ""),
            Self::TooLarge(_) | Self::TooMuch(_) => (StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge"),
            Self::MethodNotAllowed => (StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed"),
            Self::UnsupportedMediaType(_) => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType"),
            Self::NotAcceptable(_) => (StatusCode::NOT_ACCEPTABLE, "NotAcceptable"),
            Self::Expired { .. } => (StatusCode::GONE, "Expired"),
            Self::TooManyRequests { .. } => (StatusCode::TOO_MANY_REQUESTS, "TooManyRequests"),
            Self::TooLargeRevision { .. } | Self::Timeout(_) => (StatusCode::GATEWAY_TIMEOUT, "Timeout"),
            Self::Unavailable(_) => (StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable"),
            Self::Internal(_) => (StatusCode::INTERNAL_SERVER_ERROR, "InternalError"),
            Self::Refused { status } => {
                let code = status["code"].as_u64().and_then(|c| u16::try_from(c).ok());
                let code = code.and_then(|c| StatusCode::from_u16(c).ok());
                (code.unwrap_or(StatusCode::BAD_REQUEST), "")
            }
        }
    }

    /// The `Status` object.
    #[must_use]
    pub fn status(&self) -> Value {
        if let Self::Refused { status } = self {
            let mut status = (**status).clone();
            for (key, value) in [("kind", "Status"), ("apiVersion", "v1")] {
                status[key] = value.into();
            }
            status["metadata"] = json!({});
            return status;
        }
        let (code, reason) = self.code();
        let mut status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.to_string(), "reason": reason, "code": code.as_u16()});
        match self {
            Self::NotFound { resource, name }
            | Self::Denied { resource, name, .. }
            | Self::AlreadyExists { resource, name }
            | Self::Conflict { resource, name, .. } => {
                let (kind, group) = resource.split_once('.').unwrap_or((resource, ""));
                status["details"] = json!({});
                for (key, value) in [("name", name.as_str()), ("group", group), ("kind", kind)] {
                    if !value.is_empty() || !matches!(self, Self::Denied { .. }) {
                        status["details"][key] = value.into();
                    }
                }
            }
            Self::Invalid { kind, group, name, causes } => {
                let causes: Vec<Value> = causes
                    .0
                    .iter()
                    .map(|c| json!({"reason": c.kind.reason(), "message": c.message, "field": c.field}))
                    .collect();
                status["details"] = json!({"name": name, "group": group, "kind": kind, "causes": causes});
            }
            Self::ApplyConflict { causes, .. } => {
                let causes: Vec<Value> = causes
                    .iter()
                    .map(|(message, field)| json!({"reason": "FieldManagerConflict", "message": message, "field": field}))
                    .collect();
                status["details"] = json!({"causes": causes});
            }
            Self::Terminating { resource, name, namespace } => {
                let (kind, group) = resource.split_once('.').unwrap_or((resource, ""));
                let message = format!("namespace {namespace} is being terminated");
                status["details"] = json!({"name": name, "group": group, "kind": kind, "causes": [
                    {"reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace"}]});
            }
            Self::Expired { next: Some(next), .. } => status["metadata"]["continue"] = next.as_str().into(),
            Self::TooManyRequests { retry_seconds, causes, .. } => {
                let causes: Vec<Value> = causes
                    .iter()
                    .map(|(reason, message)| json!({"reason": reason, "message": message}))
                    .collect();
                status["details"] = json!({"causes": causes});
                if *retry_seconds > 0 {
                    status["details"]["retryAfterSeconds"] = (*retry_seconds).into();
                }
            }
            Self::TooLargeRevision { .. } => {
                status["details"] = json!({"retryAfterSeconds": 1, "causes": [
                    {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]});
            }
            _ => {}
        }
        status
    }
}

/// `Pod`, `StorageClass.storage.k8s.io`.
fn qualified(kind: &str, group: &str) -> String {
    if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") }
}

fn forbidden(resource: &str, name: &str, why: &str) -> String {
    match (resource, name) {
        ("", _) => format!("forbidden: {why}"),
        (resource, "") => format!("{resource} is forbidden: {why}"),
        (resource, name) => format!("{resource} {name:?} is forbidden: {why}"),
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let (code, _) = self.code();
        if code.is_server_error() {
            tracing::warn!(error = %self, "request failed");
        }
        let status = self.status();
        let mut response = json_response(code, &status);
        if let Some(seconds) = status["details"]["retryAfterSeconds"].as_u64() {
            response.headers_mut().insert(http::header::RETRY_AFTER, seconds.into());
        }
        response
    }
}

/// A JSON answer.
#[must_use]
pub fn json_response(code: StatusCode, value: &Value) -> Response {
    // A value can always be written: its keys are text.
    let mut response = Response::new(Body::from(serde_json::to_vec(value).unwrap_or_default()));
    *response.status_mut() = code;
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    response
}

impl From<trine_store::StoreError> for ApiError {
    fn from(error: trine_store::StoreError) -> Self {
        match error {
            trine_store::StoreError::TooLarge { .. } => Self::TooLarge(MAX_VALUE),
            other => Self::Internal(other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_read_as_clients_know_them() {
        let missing = ApiError::NotFound { resource: "pods".to_owned(), name: "x".to_owned() }.status();
        assert_eq!(missing["message"], "pods \"x\" not found");
        assert_eq!(missing["details"], json!({"name": "x", "group": "", "kind": "pods"}));
        let class =
            ApiError::NotFound { resource: "storageclasses.storage.k8s.io".to_owned(), name: "x".to_owned() };
        assert_eq!(class.to_string(), "storageclasses.storage.k8s.io \"x\" not found");
        assert_eq!(class.status()["details"]["group"], "storage.k8s.io");
        let conflict =
            ApiError::modified(trine_objects::resources::find("", "v1", "pods").unwrap(), "x").to_string();
        assert!(
            conflict.starts_with("Operation cannot be fulfilled on pods \"x\": the object has been modified")
        );
    }
}
