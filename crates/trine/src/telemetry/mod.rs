//! Steps and requests as OpenTelemetry spans, for whoever collects them (OTLP over gRPC).
//!
//! Asked for by the variables that OpenTelemetry prescribes: `OTEL_EXPORTER_OTLP_ENDPOINT` (or `..._TRACES_ENDPOINT`) says
//! where to, `OTEL_SERVICE_NAME` what it is called there (default `trine`), `OTEL_TRACES_SAMPLER_ARG` which part of the
//! requests is told (default 0.0). Headers and time-outs are the exporter's own variables. A Pod's steps are one trace,
//! whose id is the Pod's UID; a request belongs to its client's trace if that is sampled.

mod requests;
mod span;

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, atomic::AtomicU64, atomic::Ordering};
use std::time::{Duration, Instant};

use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};

pub use requests::RequestLayer;
pub use span::{Closed, new_id};

/// Spans that wait to be sent; what comes beyond is counted and dropped, for nothing may wait for a collector.
const WAITING: usize = 16_384;
/// Spans that are sent at once. OpenTelemetry's default.
const BATCH: usize = 512;
/// How long a span waits for others. OpenTelemetry's default is 5 s; who looks at a Pod's start will not wait as long.
const PATIENCE: Duration = Duration::from_secs(1);

/// Where spans go.
#[derive(Clone)]
pub struct Spans {
    to: SyncSender<SpanData>,
    dropped: Arc<AtomicU64>,
    naming: Arc<span::Naming>,
}

impl Spans {
    /// Starts to export, if the environment asks for it; `None` if not.
    ///
    /// # Errors
    /// If the endpoint is no URL or the thread cannot be started.
    pub fn start() -> anyhow::Result<Option<Self>> {
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let Some(endpoint) =
            set("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").or_else(|| set("OTEL_EXPORTER_OTLP_ENDPOINT"))
        else {
            return Ok(None);
        };
        let service = set("OTEL_SERVICE_NAME").unwrap_or_else(|| "trine".to_owned());
        Self::export_to(&endpoint, service).map(Some)
    }

    fn export_to(endpoint: &str, service: String) -> anyhow::Result<Self> {
        let (to, from) = sync_channel(WAITING);
        let dropped = Arc::new(AtomicU64::new(0));
        let resource = Resource::builder().with_service_name(service).build();
        // A thread and a runtime of its own: the commands' runtimes may be single-threaded and busy.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut exporter = {
            let _within = runtime.enter();
            SpanExporter::builder().with_tonic().with_endpoint(endpoint).build()?
        };
        exporter.set_resource(&resource);
        let lost = Arc::clone(&dropped);
        let send = move || {
            while let Some(batch) = next_batch(&from) {
                let count = batch.len();
                if let Err(error) = runtime.block_on(exporter.export(batch)) {
                    tracing::warn!(%error, spans = count, "spans are not taken by the collector");
                }
                let lost = lost.swap(0, Ordering::Relaxed);
                if lost > 0 {
                    tracing::warn!(spans = lost, "spans were dropped: the collector is too slow");
                }
            }
        };
        std::thread::Builder::new().name("telemetry".to_owned()).spawn(send)?;
        Ok(Self { to, dropped, naming: Arc::default() })
    }

    /// Hands a step on.
    pub fn step(&self, closed: &Closed<'_>) {
        self.put(self.naming.span(closed));
    }

    fn put(&self, span: SpanData) {
        if let Err(TrySendError::Full(_)) = self.to.try_send(span) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// What is to be sent next; `None` when nobody can send any more.
fn next_batch(from: &Receiver<SpanData>) -> Option<Vec<SpanData>> {
    let mut batch = vec![from.recv().ok()?];
    let until = Instant::now() + PATIENCE;
    while batch.len() < BATCH {
        match from.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(span) => batch.push(span),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
        }
    }
    Some(batch)
}
