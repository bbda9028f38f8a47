//! GET with `watch=true`: the changes of the wanted objects, in order, until time is up.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use futures::stream;
use serde_json::json;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use trine_store::cache::{Event, Interest, Part, Past, Watch};
use trine_store::{Object, WatchError};

use super::list::{shown, wait};
use super::read_options::Options;
use crate::catalog::Served;
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
fn seen(deleted: bool, object: &Object, past: &Past, wants: impl Fn(&Object) -> bool) -> Option<Change> {
    let now = !deleted && wants(object);
    let before = match past {
        Past::Absent => false,
        Past::Was(object) => wants(object),
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
    resource: Arc<Served>,
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
    async fn tell(&mut self, out: &mut Vec<u8>, event: &Event) -> Result<(), ApiError> {
        // A watch may have been asked to begin after what happens now.
        if event.revision <= self.revision {
            return Ok(());
        }
        self.revision = event.revision;
        let converted = if self.selection.is_of_converted() { Some(self.shown(event).await?) } else { None };
        let (object, past) = converted.as_ref().map_or((&event.object, &event.past), |(o, past)| (o, past));
        let Some(change) = seen(event.deleted, object, past, |object| self.selection.wants(object)) else {
            return Ok(());
        };
        // What left the selection is shown as it was last in it.
        let last = match past {
            Past::Was(last) if change == Change::Deleted && !event.deleted => Some(last),
            _ => None,
        };
        if self.resource.converter().is_some() {
            let object = match last {
                Some(last) => Arc::new(at_revision(&self.registry, last, event.revision)),
                None => Arc::clone(object),
            };
            let shown = self.resource.show_one(&self.registry, object).await?;
            line(out, change, &shown, &mut self.form, event.revision);
            return Ok(());
        }
        let (form, registry) = (&mut self.form, &self.registry);
        let write = |form: &mut Form, out: &mut Vec<u8>| match last {
            Some(last) => {
                line(out, change, &at_revision(registry, last, event.revision), form, event.revision)
            }
            None => line(out, change, &event.object, form, event.revision),
        };
        match form.shared() {
            Some(name) => {
                let name = format!("{} {} {name}", change.word(), last.is_some());
                let shared = event.written(&name, || {
                    let mut line = Vec::new();
                    write(form, &mut line);
                    line.into()
                });
                out.extend_from_slice(&shared);
            }
            None => write(form, out),
        }
        Ok(())
    }

    /// What an event changed, and how it was before, as they are shown.
    async fn shown(&self, event: &Event) -> Result<(Arc<Object>, Past), ApiError> {
        let mut both = vec![Arc::clone(&event.object)];
        if let Past::Was(before) = &event.past {
            both.push(Arc::clone(before));
        }
        let mut both = self.resource.show_all(&self.registry, both).await?.into_iter();
        let object = both.next().unwrap_or_else(|| Arc::clone(&event.object));
        let past = match (&event.past, both.next()) {
            (Past::Was(_), Some(before)) => Past::Was(before),
            (Past::Absent, _) => Past::Absent,
            _ => Past::Unknown,
        };
        Ok((object, past))
    }
}

/// The object with another revision in it.
fn at_revision(registry: &Registry, object: &Object, revision: u64) -> Object {
    let decoded =
        registry.decode(&object.key, revision, object.json()).unwrap_or_else(|| object.decoded.clone());
    Object { key: object.key.clone(), revision, decoded }
}

/// Begins a watch; gives the body of the answer. What goes wrong after the request was understood is told in the stream, as
/// upstream does: it has no other place once a watch goes on.
///
/// # Errors
/// What [`Options::parse`] and [`Selection::parse`] refuse.
pub async fn watch(
    registry: &Arc<Registry>,
    target: &Target,
    query: &Query,
    form: Form,
    stop: CancellationToken,
) -> Result<Body, ApiError> {
    let options = Options::parse(query, true)?;
    let selection = Arc::new(Selection::parse(query, target)?);
    match begin(registry, target, &options, selection, form, stop).await {
        Ok(state) => {
            let target = target.clone();
            let pieces = stream::unfold(Some(state), move |state| piece(state, target.clone()));
            Ok(Body::from_stream(pieces))
        }
        Err(error) => {
            // A stream like any other watch: its length must not make it a document.
            let line: Result<Bytes, Infallible> = Ok(with_error(Vec::new(), &error));
            Ok(Body::from_stream(stream::iter([line])))
        }
    }
}

async fn begin(
    registry: &Arc<Registry>,
    target: &Target,
    options: &Options,
    selection: Arc<Selection>,
    mut form: Form,
    stop: CancellationToken,
) -> Result<State, ApiError> {
    let scope = scope(&target.resource, &target.namespace);
    let prefix = registry.prefix(&target.resource);
    let wanted = Arc::clone(&selection);
    let filter = Box::new(move |event: &Event| {
        seen(event.deleted, &event.object, &event.past, |object| wanted.may_want(object)).is_some()
    });
    let interest = Interest::new(&scope, filter).with_fields(|field| selection.required(field));
    let mut first = Vec::new();
    let (watch, revision) = if options.initial == Some(true) {
        match options.revision {
            Some(revision) => wait(registry, revision).await?,
            None => registry.consistent().await?,
        }
        let (listed, watch) = {
            let part = Part { wanted: &|object| selection.may_want(object), ..Part::all(&scope) };
            prefix.list_and_watch(&part, interest)
        };
        let objects = shown(registry, target, &selection, listed.objects).await?;
        for object in &target.resource.show_all(registry, objects).await? {
            line(&mut first, Change::Added, object, &mut form, listed.revision);
        }
        if options.bookmarks {
            bookmark(&mut first, target, listed.revision, true);
        }
        (watch, listed.revision)
    } else {
        let revision = match options.revision {
            Some(revision) if revision > 0 => revision,
            Some(_) => registry.cache().revision(),
            None => {
                registry.consistent().await?;
                registry.cache().revision()
            }
        };
        let watch = prefix.watch(interest, revision).map_err(|WatchError::Expired { asked, oldest }| {
            ApiError::expired(format!("too old resource version: {asked} ({oldest})"))
        })?;
        (watch, revision)
    };
    let now = Instant::now();
    Ok(State {
        watch,
        selection,
        resource: Arc::clone(&target.resource),
        form,
        first,
        deadline: now + options.timeout.unwrap_or_else(default_timeout).min(LONGEST_TIMEOUT),
        bookmarks: options.bookmarks,
        next_bookmark: now + BOOKMARK_PERIOD,
        revision,
        registry: Arc::clone(registry),
        stop,
    })
}

/// Between once and twice [`DEFAULT_TIMEOUT`], so that clients that came together do not come back together.
fn default_timeout() -> Duration {
    let nanos = trine_clock::now().subsec_nanosecond().rem_euclid(1000);
    DEFAULT_TIMEOUT.mul_f64(1.0 + f64::from(nanos) / 1000.0)
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
            let mut told = state.tell(&mut bytes, &event).await;
            for _ in 1..BATCH {
                let Some(event) = state.watch.ready().filter(|_| told.is_ok()) else { break };
                told = state.tell(&mut bytes, &event).await;
            }
            if let Err(error) = told {
                return Some((Ok(with_error(bytes, &error)), None));
            }
        }
        () = sleep_until(state.next_bookmark), if state.bookmarks => {
            state.next_bookmark += BOOKMARK_PERIOD;
            // Nothing wanted happened up to what the cache shows now, if nothing waits.
            let shown = state.registry.cache().revision();
            if let Some(event) = state.watch.ready() {
                if let Err(error) = state.tell(&mut bytes, &event).await {
                    return Some((Ok(with_error(bytes, &error)), None));
                }
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

/// The end of a watch that cannot go on.
fn with_error(mut bytes: Vec<u8>, error: &ApiError) -> Bytes {
    let event = json!({"type": "ERROR", "object": error.status()});
    bytes.extend_from_slice(format!("{event}\n").as_bytes());
    bytes.into()
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
