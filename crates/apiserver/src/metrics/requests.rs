//! One request, from its arrival to its answer.

use super::family::{Counters, Durations};
use super::text::{Labels, Page};
use crate::request::{Query, Target};
use http::{Method, StatusCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;

/// Upstream's buckets of a request, seconds.
const BUCKETS: &[f64] = &[
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0,
    20.0, 30.0, 45.0, 60.0,
];

/// What is counted of requests.
pub struct Requests {
    total: Counters,
    durations: Durations,
    mutating: AtomicI64,
    reading: AtomicI64,
    long: AtomicI64,
}

impl Default for Requests {
    fn default() -> Self {
        Self {
            total: Counters::default(),
            durations: Durations::new(BUCKETS),
            mutating: AtomicI64::new(0),
            reading: AtomicI64::new(0),
            long: AtomicI64::new(0),
        }
    }
}

/// The verb as upstream's metrics name it.
fn verb(target: &Target, method: &Method, query: &Query) -> &'static str {
    let long = matches!(target.subresource.as_deref(), Some("exec" | "attach" | "portforward" | "proxy"));
    match *method {
        _ if long => "CONNECT",
        Method::GET | Method::HEAD if query.flag("watch") => "WATCH",
        Method::GET | Method::HEAD if target.name.is_none() => "LIST",
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE if target.name.is_none() => "DELETECOLLECTION",
        Method::DELETE => "DELETE",
        _ => "OTHER",
    }
}

impl Requests {
    /// A request arrives.
    pub fn begin(self: &Arc<Self>, target: &Target, method: &Method, query: &Query) -> Pending {
        let verb = verb(target, method, query);
        let scope = match (&target.name, target.namespace.is_empty()) {
            (Some(_), _) => "resource",
            (None, false) => "namespace",
            (None, true) => "cluster",
        };
        let resource = &target.resource;
        let labels = vec![
            ("component", "apiserver".to_owned()),
            ("dry_run", query.get("dryRun").unwrap_or_default().to_owned()),
            ("group", resource.group.to_string()),
            ("resource", resource.plural.to_string()),
            ("scope", scope.to_owned()),
            ("subresource", target.subresource.clone().unwrap_or_default()),
            ("verb", verb.to_owned()),
            ("version", resource.version.to_string()),
        ];
        let follows = target.subresource.as_deref() == Some("log") && query.flag("follow");
        let kind = match verb {
            "WATCH" | "CONNECT" => Kind::Long,
            _ if follows => Kind::Long,
            "GET" | "HEAD" | "LIST" => Kind::Reading,
            _ => Kind::Mutating,
        };
        self.gauge(kind).fetch_add(1, Ordering::Relaxed);
        Pending { of: Arc::clone(self), labels, kind, since: Instant::now() }
    }

    fn gauge(&self, kind: Kind) -> &AtomicI64 {
        match kind {
            Kind::Mutating => &self.mutating,
            Kind::Reading => &self.reading,
            Kind::Long => &self.long,
        }
    }

    /// Writes the families.
    pub fn show(&self, page: &mut Page) {
        self.total.show(page, "apiserver_request_total", "Requests by verb, resource and HTTP code.");
        let help = "Time from a request's arrival to the beginning of its answer, in seconds.";
        self.durations.show(page, "apiserver_request_duration_seconds", help);
        let name = "apiserver_current_inflight_requests";
        page.family(name, "gauge", "Requests that wait for their answer, watches and streams apart.");
        for (kind, gauge) in [("mutating", &self.mutating), ("readOnly", &self.reading)] {
            page.value(name, &[("request_kind", kind)], gauge.load(Ordering::Relaxed) as f64);
        }
        let long = self.long.load(Ordering::Relaxed) as f64;
        page.single("apiserver_longrunning_requests", "gauge", "Watches and streams that begin.", long);
    }
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Mutating,
    Reading,
    Long,
}

/// A request that waits for its answer. Dropped without one, it counts as in flight no more.
pub struct Pending {
    of: Arc<Requests>,
    labels: Labels,
    kind: Kind,
    since: Instant,
}

impl Pending {
    /// The answer is there.
    pub fn answered(mut self, code: StatusCode) {
        let mut labels = std::mem::take(&mut self.labels);
        self.of.durations.add(labels.clone(), self.since.elapsed());
        labels.insert(0, ("code", code.as_u16().to_string()));
        self.of.total.add(labels);
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.of.gauge(self.kind).fetch_sub(1, Ordering::Relaxed);
    }
}
