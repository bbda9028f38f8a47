//! The thread that carries commits from the journal into the checkpoint, behind the writers' backs.

use super::record::Batch;
use super::tables::{self, Marks};
use crate::store::StoreError;
use bytes::Bytes;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Bytes of keys and values after which the checkpoint is brought up to date.
const BYTES: usize = 8 << 20;
/// Longest time that a commit is in the journal alone: bounds what a start after `kill -9` has to read.
const AGE: Duration = Duration::from_secs(60);
/// Bytes that may wait for a slow disk; more commits are held up then.
const MOST_BYTES: usize = 64 << 20;
/// How long a commit is held up before it is refused.
const PATIENCE: Duration = Duration::from_secs(10);
/// After a failure, until the next attempt.
const RETRY: Duration = Duration::from_secs(1);

type Reply = oneshot::Sender<Result<(), StoreError>>;

#[derive(Default)]
struct State {
    /// What is not yet being written.
    waiting: Vec<Batch>,
    /// What is being written.
    writing: Arc<Vec<Batch>>,
    bytes: usize,
    oldest: Option<Instant>,
    marks: Marks,
    /// What `marks` was when it was last written.
    written: Marks,
    flushes: Vec<Reply>,
    closing: bool,
    retry: Option<Instant>,
}

/// What the writer, the handle and the thread share.
#[derive(Default)]
pub struct Checkpoint {
    state: Mutex<State>,
    work: Condvar,
    room: Condvar,
}

impl Checkpoint {
    /// One that continues the checkpoint of the database. `compacted` is what is now known of it.
    pub fn new(written: Marks, compacted: u64) -> Self {
        let marks = Marks { compacted, ..written };
        Self { state: Mutex::new(State { marks, written, ..State::default() }), ..Self::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a commit that is durable in the journal.
    pub fn push(&self, batch: Batch, compacted: u64) {
        let mut state = self.lock();
        state.bytes += batch.size();
        state.oldest.get_or_insert_with(Instant::now);
        state.marks = Marks { revision: batch.last(), compacted };
        state.waiting.push(batch);
        if state.bytes >= BYTES {
            self.work.notify_one();
        }
    }

    /// Notes how far the past is forgotten.
    pub fn compacted(&self, through: u64) {
        self.lock().marks.compacted = through;
    }

    /// Waits until another commit may be added; `false` if that takes too long.
    pub fn room(&self) -> bool {
        let state = self.lock();
        if state.bytes < MOST_BYTES {
            return true;
        }
        tracing::warn!("writers wait for the checkpoint: the disk is slow");
        let waited = self.room.wait_timeout_while(state, PATIENCE, |s| s.bytes >= MOST_BYTES);
        waited.unwrap_or_else(PoisonError::into_inner).0.bytes < MOST_BYTES
    }

    /// The revision up to which the checkpoint is durable.
    pub fn covered(&self) -> u64 {
        self.lock().written.revision
    }

    /// The value of a key, if a commit that waits has put it.
    pub fn value(&self, key: &str) -> Option<Bytes> {
        let state = self.lock();
        let batches = state.writing.iter().chain(&state.waiting).rev();
        let mut changes = batches.flat_map(|b| b.changes.iter().rev());
        changes.find(|c| &*c.key == key).filter(|c| !c.deleted).map(|c| c.value.clone())
    }

    /// Brings the checkpoint up to date with all commits so far.
    pub fn flush(&self) -> oneshot::Receiver<Result<(), StoreError>> {
        let (reply, done) = oneshot::channel();
        self.lock().flushes.push(reply);
        self.work.notify_one();
        done
    }

    /// Ends the thread after a last checkpoint.
    pub fn close(&self) {
        self.lock().closing = true;
        self.work.notify_one();
    }

    /// The thread: works until [`close`](Self::close).
    pub fn run(&self, db: &redb::Database) {
        loop {
            let (batches, marks, flushes, closing) = self.wait();
            let done = if batches.is_empty() && self.lock().written == marks {
                Ok(())
            } else {
                tables::checkpoint(db, &batches, marks)
            };
            if let Err(error) = &done {
                tracing::error!(%error, cause = ?std::error::Error::source(error), "the journal keeps what the checkpoint cannot take");
            }
            self.settle(batches, marks, done.is_ok());
            for reply in flushes {
                drop(reply.send(done.clone()));
            }
            if closing {
                return;
            }
        }
    }

    fn wait(&self) -> (Arc<Vec<Batch>>, Marks, Vec<Reply>, bool) {
        let mut state = self.lock();
        loop {
            let at = state.retry.or_else(|| state.oldest.map(|o| o + AGE));
            let left = at.map(|at| at.saturating_duration_since(Instant::now()));
            let full = state.bytes >= BYTES && state.retry.is_none();
            if full || !state.flushes.is_empty() || state.closing || left == Some(Duration::ZERO) {
                break;
            }
            state = match left {
                Some(left) => self.work.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
                None => self.work.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
        state.writing = Arc::new(std::mem::take(&mut state.waiting));
        state.oldest = None;
        state.retry = None;
        let flushes = std::mem::take(&mut state.flushes);
        (state.writing.clone(), state.marks, flushes, state.closing)
    }

    fn settle(&self, batches: Arc<Vec<Batch>>, marks: Marks, ok: bool) {
        let mut state = self.lock();
        state.writing = Arc::default();
        let batches = Arc::unwrap_or_clone(batches);
        if ok {
            state.bytes -= batches.iter().map(Batch::size).sum::<usize>();
            state.written = marks;
            self.room.notify_all();
        } else {
            let later = std::mem::replace(&mut state.waiting, batches);
            state.waiting.extend(later);
            state.retry = Some(Instant::now() + RETRY);
        }
    }
}
