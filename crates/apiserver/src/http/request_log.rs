//! Each request, when it has been answered, as one event: a line of the log for who asks for it
//! (`RUST_LOG=trine::request=debug`), a span for who collects them.

use std::time::Instant;

use axum::body::Body;
use http::{HeaderName, Request, StatusCode, header};
use tracing::Level;

use crate::access::attributes::Attributes;
use crate::request::decoded_path;

/// The target of these events. Their fields: `verb` (`LIST`, `WATCH`, ... as upstream logs them), `uri`, `agent`, `code`,
/// `latency_us` (until the first byte of the answer: a watch goes on) and `traceparent`, as the client sent it.
pub const REQUESTS: &str = "trine::request";

/// A request that is being answered.
pub(super) struct Noted {
    begun: Instant,
    verb: String,
    uri: String,
    agent: String,
    traceparent: String,
}

impl Noted {
    /// Notes a request, if anybody listens.
    pub fn begin(request: &Request<Body>) -> Option<Self> {
        tracing::enabled!(target: REQUESTS, Level::DEBUG).then(|| {
            let path = decoded_path(request.uri().path());
            let query = request.uri().query().unwrap_or_default();
            let text = |name: &HeaderName| {
                request.headers().get(name).and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned()
            };
            Self {
                begun: Instant::now(),
                verb: Attributes::read(request.method(), &path, query).verb.to_uppercase(),
                uri: request.uri().path_and_query().map(ToString::to_string).unwrap_or_default(),
                agent: text(&header::USER_AGENT),
                traceparent: text(&HeaderName::from_static("traceparent")),
            }
        })
    }

    /// Tells of it.
    pub fn end(self, code: StatusCode) {
        tracing::debug!(
            target: REQUESTS,
            verb = self.verb,
            uri = self.uri,
            agent = self.agent,
            code = u64::from(code.as_u16()),
            latency_us = u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX),
            traceparent = self.traceparent,
        );
    }
}
