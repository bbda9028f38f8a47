//! One request's notes.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use axum::body::{Body, Bytes};
use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue, Request, header};
use http_body_util::{BodyExt, Limited};
use serde_json::{Value, json};
use trine_objects::time;

use super::Auditor;
use super::annotations::Added;
use super::policy::{Decided, Level, Stage};
use crate::access::attributes::{Attributes, Subject};
use crate::access::token::accounts::user_info;
use crate::status::ApiError;
use crate::user::User;

/// The id of a request, which a client may give.
const ID: HeaderName = HeaderName::from_static("audit-id");
/// The longest that a client may give.
const LONGEST_ID: usize = 64;
/// The largest body that is noted, bytes: what the server takes.
const LARGEST: usize = 3 * 1024 * 1024;
/// Subresources whose answer is a stream.
const STREAMS: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];

/// A request that is being noted.
pub struct Noted {
    decided: Decided,
    id: String,
    event: Value,
    streams: bool,
}

fn now() -> String {
    time::format_micro(trine_clock::now().as_microsecond())
}

/// The request's id: the client's, or a new one.
fn id(headers: &HeaderMap) -> String {
    let given =
        headers.get(&ID).and_then(|v| v.to_str().ok()).filter(|v| !v.is_empty() && v.len() <= LONGEST_ID);
    given.map_or_else(|| uuid::Uuid::new_v4().to_string(), str::to_owned)
}

impl Auditor {
    /// Begins the notes of a request. `user` asks; `behind` is who asks as somebody else.
    ///
    /// # Errors
    /// [`ApiError::TooLarge`] or [`ApiError::BadRequest`] for a body that cannot be read.
    pub async fn begin(
        &self,
        request: &mut Request<Body>,
        wanted: &Attributes,
        user: Option<&User>,
        behind: Option<&User>,
    ) -> Result<Option<Noted>, ApiError> {
        let decided = self.policy.decide(user, wanted);
        if decided.level == Level::None {
            return Ok(None);
        }
        let (id, received) = (id(request.headers()), now());
        let mut event = json!({"kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": decided.level.name(),
            "auditID": id, "requestURI": request.uri().to_string(), "verb": wanted.verb,
            "requestReceivedTimestamp": received});
        if let Some(agent) = request.headers().get(header::USER_AGENT).and_then(|v| v.to_str().ok()) {
            event["userAgent"] = agent.into();
        }
        if let Some(peer) = request.extensions().get::<SocketAddr>() {
            event["sourceIPs"] = json!([peer.ip().to_string()]);
        }
        match (user, behind) {
            (Some(user), Some(behind)) => {
                event["user"] = user_info(behind);
                event["impersonatedUser"] = user_info(user);
            }
            (Some(user), None) => event["user"] = user_info(user),
            (None, _) => event["user"] = json!({}),
        }
        let mut streams = wanted.verb == "watch";
        if let Subject::Resource(r) = &wanted.subject {
            streams |= STREAMS.contains(&r.subresource.as_str());
            let fields = [
                ("resource", &r.resource),
                ("namespace", &r.namespace),
                ("name", &r.name),
                ("apiGroup", &r.group),
                ("apiVersion", &r.version),
                ("subresource", &r.subresource),
            ];
            event["objectRef"] = json!({});
            for (key, value) in fields.into_iter().filter(|(_, v)| !v.is_empty()) {
                event["objectRef"][key] = value.as_str().into();
            }
            if decided.level >= Level::Request && !wanted.is_read() && !streams {
                let body = take_body(request).await?;
                let media = request.headers().get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok());
                if let Ok((object, _)) = crate::http::document::document(media.unwrap_or_default(), &body) {
                    event["requestObject"] = trimmed(object, &decided);
                }
            }
        }
        let noted = Noted { decided, id, event, streams };
        self.note(&noted, Stage::RequestReceived, &received);
        Ok(Some(noted))
    }

    fn note(&self, noted: &Noted, stage: Stage, at: &str) {
        if noted.decided.omit.contains(&stage) {
            return;
        }
        let mut event = noted.event.clone();
        event["stage"] = stage.name().into();
        event["stageTimestamp"] = at.into();
        self.sink.note(event);
    }

    /// Ends the notes with the answer and what was added on the way, and puts the request's id into that.
    pub async fn end(
        &self,
        mut noted: Noted,
        allowed: Result<&str, &str>,
        added: BTreeMap<String, Added>,
        response: Response,
    ) -> Response {
        let (decision, reason) = match allowed {
            Ok(reason) => ("allow", reason),
            Err(reason) => ("forbid", reason),
        };
        noted.event["annotations"] =
            json!({"authorization.k8s.io/decision": decision, "authorization.k8s.io/reason": reason});
        for (key, Added { value, of_body }) in added {
            if !of_body || noted.decided.level >= Level::Request {
                noted.event["annotations"][key] = value.into();
            }
        }
        let code = response.status();
        let mut status = json!({"metadata": {}, "code": code.as_u16()});
        let whole = !noted.streams && (code.is_client_error() || code.is_server_error());
        let mut response = response;
        if whole || !noted.streams && noted.decided.level == Level::RequestResponse {
            let (parts, body) = response.into_parts();
            // The answers that are no streams are in memory already.
            let bytes = body.collect().await.map(|b| b.to_bytes()).unwrap_or_default();
            if let Ok(object) = serde_json::from_slice::<Value>(&bytes) {
                if whole {
                    for key in ["status", "reason", "message"].into_iter().filter(|k| object[*k].is_string())
                    {
                        status[key] = object[key].clone();
                    }
                }
                if noted.decided.level == Level::RequestResponse {
                    noted.event["responseObject"] = trimmed(object, &noted.decided);
                }
            }
            response = Response::from_parts(parts, Body::from(bytes));
        }
        noted.event["responseStatus"] = status;
        let stage = if noted.streams { Stage::ResponseStarted } else { Stage::ResponseComplete };
        self.note(&noted, stage, &now());
        if let Ok(id) = HeaderValue::from_str(&noted.id) {
            response.headers_mut().insert(ID, id);
        }
        response
    }
}

/// Reads the body, and puts it back.
async fn take_body(request: &mut Request<Body>) -> Result<Bytes, ApiError> {
    let body = std::mem::take(request.body_mut());
    let bytes = Limited::new(body, LARGEST).collect().await;
    let bytes = bytes.map_err(|_| ApiError::TooLarge(LARGEST))?.to_bytes();
    *request.body_mut() = Body::from(bytes.clone());
    Ok(bytes)
}

fn trimmed(mut object: Value, decided: &Decided) -> Value {
    if decided.without_managed_fields {
        let of = |object: &mut Value| {
            if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
                meta.remove("managedFields");
            }
        };
        of(&mut object);
        object.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten().for_each(of);
    }
    object
}
