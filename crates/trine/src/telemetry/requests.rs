//! Requests to the API server as spans: the server tells of each when it has answered ([`REQUESTS`]).

use std::time::{Duration, SystemTime};

use opentelemetry::KeyValue;
use opentelemetry::trace::{SpanId, SpanKind, Status, TraceId};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use tracing::Subscriber;
use tracing::field::{Field, Visit};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;
use trine_apiserver::REQUESTS;

use super::Spans;
use super::span::{context, new_id, new_trace, scope};

/// Hands requests on: those of a client whose trace is sampled, and a part of the others.
pub struct RequestLayer {
    spans: Spans,
    /// A request without a trace is told if its own trace's number is below.
    below: u64,
}

impl RequestLayer {
    /// The layer, for the part of requests that `OTEL_TRACES_SAMPLER_ARG` says.
    #[must_use]
    pub fn layer<S: Subscriber + for<'a> LookupSpan<'a>>(spans: Spans) -> impl Layer<S> {
        let part = std::env::var("OTEL_TRACES_SAMPLER_ARG").ok().and_then(|part| part.parse::<f64>().ok());
        // Nothing else is to be made for this layer's sake.
        let filter = Targets::new().with_target(REQUESTS, LevelFilter::DEBUG);
        Self { spans, below: threshold(part.unwrap_or(0.0)) }.with_filter(filter)
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
fn threshold(part: f64) -> u64 {
    (part.clamp(0.0, 1.0) * u64::MAX as f64) as u64
}

impl<S: Subscriber> Layer<S> for RequestLayer {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let mut told = Told::default();
        event.record(&mut told);
        if let Some(place) = place(&told.parent, self.below) {
            self.spans.put(told.span(place, SystemTime::now()));
        }
    }
}

/// The trace of a request and its client's span; `None` if it is not told.
fn place(parent: &str, below: u64) -> Option<(TraceId, Option<SpanId>)> {
    match traceparent(parent) {
        Some((trace, span, sampled)) => sampled.then_some((trace, Some(span))),
        None => {
            let trace = new_trace();
            let number = u64::from_be_bytes(trace.to_bytes()[8..].try_into().unwrap_or_default());
            (number < below).then_some((trace, None))
        }
    }
}

/// Trace, span and whether it is sampled. Source: W3C Trace Context, 3.2.
fn traceparent(text: &str) -> Option<(TraceId, SpanId, bool)> {
    let mut parts = text.trim().split('-');
    let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let lengths = [(version, 2), (trace, 32), (span, 16), (flags, 2)];
    let well_formed = lengths.iter().all(|(part, length)| {
        part.len() == *length && part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    });
    // A later version may say more at its end, the first may not.
    if !well_formed || version == "ff" || (version == "00" && parts.next().is_some()) {
        return None;
    }
    let (trace, span) = (TraceId::from_hex(trace).ok()?, SpanId::from_hex(span).ok()?);
    let flags = u8::from_str_radix(flags, 16).ok()?;
    (trace != TraceId::INVALID && span != SpanId::INVALID).then_some((trace, span, flags & 1 == 1))
}

/// What the server told of a request.
#[derive(Default)]
struct Told {
    verb: String,
    uri: String,
    agent: String,
    parent: String,
    code: u64,
    latency: Duration,
}

impl Told {
    fn span(self, (trace, parent): (TraceId, Option<SpanId>), end: SystemTime) -> SpanData {
        let (path, query) = self.uri.split_once('?').unwrap_or((&self.uri, ""));
        let mut attributes = vec![
            KeyValue::new("trine.plane", "api"),
            KeyValue::new("url.path", path.to_owned()),
            KeyValue::new("http.response.status_code", i64::try_from(self.code).unwrap_or(0)),
            KeyValue::new("user_agent.original", self.agent),
        ];
        if !query.is_empty() {
            attributes.push(KeyValue::new("url.query", query.to_owned()));
        }
        SpanData {
            span_context: context(trace, new_id()),
            parent_span_id: parent.unwrap_or(SpanId::INVALID),
            parent_span_is_remote: parent.is_some(),
            span_kind: SpanKind::Server,
            name: format!("{} {path}", self.verb).into(),
            start_time: end.checked_sub(self.latency).unwrap_or(end),
            end_time: end,
            attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            // A client's own mistake is no fault of the server's. Source: OpenTelemetry's HTTP conventions.
            status: if self.code >= 500 { Status::error("") } else { Status::Unset },
            instrumentation_scope: scope(),
        }
    }
}

impl Visit for Told {
    fn record_str(&mut self, field: &Field, value: &str) {
        let place = match field.name() {
            "verb" => &mut self.verb,
            "uri" => &mut self.uri,
            "agent" => &mut self.agent,
            "traceparent" => &mut self.parent,
            _ => return,
        };
        value.clone_into(place);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name() {
            "code" => self.code = value,
            "latency_us" => self.latency = Duration::from_micros(value),
            _ => {}
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_belongs_to_its_clients_trace_if_that_is_sampled_and_well_formed() {
        let (trace, span) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
        for (text, read) in [
            (format!("00-{trace}-{span}-01"), Some(true)),
            (format!("00-{trace}-{span}-00"), Some(false)),
            (format!("cc-{trace}-{span}-03-more"), Some(true)),
            (format!("00-{trace}-{span}-01-more"), None),
            (format!("ff-{trace}-{span}-01"), None),
            (format!("00-{}-{span}-01", "0".repeat(32)), None),
            (format!("00-{trace}-{}-01", "0".repeat(16)), None),
            (format!("00-{}-{span}-01", trace.to_uppercase()), None),
            (format!("00-{trace}-01"), None),
            (String::new(), None),
        ] {
            assert_eq!(traceparent(&text).map(|(_, _, sampled)| sampled), read, "{text}");
        }
        let placed = place(&format!("00-{trace}-{span}-01"), 0).unwrap();
        assert_eq!(
            (placed.0.to_string(), placed.1.unwrap().to_string()),
            (trace.to_owned(), span.to_owned())
        );
        assert!(place(&format!("00-{trace}-{span}-00"), u64::MAX).is_none(), "its client said no");
    }

    #[test]
    fn of_the_others_a_part_is_told() {
        let told = |part| (0..2000).filter(|_| place("", threshold(part)).is_some()).count();
        assert_eq!((told(0.0), told(1.0)), (0, 2000));
        assert!((300..700).contains(&told(0.25)), "a quarter");
    }
}
