//! The thread through which every write goes.

use super::backend::Limits;
use super::checkpoint::Checkpoint;
use super::frame;
use super::journal::{AppendError, Journal, SEGMENT};
use super::record::Batch;
use super::tables;
use crate::store::{Change, Expect, Feed, News, Op, StoreError, Write};
use bytes::Bytes;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{mpsc, oneshot};

/// The most writes in one commit: bounds the latency of the first of them.
const BATCH: usize = 512;
/// Bytes of writes after which a commit takes no more.
const BATCH_BYTES: usize = 512 << 10;
/// How long a commit waits for as many writers as the one before it had: those that were just answered come back at once,
/// and one that is left behind waits for a whole `fdatasync`. A lone writer is never waited for.
const WINDOW: Duration = Duration::from_millis(1);
/// The longest sleep: a moved wall clock delays an expiry by no more than this.
const LONGEST_SLEEP: Duration = Duration::from_secs(3600);

/// What the handle asks of the thread.
pub enum Command {
    Write(Write, oneshot::Sender<Result<u64, StoreError>>),
    Feed(u64, oneshot::Sender<Result<Feed, StoreError>>),
    Compact(u64, oneshot::Sender<Result<(), StoreError>>),
}

/// The thread's state.
pub struct Writer {
    pub db: Arc<redb::Database>,
    pub checkpoint: Arc<Checkpoint>,
    pub journal: Journal,
    /// The last revision given; others read it.
    pub newest: Arc<AtomicU64>,
    pub revision: u64,
    /// Changes up to here are not all kept.
    pub compacted: u64,
    /// Last revision and time of each kept commit.
    pub past: VecDeque<(u64, u64)>,
    /// The revision of each key.
    pub index: HashMap<Arc<str>, u64>,
    /// (second of expiry, revision of the write, key); keys that were written again are still there.
    pub expiry: BTreeSet<(u64, u64, Arc<str>)>,
    pub limits: Limits,
    pub feeds: Vec<mpsc::UnboundedSender<News>>,
    /// Set once the disk does not say what it holds; others read it.
    pub lost: Arc<OnceLock<StoreError>>,
}

type Waiting = (Write, oneshot::Sender<Result<u64, StoreError>>);

/// Changes that are applied to the index and not yet durable.
#[derive(Default)]
struct Draft {
    changes: Vec<Change>,
    expires: Vec<u64>,
    undo: Vec<(Arc<str>, Option<u64>)>,
    /// Taken out of the expiry list.
    due: Vec<(u64, u64, Arc<str>)>,
}

