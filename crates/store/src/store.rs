//! The contract of a store: who writes, in which order it happened, who hears of it.

use bytes::Bytes;
use futures::future::BoxFuture;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Why the store did not do what was asked. Display is one line; the cause is the source.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The key is not at the expected revision. The write did not happen.
    #[error("key {key} is at revision {actual}, not at {expected}")]
    Conflict {
        /// The key.
        key: Arc<str>,
        /// The revision that the writer expected; 0 for absent.
        expected: u64,
        /// The revision at which the key is; 0 for absent.
        actual: u64,
        /// The newest revision of all keys by then: who has seen it knows why.
        newest: u64,
    },
    /// The changes after that revision are no longer all kept.
    #[error("revision {asked} has been compacted, the oldest kept is {oldest}")]
    Compacted {
        /// The revision asked for.
        asked: u64,
        /// The oldest from which a feed can start.
        oldest: u64,
    },
    /// The value does not fit. The write did not happen.
    #[error("key {key}: a value of {bytes} bytes is too large, the limit is {most}")]
    TooLarge {
        /// The key.
        key: Arc<str>,
        /// Bytes of the value.
        bytes: usize,
        /// The most that fit.
        most: usize,
    },
    /// The engine failed. The write may or may not have happened.
    #[error("store: {call} failed")]
    Engine {
        /// What was being done.
        call: &'static str,
        /// Why it failed.
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// The store has been closed.
    #[error("the store is closed")]
    Closed,
}

/// What must be true of the key for a write to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// It does not exist.
    Absent,
    /// It was last modified at this revision.
    At(u64),
}

impl Expect {
    /// The revision meant; 0 for absent.
    #[must_use]
    pub fn revision(self) -> u64 {
        match self {
            Self::Absent => 0,
            Self::At(revision) => revision,
        }
    }
}

/// What a write does to its key.
#[derive(Debug, Clone)]
pub enum Op {
    /// Sets the value.
    Put {
        /// The value.
        value: Bytes,
        /// Seconds until the key is deleted by itself, unless it is written again before.
        ttl: Option<u32>,
    },
    /// Deletes the key. The feed carries the final state.
    Delete {
        /// The final state; the stored value if `None`, or where the backend keeps no other (etcd).
        last: Option<Bytes>,
    },
}

/// One write to one key.
#[derive(Debug, Clone)]
pub struct Write {
    /// The key.
    pub key: Arc<str>,
    /// What must hold.
    pub expect: Expect,
    /// What is done.
    pub op: Op,
}

/// A key as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Arc<str>,
    /// Revision of the last modification.
    pub revision: u64,
    /// When it is deleted by itself, in seconds since 1970; 0 for never, or where the backend does not say.
    pub expires: u64,
    /// The value.
    pub value: Bytes,
}

/// Something that happened to a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Its place in the order of all changes.
    pub revision: u64,
    /// The key.
    pub key: Arc<str>,
    /// Revision at which the key was before; 0 if it did not exist.
    pub previous: u64,
    /// Whether the key was deleted.
    pub deleted: bool,
    /// The new value, or the final state of a deleted key.
    pub value: Bytes,
    /// When, in seconds since 1970.
    pub at: u64,
}

/// Everything, at one revision.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// The keys in order.
    pub entries: Vec<Entry>,
    /// The revision that they are as of.
    pub revision: u64,
    /// Changes up to and including this revision are not all kept.
    pub compacted: u64,
}

/// What happened since the last news; often nothing but that the revision moved on.
#[derive(Debug, Clone)]
pub struct News {
    /// The changes, in their order.
    pub changes: Arc<[Change]>,
    /// Everything up to here has been told.
    pub revision: u64,
}

impl std::ops::Deref for News {
    type Target = [Change];

    fn deref(&self) -> &[Change] {
        &self.changes
    }
}

/// Changes in the order of their revisions. Nothing is left out; it ends when the store closes, or when it cannot tell what
/// comes next.
pub type Feed = mpsc::UnboundedReceiver<News>;

/// A store. All calls may be made at the same time; each is atomic.
pub trait Store: Send + Sync + 'static {
    /// Does one write and gives its revision, once it is durable. After [`StoreError::Engine`] the caller does not know
    /// whether it happened; trying again is safe because the expectation then fails.
    fn write(&self, write: Write) -> BoxFuture<'_, Result<u64, StoreError>>;

    /// Everything under a prefix.
    fn snapshot(&self, prefix: &str) -> BoxFuture<'_, Result<Snapshot, StoreError>>;

    /// All changes after a revision: first those that already happened, then those to come.
    fn feed(&self, after: u64) -> BoxFuture<'_, Result<Feed, StoreError>>;

    /// Forgets the changes up to and including a revision. Current values stay.
    fn compact(&self, through: u64) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Whether others may write to the same store, so that the feed can be behind of what they were told.
    fn shared(&self) -> bool {
        false
    }

    /// The newest revision: every write that was acknowledged to anybody before the call is at or below it.
    fn revision(&self) -> BoxFuture<'_, Result<u64, StoreError>>;
}
