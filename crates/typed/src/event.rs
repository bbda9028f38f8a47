//! Events as `kubectl describe` shows them: core/v1, counted up when the same thing happens again.

use std::collections::BTreeMap;
use std::sync::Mutex;

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, Resource};

/// Distinct (object, reason, message) triples remembered for counting; the memory is emptied beyond.
const REMEMBERED: usize = 1024;

/// Normal or Warning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Something went as it should.
    Normal,
    /// Something that a person should look at.
    Warning,
}

/// Posts Events in the name of one component.
pub struct Recorder {
    client: Client,
    component: String,
    host: Option<String>,
    seen: Mutex<BTreeMap<String, (String, i32)>>,
}

impl Recorder {
    /// `component` is what `describe` shows under "From" (`kubelet`, `default-scheduler`, ...).
    #[must_use]
    pub fn new(client: Client, component: &str, host: Option<&str>) -> Self {
        let host = host.map(str::to_owned);
        Self { client, component: component.to_owned(), host, seen: Mutex::default() }
    }

    /// Posts an event about `object`, or counts up the last one with the same reason and message. A failure to
    /// post is logged and otherwise ignored, as upstream does: events are never worth failing the work for.
    pub async fn post<K>(&self, object: &K, level: Level, reason: &str, message: &str)
    where
        K: Resource<DynamicType = ()>,
    {
        let reference = object.object_ref(&());
        self.post_about(reference, level, reason, message).await;
    }

    /// The same, with the reference made by the caller (to name a container in `fieldPath`, for instance).
    pub async fn post_about(&self, about: ObjectReference, level: Level, reason: &str, message: &str) {
        let namespace = about.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let api: Api<Event> = Api::namespaced(self.client.clone(), &namespace);
        let key = format!(
            "{}/{}/{}/{}/{reason}/{message}",
            about.kind.as_deref().unwrap_or_default(),
            namespace,
            about.name.as_deref().unwrap_or_default(),
            about.uid.as_deref().unwrap_or_default(),
        );
        let now = Time(trine_clock::now());
        if let Some((name, count)) = self.count_up(&key) {
            let patch = serde_json::json!({"count": count, "lastTimestamp": now});
            match api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await {
                Ok(_) => return,
                Err(error) => tracing::debug!(%error, "the earlier event is gone"),
            }
        }
        let name = event_name(&about);
        let level = match level {
            Level::Normal => "Normal",
            Level::Warning => "Warning",
        };
        let event = Event {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                namespace: Some(namespace),
                ..Default::default()
            },
            involved_object: about,
            reason: Some(reason.to_owned()),
            message: Some(message.chars().take(1024).collect()),
            type_: Some(level.to_owned()),
            source: Some(EventSource { component: Some(self.component.clone()), host: self.host.clone() }),
            reporting_component: Some(self.component.clone()),
            reporting_instance: self.host.clone(),
            first_timestamp: Some(now.clone()),
            last_timestamp: Some(now),
            count: Some(1),
            ..Default::default()
        };
        match api.create(&PostParams::default(), &event).await {
            Ok(_) => self.remember(key, name),
            Err(error) => tracing::warn!(%error, reason, message, "event not posted"),
        }
    }

    fn count_up(&self, key: &str) -> Option<(String, i32)> {
        let mut seen = self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let (name, count) = seen.get_mut(key)?;
        *count += 1;
        Some((name.clone(), *count))
    }

    fn remember(&self, key: String, name: String) {
        let mut seen = self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if seen.len() >= REMEMBERED {
            seen.clear();
        }
        seen.insert(key, (name, 1));
    }
}

/// `<object>.<hex nanoseconds>`, as client-go names events.
fn event_name(about: &ObjectReference) -> String {
    let nanos = trine_clock::now().as_nanosecond();
    format!("{}.{nanos:x}", about.name.as_deref().unwrap_or("unknown"))
}
