//! Collects the steps of all planes: every span of target `trine::step`, when it closes, becomes one line of
//! `log/steps.jsonl` and goes to whoever listens (the demo). The planes know nothing of it.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use opentelemetry::trace::SpanId;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Subscriber, debug};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;
use trine_why::trace::Step;

use crate::telemetry::{Closed, Spans, new_id};

/// The target of spans that are steps.
pub const TARGET: &str = "trine::step";
/// Fields by which a step belongs to a Pod; inherited from the step around it.
const INHERITED: [&str; 5] = ["pod", "pod_uid", "sandbox", "volume", "claim"];
/// Size at which the file is started anew, bytes; the one before is kept.
const MAX_FILE: u64 = 8 * 1024 * 1024;

/// The layer that collects steps.
pub struct StepLayer {
    to: mpsc::Sender<Step>,
    spans: Option<Spans>,
}

struct Open {
    since: Instant,
    started: SystemTime,
    fields: BTreeMap<&'static str, String>,
    /// Its number and that of the step around it, where spans are exported.
    place: Option<(SpanId, Option<SpanId>)>,
}

/// Starts the writer of `file` and gives the layer that feeds it. `listener` sees every step too, and `spans` has each as a
/// span.
///
/// # Errors
/// If the file cannot be opened or the writer's thread not be started.
pub fn collect(
    file: &Path,
    listener: Option<mpsc::Sender<Step>>,
    spans: Option<Spans>,
) -> anyhow::Result<StepLayer> {
    let (to, from) = mpsc::channel::<Step>();
    if let Some(parent) = file.parent() {
        std::fs::create_dir_all(parent)?;
    }
    let mut log = StepLog::open(file.to_owned())?;
    std::thread::Builder::new().name("steps".to_owned()).spawn(move || {
        while let Ok(step) = from.recv() {
            // Whatever else waits is written with it, then flushed once.
            for step in std::iter::once(step).chain(from.try_iter()) {
                log.append(&step);
                if let Some(listener) = &listener {
                    let _ = listener.send(step);
                }
            }
            log.flush();
        }
    })?;
    Ok(StepLayer { to, spans })
}

struct StepLog {
    path: PathBuf,
    file: BufWriter<File>,
    written: u64,
}

impl StepLog {
    fn open(path: PathBuf) -> std::io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(&path)?;
        let written = file.metadata()?.len();
        Ok(Self { path, file: BufWriter::new(file), written })
    }

    fn append(&mut self, step: &Step) {
        let Ok(mut line) = serde_json::to_vec(step) else { return };
        line.push(b'\n');
        self.written += line.len() as u64;
        if let Err(error) = self.file.write_all(&line) {
            debug!(%error, "step not written");
        }
        if self.written > MAX_FILE {
            self.flush();
            let _ = std::fs::rename(&self.path, self.path.with_extension("old.jsonl"));
            if let Ok(fresh) = Self::open(self.path.clone()) {
                *self = fresh;
            }
        }
    }

    fn flush(&mut self) {
        if let Err(error) = self.file.flush() {
            debug!(%error, "steps not written");
        }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for StepLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if span.metadata().target() != TARGET {
            return;
        }
        let mut fields = BTreeMap::new();
        let mut parent = None;
        let around = span.scope().skip(1).find(|s| s.metadata().target() == TARGET);
        if let Some(around) = around
            && let Some(open) = around.extensions().get::<Open>()
        {
            let inherited = open.fields.iter().filter(|(key, _)| INHERITED.contains(key));
            fields.extend(inherited.map(|(key, value)| (*key, value.clone())));
            parent = open.place.map(|(id, _)| id);
        }
        attributes.record(&mut Fields(&mut fields));
        let place = self.spans.is_some().then(|| (new_id(), parent));
        span.extensions_mut().insert(Open {
            since: Instant::now(),
            started: SystemTime::now(),
            fields,
            place,
        });
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(open) = span.extensions_mut().get_mut::<Open>() {
            values.record(&mut Fields(&mut open.fields));
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let Some(mut open) = span.extensions_mut().remove::<Open>() else { return };
        let started = open.started.duration_since(UNIX_EPOCH).unwrap_or_default();
        let step = Step {
            name: span.metadata().name().to_owned(),
            plane: open.fields.remove("plane").unwrap_or_default(),
            start_us: u64::try_from(started.as_micros()).unwrap_or_default(),
            duration_us: u64::try_from(open.since.elapsed().as_micros()).unwrap_or_default(),
            pod: open.fields.remove("pod"),
            pod_uid: open.fields.remove("pod_uid"),
            sandbox: open.fields.remove("sandbox"),
            container: open.fields.remove("container"),
            volume: open.fields.remove("volume"),
            claim: open.fields.remove("claim"),
            detail: open.fields.remove("detail"),
            error: open.fields.remove("error"),
        };
        if let (Some(spans), Some((id, parent))) = (&self.spans, open.place) {
            spans.step(&Closed { step: &step, id, parent });
        }
        // The writer is gone only when the process ends.
        let _ = self.to.send(step);
    }
}

struct Fields<'a>(&'a mut BTreeMap<&'static str, String>);

impl Visit for Fields<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        if !value.is_empty() {
            self.0.insert(field.name(), value.to_owned());
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let text = format!("{value:?}");
        if !text.is_empty() {
            self.0.insert(field.name(), text);
        }
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::prelude::*;

    use super::*;

    #[test]
    fn a_step_knows_its_pod_from_the_step_around_it_and_its_error() {
        let dir = tempfile::tempdir().unwrap();
        let (to, seen) = mpsc::channel();
        let layer = collect(&dir.path().join("steps.jsonl"), Some(to), None).unwrap();
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, || {
            let outer =
                tracing::info_span!(target: "trine::step", "RunPodSandbox", plane = "cri", pod = "d/p");
            let _outer = outer.entered();
            let _noise = tracing::info_span!("not a step").entered();
            let inner = tracing::info_span!(target: "trine::step", "ADD", plane = "cni", error = tracing::field::Empty);
            inner.record("error", "no addresses left");
        });
        let steps: Vec<Step> = seen.iter().take(2).collect();
        assert_eq!(steps[0].name, "ADD");
        assert_eq!(steps[0].pod.as_deref(), Some("d/p"));
        assert_eq!(steps[0].error.as_deref(), Some("no addresses left"));
        assert_eq!(steps[1].plane, "cri");
    }
}
