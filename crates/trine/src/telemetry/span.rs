//! What a step is as a span.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator, SpanData, SpanEvents, SpanLinks};
use trine_why::trace::Step;

/// Pods and sandboxes whose UID is kept in mind for steps that do not name it.
const KNOWN: usize = 8192;

/// A step that has ended, and where it stands among others.
pub struct Closed<'a> {
    /// The step.
    pub step: &'a Step,
    /// Its own number.
    pub id: SpanId,
    /// The step around it.
    pub parent: Option<SpanId>,
}

/// A number for a step.
pub fn new_id() -> SpanId {
    RandomIdGenerator::default().new_span_id()
}

/// A number for a trace of nobody's.
pub fn new_trace() -> TraceId {
    RandomIdGenerator::default().new_trace_id()
}

/// Knows whose step it is.
#[derive(Default)]
pub struct Naming {
    /// UIDs by `namespace/name`, and by sandbox.
    traces: Mutex<HashMap<String, TraceId>>,
}

impl Naming {
    /// The trace that a step belongs to: the Pod's UID is its id, so that whoever knows the Pod finds it.
    fn trace(&self, step: &Step) -> TraceId {
        let named = step.pod_uid.as_deref().and_then(uid);
        let mut traces = self.traces.lock().unwrap_or_else(PoisonError::into_inner);
        let keys = || step.pod.iter().chain(&step.sandbox);
        let trace = named.or_else(|| keys().find_map(|key| traces.get(key).copied()));
        let Some(trace) = trace else { return new_trace() };
        if traces.len() >= KNOWN {
            traces.clear();
        }
        for key in keys() {
            // A later Pod of the same name is another one.
            if named.is_some() || !traces.contains_key(key) {
                traces.insert(key.clone(), trace);
            }
        }
        trace
    }

    /// The step as a span.
    pub fn span(&self, closed: &Closed<'_>) -> SpanData {
        let step = closed.step;
        let start = SystemTime::UNIX_EPOCH + Duration::from_micros(step.start_us);
        let named = [
            ("trine.plane", Some(&step.plane)),
            ("k8s.pod.uid", step.pod_uid.as_ref()),
            ("trine.sandbox", step.sandbox.as_ref()),
            ("k8s.container.name", step.container.as_ref()),
            ("k8s.persistentvolume.name", step.volume.as_ref()),
            ("trine.claim", step.claim.as_ref()),
            ("trine.detail", step.detail.as_ref()),
        ];
        let mut attributes: Vec<KeyValue> =
            named.into_iter().filter_map(|(key, value)| Some(KeyValue::new(key, value?.clone()))).collect();
        if let Some((namespace, name)) = step.pod.as_deref().and_then(|pod| pod.split_once('/')) {
            attributes.push(KeyValue::new("k8s.namespace.name", namespace.to_owned()));
            attributes.push(KeyValue::new("k8s.pod.name", name.to_owned()));
        }
        let status = step.error.clone().map_or(Status::Unset, Status::error);
        SpanData {
            span_context: context(self.trace(step), closed.id),
            parent_span_id: closed.parent.unwrap_or(SpanId::INVALID),
            parent_span_is_remote: false,
            span_kind: SpanKind::Internal,
            name: format!("{} {}", step.plane, step.name).into(),
            start_time: start,
            end_time: start + Duration::from_micros(step.duration_us),
            attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status,
            instrumentation_scope: scope(),
        }
    }
}

/// Who made a span.
pub fn scope() -> InstrumentationScope {
    InstrumentationScope::builder("trine").with_version(env!("CARGO_PKG_VERSION")).build()
}

/// A sampled span's place.
pub fn context(trace: TraceId, id: SpanId) -> SpanContext {
    SpanContext::new(trace, id, TraceFlags::SAMPLED, false, TraceState::default())
}

fn uid(text: &str) -> Option<TraceId> {
    TraceId::from_hex(&text.replace('-', "")).ok().filter(|trace| *trace != TraceId::INVALID)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(pod: Option<&str>, uid: Option<&str>, sandbox: Option<&str>) -> Step {
        let mut step: Step = serde_json::from_str(
            r#"{"name":"ADD","plane":"cni","start_us":1700000000000000,"duration_us":1500}"#,
        )
        .unwrap();
        (step.pod, step.pod_uid, step.sandbox) =
            (pod.map(str::to_owned), uid.map(str::to_owned), sandbox.map(str::to_owned));
        step
    }

    #[test]
    fn a_pods_steps_are_one_trace_under_its_uid_even_those_that_know_its_name_or_sandbox_alone() {
        let naming = Naming::default();
        let (first, later) = ("6f1c2ad3-0001-4000-8000-00000000000a", "6f1c2ad3-0001-4000-8000-00000000000b");
        for (step, trace) in [
            (step(Some("d/p"), Some(first), Some("s1")), Some(first)),
            (step(Some("d/p"), None, None), Some(first)),
            (step(None, None, Some("s1")), Some(first)),
            (step(Some("d/p"), Some(later), Some("s2")), Some(later)),
            (step(Some("d/p"), None, None), Some(later)),
            (step(None, None, Some("s1")), Some(first)),
            (step(Some("d/other"), None, None), None),
        ] {
            let span = naming.span(&Closed { step: &step, id: new_id(), parent: None });
            let told = span.span_context.trace_id().to_string();
            match trace {
                Some(uid) => assert_eq!(told, uid.replace('-', ""), "{step:?}"),
                None => assert!(!told.starts_with("6f1c2ad3"), "{step:?}"),
            }
        }
    }

    #[test]
    fn a_step_keeps_its_time_its_place_and_its_error() {
        let (id, around) = (new_id(), new_id());
        let failed = Step { error: Some("no addresses left".into()), ..step(Some("d/p"), None, None) };
        let span = Naming::default().span(&Closed { step: &failed, id, parent: Some(around) });
        assert_eq!((span.span_context.span_id(), span.parent_span_id), (id, around));
        assert_eq!(span.end_time.duration_since(span.start_time).unwrap(), Duration::from_micros(1500));
        assert_eq!(span.status, Status::error("no addresses left"));
        assert!(span.attributes.contains(&KeyValue::new("k8s.pod.name", "p")));
        assert_eq!(span.name, "cni ADD");
    }
}
