//! What controllers tell of their doings: Events of events.k8s.io/v1, written behind the back of the work, so that it never waits
//! for them.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use trine_typed::event::Level;
use trine_typed::k8s_openapi::api::core::v1::ObjectReference;
use trine_typed::k8s_openapi::api::events::v1::Event;
use trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use trine_typed::kube::api::{Patch, PatchParams, PostParams};
use trine_typed::kube::{Api, Client, Resource};

/// Events that wait to be written; what comes while so many wait is dropped.
const WAITING: usize = 4096;
/// Events about one object that are written at once. Upstream: 25.
const BURST: f64 = 25.0;
/// After which time one more may be written about it. Upstream: 5 min.
const REFILL: Duration = Duration::from_secs(300);
/// How long the same thing counts as going on. Upstream: 6 min.
const SERIES: Duration = Duration::from_secs(360);
/// Objects and events remembered; all is forgotten beyond.
const REMEMBERED: usize = 8192;
/// The longest note, bytes.
const NOTE_MAX: usize = 1024;

/// Where a controller says what it does.
#[derive(Clone)]
pub struct Events {
    sender: mpsc::Sender<Post>,
}

struct Post {
    about: ObjectReference,
    level: Level,
    reason: String,
    action: &'static str,
    note: String,
}

impl Events {
    /// Starts writing for `controller`, upstream's name of it (`deployment-controller`).
    #[must_use]
    pub fn start(client: Client, controller: &'static str, stop: CancellationToken) -> Self {
        let (sender, receiver) = mpsc::channel(WAITING);
        let writer = Writer { client, controller, budgets: HashMap::new(), series: HashMap::new() };
        tokio::spawn(writer.run(receiver, stop));
        Self { sender }
    }

    /// Tells something about an object.
    pub fn post<K: Resource<DynamicType = ()>>(
        &self,
        about: &K,
        level: Level,
        reason: &str,
        action: &'static str,
        note: impl Into<String>,
    ) {
        let about = about.object_ref(&());
        let post = Post { about, level, reason: reason.to_owned(), action, note: note.into() };
        if self.sender.try_send(post).is_err() {
            tracing::debug!(reason, "too many events wait; one is dropped");
        }
    }
}

struct Writer {
    client: Client,
    controller: &'static str,
    /// How many events may be written about an object (UID), and since when that is true.
    budgets: HashMap<String, (f64, Instant)>,
    /// The event that tells of something already.
    series: HashMap<(String, String, String), Series>,
}

struct Series {
    name: String,
    count: i32,
    last: Instant,
}

impl Writer {
    async fn run(mut self, mut receiver: mpsc::Receiver<Post>, stop: CancellationToken) {
        loop {
            let post = tokio::select! {
                () = stop.cancelled() => return,
                post = receiver.recv() => post,
            };
            let Some(post) = post else { return };
            self.write(post).await;
        }
    }

    async fn write(&mut self, post: Post) {
        let now = Instant::now();
        let uid = post.about.uid.clone().unwrap_or_default();
        if !self.affords(&uid, now) {
            return;
        }
        let namespace = post.about.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let api: Api<Event> = Api::namespaced(self.client.clone(), &namespace);
        let key = (uid, post.reason.clone(), post.note.clone());
        if let Some(series) = self.series.get_mut(&key).filter(|s| now.duration_since(s.last) < SERIES) {
            (series.count, series.last) = (series.count + 1, now);
            let again =
                json!({"series": {"count": series.count, "lastObservedTime": MicroTime(trine_clock::now())}});
            match api.patch(&series.name, &PatchParams::default(), &Patch::Merge(&again)).await {
                Ok(_) => return,
                Err(error) => tracing::debug!(%error, "the earlier event is gone"),
            }
        }
        let event = self.event(post, &namespace);
        match api.create(&PostParams::default(), &event).await {
            Ok(_) => {
                if self.series.len() >= REMEMBERED {
                    self.series.clear();
                }
                let name = event.metadata.name.unwrap_or_default();
                self.series.insert(key, Series { name, count: 1, last: now });
            }
            Err(error) => tracing::debug!(%error, reason = key.1, "event not written"),
        }
    }

    fn event(&self, post: Post, namespace: &str) -> Event {
        let now = trine_clock::now();
        let name = format!("{}.{:x}", post.about.name.as_deref().unwrap_or_default(), now.as_nanosecond());
        let level = match post.level {
            Level::Normal => "Normal",
            Level::Warning => "Warning",
        };
        Event {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: Some(namespace.to_owned()),
                ..Default::default()
            },
            action: Some(post.action.to_owned()),
            event_time: Some(MicroTime(now)),
            note: Some(cut(post.note)),
            reason: Some(post.reason),
            regarding: Some(post.about),
            reporting_controller: Some(self.controller.to_owned()),
            reporting_instance: Some(self.controller.to_owned()),
            type_: Some(level.to_owned()),
            ..Default::default()
        }
    }

    /// Whether one more event about an object may be written.
    fn affords(&mut self, uid: &str, now: Instant) -> bool {
        if self.budgets.len() >= REMEMBERED {
            self.budgets.clear();
        }
        let (left, since) = self.budgets.entry(uid.to_owned()).or_insert((BURST, now));
        *left = (*left + now.duration_since(*since).as_secs_f64() / REFILL.as_secs_f64()).min(BURST);
        *since = now;
        let affords = *left >= 1.0;
        if affords {
            *left -= 1.0;
        }
        affords
    }
}

/// The note, not longer than it may be.
fn cut(mut note: String) -> String {
    if note.len() > NOTE_MAX {
        let end = (0..=NOTE_MAX - 4).rev().find(|i| note.is_char_boundary(*i)).unwrap_or_default();
        note.truncate(end);
        note.push_str(" ...");
    }
    note
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_cut_between_letters() {
        assert_eq!(cut("short".to_owned()), "short");
        let long = cut("ä".repeat(600));
        assert!(long.len() <= NOTE_MAX && long.ends_with("ä ..."));
    }
}
