//! GET with `watch=true`: the changes of the wanted objects, in order, until time is up.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use futures::stream;
use serde_json::json;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use trine_store::cache::{Event, Past, Watch};
use trine_store::{Object, WatchError};

use super::list::{revision, wait};
use crate::http::form::Form;
use crate::registry::{Registry, scope};
use crate::request::{Query, Selection, Target};
use crate::status::ApiError;

/// How long a watch lasts when the client does not say. Upstream: 30 to 60 minutes; clients watch again.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1800);
/// The longest that a client may ask for.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(24 * 3600);
/// How often a bookmark is sent. Upstream: about a minute.
const BOOKMARK_PERIOD: Duration = Duration::from_secs(60);
/// Events that are put into one piece of the answer at most.
const BATCH: usize = 64;

/// What a client is told about one change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Added,
    Modified,
    Deleted,
}

impl Change {
    fn word(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// What a change of an object is to a client that wants some of them: one that leaves the selection is deleted for it.
fn seen(event: &Event, selection: &Selection) -> Option<Change> {
    let now = !event.deleted && selection.wants(&event.object);
    let before = match &event.past {
        Past::Absent => false,
        Past::Was(object) => selection.wants(object),
        Past::Unknown => true,
    };
    match (before, now) {
        (false, true) => Some(Change::Added),
        (true, true) => Some(Change::Modified),
        (true, false) => Some(Change::Deleted),
        (false, false) => None,
    }
}

struct State {
    watch: Watch,
    selection: Arc<Selection>,
    form: Form,
    /// Sent before the first event.
    first: Vec<u8>,
    deadline: Instant,
    bookmarks: bool,
    next_bookmark: Instant,
    revision: u64,
    registry: Arc<Registry>,
    stop: CancellationToken,
}

impl State {
    /// Writes what an event is to this client.
    fn tell(&mut self, out: &mut Vec<u8>, event: &Event) {
        self.revision = event.revision;
        match (seen(event, &self.selection), &event.past) {
            // What left the selection is shown as it was last in it.
            (Some(Change::Deleted), Past::Was(last)) if !event.deleted => {
                let last = at_revision(&self.registry, last, event.revision);
                line(out, Change::Deleted, &last, &mut self.form, event.revision);
            }
            (Some(change), _) => line(out, change, &event.object, &mut self.form, event.revision),
            (None, _) => {}
        }
    }
}

/// The object with another revision in it.
fn at_revision(registry: &Registry, object: &Object, revision: u64) -> Object {
    let decoded =
        registry.decode(&object.key, revision, object.json()).unwrap_or_else(|| object.decoded.clone());
    Object { key: object.key.clone(), revision, decoded }
}

/// Begins a watch; gives the body of the answer.
///
/// # Errors
/// [`ApiError::Expired`] for a forgotten revision, [`ApiError::TooLargeRevision`] for one to come.
pub async fn watch(
    registry: &Arc<Registry>,
    target: &Target,
    query: &Query,
    mut form: Form,
    stop: CancellationToken,
) -> Result<Body, ApiError> {
    let selection = Arc::new(Selection::parse(query, target)?);
    let scope = scope(&target.resource, &target.namespace);
    let prefix = registry.prefix(&target.resource);
    let wanted = Arc::clone(&selection);
    let filter = Box::new(move |event: &Event| seen(event, &wanted).is_some());
    let asked = revision(query)?;
    let with_state = match query.get("sendInitialEvents") {
        Some(_) => query.flag("sendInitialEvents"),
        None => matches!(asked, None | Some(0)),
    };
    if let Some(revision) = asked {
        wait(registry, revision).await?;
    }
    let mut first = Vec::new();
    let (watch, revision) = if with_state {
        let (listed, watch) = prefix.list_and_watch(&scope, filter);
        for object in listed.objects.iter().filter(|o| selection.wants(o)) {
            line(&mut first, Change::Added, object, &mut form, listed.revision);
        }
        if query.flag("sendInitialEvents") && query.flag("allowWatchBookmarks") {
            bookmark(&mut first, target, listed.revision, true);
        }
        (watch, listed.revision)
    } else {
        let revision = asked.filter(|r| *r > 0).unwrap_or_else(|| registry.cache().revision());
        let watch = prefix
            .watch(&scope, revision, filter)
            .map_err(|WatchError::Expired { .. }| ApiError::Expired("resourceVersion"))?;
        (watch, revision)
    };
    let now = Instant::now();
    let timeout = query.number("timeoutSeconds")?.filter(|s| *s > 0);
    let timeout = timeout.map_or(DEFAULT_TIMEOUT, Duration::from_secs).min(LONGEST_TIMEOUT);
    let state = State {
        watch,
        selection,
        form,
        first,
        deadline: now + timeout,
        bookmarks: query.flag("allowWatchBookmarks"),
        next_bookmark: now + BOOKMARK_PERIOD,
        revision,
        registry: Arc::clone(registry),
        stop,
    };
    let target = target.clone();
    let pieces = stream::unfold(Some(state), move |state| piece(state, target.clone()));
    Ok(Body::from_stream(pieces))
}

/// The next piece of the answer; `None` at its end.
async fn piece(state: Option<State>, target: Target) -> Option<(Result<Bytes, Infallible>, Option<State>)> {
    let mut state = state?;
    if !state.first.is_empty() {
        let bytes = std::mem::take(&mut state.first);
        return Some((Ok(bytes.into()), Some(state)));
    }
    let mut bytes = Vec::new();
    tokio::select! {
        biased;
        () = state.stop.cancelled() => return None,
        event = state.watch.next() => {
            let event = event?;
            state.tell(&mut bytes, &event);
            for _ in 1..BATCH {
                let Some(event) = state.watch.ready() else { break };
                state.tell(&mut bytes, &event);
            }
        }
        () = sleep_until(state.next_bookmark), if state.bookmarks => {
            state.next_bookmark += BOOKMARK_PERIOD;
            // Nothing wanted happened up to what the cache shows now, if nothing waits.
            let shown = state.registry.cache().revision();
            if let Some(event) = state.watch.ready() {
                state.tell(&mut bytes, &event);
            } else {
                state.revision = state.revision.max(shown);
            }
            bookmark(&mut bytes, &target, state.revision, false);
        }
        () = sleep_until(state.deadline) => {
            if !state.bookmarks {
                return None;
            }
            bookmark(&mut bytes, &target, state.revision, false);
            return Some((Ok(bytes.into()), None));
        }
    }
    Some((Ok(bytes.into()), Some(state)))
}

fn line(out: &mut Vec<u8>, change: Change, object: &Object, form: &mut Form, revision: u64) {
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(change.word().as_bytes());
    out.extend_from_slice(b"\",\"object\":");
    form.one(out, object, revision);
    out.extend_from_slice(b"}\n");
}

fn bookmark(out: &mut Vec<u8>, target: &Target, revision: u64, initial: bool) {
    let mut meta = json!({"resourceVersion": revision.to_string(), "creationTimestamp": null});
    if initial {
        meta["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    }
    let object =
        json!({"kind": target.resource.kind, "apiVersion": target.resource.api_version(), "metadata": meta});
    let event = json!({"type": "BOOKMARK", "object": object});
    out.extend_from_slice(event.to_string().as_bytes());
    out.push(b'\n');
}