impl Writer {
    /// Works until every handle is gone.
    pub fn run(mut self, commands: &Receiver<Command>) {
        let mut expected = 1;
        loop {
            let next = self.expiry.first().map(|(at, ..)| *at);
            let sleep = next.map_or(LONGEST_SLEEP, |at| {
                Duration::from_secs(at.saturating_sub(now())).clamp(Duration::from_millis(10), LONGEST_SLEEP)
            });
            let first = match commands.recv_timeout(sleep) {
                Ok(command) => Some(command),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let (writes, others) = gather(first, commands, expected);
            let due = self.expiry.first().is_some_and(|(at, ..)| *at <= now());
            expected = writes.len();
            if due || !writes.is_empty() {
                self.commit(writes, due);
            }
            for command in others {
                self.answer(command);
            }
        }
    }

    fn answer(&mut self, command: Command) {
        match command {
            Command::Write(write, reply) => self.commit(vec![(write, reply)], false),
            Command::Feed(after, reply) => drop(reply.send(self.feed(after))),
            Command::Compact(through, reply) => {
                self.forget(through.min(self.revision));
                drop(reply.send(Ok(())));
            }
        }
    }

    fn feed(&mut self, after: u64) -> Result<Feed, StoreError> {
        if after < self.compacted {
            return Err(StoreError::Compacted { asked: after, oldest: self.compacted });
        }
        let history = self.journal.since(after);
        let history =
            history.map_err(|e| StoreError::Engine { call: "read the journal", source: Arc::new(e) })?;
        let (sender, receiver) = mpsc::unbounded_channel();
        if !history.is_empty() {
            drop(sender.send(News { changes: history.into(), revision: self.revision }));
        }
        self.feeds.push(sender);
        Ok(receiver)
    }

    /// Forgets changes up to a revision.
    fn forget(&mut self, through: u64) {
        if through > self.compacted {
            self.compacted = through;
            self.checkpoint.compacted(through);
        }
        while self.past.front().is_some_and(|(last, _)| *last <= through) {
            self.past.pop_front();
        }
        self.journal.forget(self.compacted, self.checkpoint.covered());
    }

    fn commit(&mut self, writes: Vec<Waiting>, expire: bool) {
        let mut draft = Draft::default();
        let done = self.draft(&mut draft, &writes, expire).and_then(|results| {
            self.persist(&draft)?;
            Ok(results)
        });
        match done {
            Ok(results) => {
                self.publish(draft);
                for ((_, reply), result) in writes.into_iter().zip(results) {
                    drop(reply.send(result));
                }
            }
            Err(error) => {
                tracing::error!(%error, cause = ?std::error::Error::source(&error), "commit failed");
                for (key, revision) in draft.undo.into_iter().rev() {
                    match revision {
                        Some(revision) => drop(self.index.insert(key, revision)),
                        None => drop(self.index.remove(&key)),
                    }
                }
                self.expiry.extend(draft.due);
                for (_, reply) in writes {
                    drop(reply.send(Err(error.clone())));
                }
            }
        }
    }

    /// The effect of the writes in their order; what each of them is to be told.
    fn draft(
        &mut self,
        draft: &mut Draft,
        writes: &[Waiting],
        expire: bool,
    ) -> Result<Vec<Result<u64, StoreError>>, StoreError> {
        if let Some(lost) = self.lost.get() {
            return Err(lost.clone());
        }
        let now = now();
        if expire {
            self.expire(draft, now)?;
        }
        let mut results = Vec::with_capacity(writes.len());
        for (write, _) in writes {
            match self.apply(draft, write, now) {
                Err(error @ StoreError::Engine { .. }) => return Err(error),
                result => results.push(result),
            }
        }
        Ok(results)
    }

    fn expire(&mut self, draft: &mut Draft, now: u64) -> Result<(), StoreError> {
        while self.expiry.first().is_some_and(|(at, ..)| *at <= now) {
            let Some(due) = self.expiry.pop_first() else { break };
            let (revision, key) = (due.1, due.2.clone());
            draft.due.push(due);
            let write = Write { key, expect: Expect::At(revision), op: Op::Delete { last: None } };
            match self.apply(draft, &write, now) {
                // It has been written again, or is gone.
                Ok(_) | Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn apply(&mut self, draft: &mut Draft, write: &Write, now: u64) -> Result<u64, StoreError> {
        let actual = self.index.get(&write.key).copied().unwrap_or(0);
        let newest = self.revision + draft.changes.len() as u64;
        let expected = write.expect.revision();
        let absent = matches!(write.op, Op::Delete { .. }) && actual == 0;
        if actual != expected || absent {
            let expected = if absent { expected.max(1) } else { expected };
            return Err(StoreError::Conflict { key: write.key.clone(), expected, actual, newest });
        }
        let (deleted, value, ttl) = match &write.op {
            Op::Put { value, ttl } => (false, value.clone(), *ttl),
            Op::Delete { last: Some(last) } => (true, last.clone(), None),
            Op::Delete { last: None } => (true, self.value(draft, &write.key)?, None),
        };
        if frame::room(&write.key, value.len()) + frame::OVERHEAD > SEGMENT {
            let (key, bytes) = (write.key.clone(), value.len());
            return Err(StoreError::TooLarge { key, bytes, most: SEGMENT - frame::OVERHEAD });
        }
        let revision = newest + 1;
        let step = self.limits.expiry_step.as_secs().max(1);
        let expires = ttl.map_or(0, |ttl| (now + u64::from(ttl)).next_multiple_of(step));
        let before = if deleted {
            self.index.remove(&write.key)
        } else {
            self.index.insert(write.key.clone(), revision)
        };
        draft.undo.push((write.key.clone(), before));
        let key = write.key.clone();
        draft.changes.push(Change { revision, key, previous: actual, deleted, value, at: now });
        draft.expires.push(expires);
        Ok(revision)
    }

    fn value(&self, draft: &Draft, key: &str) -> Result<Bytes, StoreError> {
        let drafted = draft.changes.iter().rev().find(|c| &*c.key == key && !c.deleted);
        let known = drafted.map(|c| c.value.clone()).or_else(|| self.checkpoint.value(key));
        match known {
            Some(value) => Ok(value),
            None => Ok(tables::value(&self.db, key)?.unwrap_or_default()),
        }
    }

    fn persist(&mut self, draft: &Draft) -> Result<(), StoreError> {
        if draft.changes.is_empty() {
            return Ok(());
        }
        let refused = |e| StoreError::Engine { call: "write the journal", source: Arc::new(e) };
        if !self.checkpoint.room() {
            return Err(refused(std::io::ErrorKind::TimedOut.into()));
        }
        let batch = Batch { changes: draft.changes.as_slice().into(), expires: draft.expires.clone() };
        match self.journal.append(&batch) {
            Ok(()) => {}
            Err(AppendError::Refused(error)) => return Err(refused(error)),
            Err(AppendError::Lost(error)) => {
                let lost = StoreError::Engine { call: "sync the journal", source: Arc::new(error) };
                return Err(self.lost.get_or_init(|| lost).clone());
            }
        }
        Ok(())
    }

    /// What is durable goes to the checkpoint, to the feeds, and into the accounts.
    fn publish(&mut self, draft: Draft) {
        let Some(last) = draft.changes.last() else { return };
        let (revision, at) = (last.revision, last.at);
        for (change, expires) in draft.changes.iter().zip(&draft.expires) {
            if *expires > 0 {
                self.expiry.insert((*expires, change.revision, change.key.clone()));
            }
        }
        let changes: Arc<[Change]> = draft.changes.into();
        self.revision = revision;
        self.past.push_back((revision, at));
        let oldest = at.saturating_sub(self.limits.age.as_secs());
        let fewest = revision.saturating_sub(self.limits.changes as u64);
        let spent = |(last, at): &&(u64, u64)| *last <= fewest || *at < oldest;
        let through = self.past.iter().take_while(spent).last().map(|(last, _)| *last);
        self.checkpoint.push(Batch { changes: changes.clone(), expires: draft.expires }, self.compacted);
        if let Some(through) = through {
            self.forget(through);
        }
        self.newest.store(revision, Ordering::Release);
        let news = News { changes, revision };
        self.feeds.retain(|feed| feed.send(news.clone()).is_ok());
    }
}

/// What is in the queue, and what comes while as many writers are waited for as came last time.
fn gather(
    first: Option<Command>,
    commands: &Receiver<Command>,
    expected: usize,
) -> (Vec<Waiting>, Vec<Command>) {
    let (mut writes, mut others, mut bytes) = (Vec::new(), Vec::new(), 0);
    let until = Instant::now() + WINDOW;
    let mut next = first;
    while let Some(command) = next {
        match command {
            Command::Write(write, reply) => {
                bytes += match &write.op {
                    Op::Put { value, .. } | Op::Delete { last: Some(value) } => value.len(),
                    Op::Delete { last: None } => 0,
                };
                writes.push((write, reply));
            }
            other => others.push(other),
        }
        if writes.len() + others.len() >= BATCH || bytes >= BATCH_BYTES {
            break;
        }
        next = commands.try_recv().ok();
        if next.is_none() && writes.len() < expected && others.is_empty() {
            next = commands.recv_timeout(until.saturating_duration_since(Instant::now())).ok();
        }
    }
    (writes, others)
}

pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
