//! The feed: one watch stream, begun again where it broke.

use super::client::Client;
use super::wire::{
    Event, WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchResponse, WatchUnion, revision,
    signed,
};
use crate::store::{Change, News};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::UnboundedReceiverStream;

/// Between two attempts to watch, doubled up to the second.
const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// What the feed's task works with.
pub struct Follower {
    pub client: Client,
    /// The prefix of all keys in etcd, and the first key behind them.
    pub range: (Vec<u8>, Vec<u8>),
    /// Bytes of a key that are not ours.
    pub skip: usize,
    /// Everything up to here is told.
    pub told: u64,
    pub out: mpsc::UnboundedSender<News>,
    /// The revision up to which somebody wants to be told.
    pub wanted: watch::Receiver<u64>,
}

/// Why a stream ended.
enum End {
    /// Nobody listens.
    Unwanted,
    /// What comes next is no longer there.
    Compacted(i64),
    /// It broke.
    Broken(String),
}

impl Follower {
    /// Tells all changes until nobody listens. Ends also when etcd forgot what would come next: the listener has to begin
    /// anew.
    pub async fn run(mut self) {
        let mut wait = RETRY.0;
        loop {
            let told = self.told;
            match self.stream().await {
                End::Unwanted => return,
                End::Compacted(at) => {
                    tracing::error!(told, compacted = at, "etcd forgot changes before they were told");
                    return;
                }
                End::Broken(why) => tracing::warn!(why, "the watch on etcd broke and is begun again"),
            }
            wait = if self.told > told { RETRY.0 } else { (wait * 2).min(RETRY.1) };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.out.closed() => return,
            }
        }
    }

    async fn stream(&mut self) -> End {
        let (requests, queue) = mpsc::unbounded_channel();
        let create = WatchCreateRequest {
            key: self.range.0.clone(),
            range_end: self.range.1.clone(),
            start_revision: signed(self.told + 1),
            progress_notify: true,
            prev_kv: true,
            fragment: true,
        };
        let send = |request| requests.send(WatchRequest { request: Some(request) }).is_ok();
        send(WatchUnion::Create(create));
        let mut answers = match self.client.watch(UnboundedReceiverStream::new(queue)).await {
            Ok(answers) => answers,
            Err(status) => return End::Broken(status.to_string()),
        };
        let mut parts: Vec<Event> = Vec::new();
        let mut progress = tokio::time::interval(Duration::from_millis(20));
        progress.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let behind = *self.wanted.borrow() > self.told;
            tokio::select! {
                () = self.out.closed() => return End::Unwanted,
                answer = answers.message() => match answer {
                    Ok(Some(answer)) => match self.take(answer, &mut parts) {
                        Ok(()) => {}
                        Err(end) => return end,
                    },
                    Ok(None) => return End::Broken("the stream ended".to_owned()),
                    Err(status) => return End::Broken(status.to_string()),
                },
                // Somebody else's key moved the revision on: nothing of ours will say so.
                _ = progress.tick(), if behind => {
                    send(WatchUnion::Progress(WatchProgressRequest {}));
                }
                changed = self.wanted.changed(), if !behind => if changed.is_err() {
                    return End::Unwanted;
                },
            }
        }
    }

    fn take(&mut self, answer: WatchResponse, parts: &mut Vec<Event>) -> Result<(), End> {
        if answer.canceled {
            return Err(match answer.compact_revision {
                0 => End::Broken(answer.cancel_reason),
                at => End::Compacted(at),
            });
        }
        if answer.created {
            return Ok(());
        }
        parts.extend(answer.events);
        if answer.fragment {
            return Ok(());
        }
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let changes: Vec<Change> = parts.drain(..).filter_map(|event| change(event, self.skip, at)).collect();
        let last = changes.last().map_or_else(|| revision(answer.header.as_ref()), |c| c.revision);
        if last <= self.told && changes.is_empty() {
            return Ok(());
        }
        self.told = last;
        self.out.send(News { changes: changes.into(), revision: last }).map_err(|_| End::Unwanted)
    }
}

/// An event as a change; the key loses its prefix of `skip` bytes.
fn change(event: Event, skip: usize, at: u64) -> Option<Change> {
    let kv = event.kv?;
    let key = std::str::from_utf8(kv.key.get(skip..)?).ok()?;
    let deleted = event.kind == 1;
    let before = event.prev_kv;
    let previous = before.as_ref().map_or(0, |b| u64::try_from(b.mod_revision).unwrap_or(0));
    let value = if deleted { before.map(|b| b.value).unwrap_or_default() } else { kv.value };
    let revision = u64::try_from(kv.mod_revision).ok()?;
    Some(Change { revision, key: Arc::from(key), previous, deleted, value, at })
}
