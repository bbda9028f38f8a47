//! The thread that owns the database.

use super::backend::Limits;
use super::tables::{self, Batch, Marks, engine};
use crate::store::{Change, Feed, StoreError, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::{mpsc, oneshot};

/// The most writes in one commit: bounds the latency of the first of them.
const BATCH: usize = 512;
/// Compaction looks at the log's age once per this many revisions.
const COMPACT_EVERY: u64 = 256;
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
    pub marks: Marks,
    pub limits: Limits,
    pub feeds: Vec<mpsc::UnboundedSender<Arc<[Change]>>>,
    /// Revision at which compaction was last considered.
    pub considered: u64,
}

type Waiting = (Write, oneshot::Sender<Result<u64, StoreError>>);

impl Writer {
    /// Works until every handle is gone.
    pub fn run(mut self, commands: &Receiver<Command>) {
        let mut expiry = tables::next_expiry(&self.db).unwrap_or_default();
        loop {
            let sleep = expiry.map_or(LONGEST_SLEEP, |at| {
                Duration::from_secs(at.saturating_sub(now())).clamp(Duration::from_millis(10), LONGEST_SLEEP)
            });
            let first = match commands.recv_timeout(sleep) {
                Ok(command) => Some(command),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let due = expiry.is_some_and(|at| at <= now());
            let mut writes = Vec::new();
            let mut others = Vec::new();
            let queued = first.into_iter().chain(commands.try_iter()).take(BATCH);
            for command in queued {
                match command {
                    Command::Write(write, reply) => writes.push((write, reply)),
                    other => others.push(other),
                }
            }
            let ttl = writes.iter().any(|(w, _)| matches!(w.op, crate::store::Op::Put { ttl: Some(_), .. }));
            if due || !writes.is_empty() {
                self.commit(writes, due);
            }
            if due || ttl {
                expiry = tables::next_expiry(&self.db).unwrap_or_default();
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
                let done = self.transact(|batch| batch.compact(through));
                drop(reply.send(done));
            }
        }
    }

    fn feed(&mut self, after: u64) -> Result<Feed, StoreError> {
        if after < self.marks.compacted {
            return Err(StoreError::Compacted { asked: after, oldest: self.marks.compacted });
        }
        let history = tables::history(&self.db, after)?;
        let (sender, receiver) = mpsc::unbounded_channel();
        if !history.is_empty() {
            drop(sender.send(history.into()));
        }
        self.feeds.push(sender);
        Ok(receiver)
    }

    /// Runs `work` in one durable transaction. On an error nothing has changed.
    fn transact<T>(
        &mut self,
        work: impl FnOnce(&mut Batch<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut txn = self.db.begin_write().map_err(engine("begin"))?;
        txn.set_durability(redb::Durability::Immediate).map_err(engine("begin"))?;
        // A killed process leaves a file that opens at once, for a little more work per commit.
        txn.set_quick_repair(true);
        let mut batch = Batch::open(&txn, self.marks, now(), self.limits.expiry_step.as_secs().max(1))?;
        let result = work(&mut batch)?;
        let marks = batch.finish()?;
        txn.commit().map_err(engine("commit"))?;
        self.marks = marks;
        Ok(result)
    }

    fn commit(&mut self, writes: Vec<Waiting>, expire: bool) {
        let age = self.limits.age.as_secs();
        let keep = self.limits.changes;
        let consider = self.marks.revision >= self.considered + COMPACT_EVERY;
        let done = self.transact(|batch| {
            let mut changes = if expire { batch.expire()? } else { Vec::new() };
            let mut results = Vec::with_capacity(writes.len());
            for (write, _) in &writes {
                match batch.apply(write) {
                    Ok(change) => {
                        results.push(Ok(change.revision));
                        changes.push(change);
                    }
                    Err(e @ StoreError::Conflict { .. }) => results.push(Err(e)),
                    Err(e) => return Err(e),
                }
            }
            if consider {
                if let Some(revision) = batch.older_than(now().saturating_sub(age), keep)? {
                    batch.compact(revision)?;
                }
                let newest = changes.last().map_or(0, |c| c.revision);
                batch.compact(newest.saturating_sub(keep as u64))?;
            }
            Ok((changes, results))
        });
        if consider {
            self.considered = self.marks.revision;
        }
        match done {
            Ok((changes, results)) => {
                if !changes.is_empty() {
                    let changes: Arc<[Change]> = changes.into();
                    self.feeds.retain(|feed| feed.send(changes.clone()).is_ok());
                }
                for ((_, reply), result) in writes.into_iter().zip(results) {
                    drop(reply.send(result));
                }
            }
            Err(error) => {
                tracing::error!(%error, cause = ?std::error::Error::source(&error), "commit failed");
                for (_, reply) in writes {
                    drop(reply.send(Err(error.clone())));
                }
            }
        }
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
