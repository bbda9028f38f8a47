//! The handle on the threads.

use super::checkpoint::Checkpoint;
use super::journal::Journal;
use super::tables::{self, engine};
use super::writer::{Command, Writer};
use crate::store::{Feed, Snapshot, Store, StoreError, Write};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;

/// Bytes of pages that the engine keeps in memory. All reads come from the watch cache, so this is small.
const PAGE_CACHE: usize = 8 << 20;

/// By how much a restore moves the revision on: more than any store is likely to be ahead of its backup.
pub const RESTORED: u64 = 1_000_000_000;

/// How much of the past is kept for watchers; whatever exceeds either is forgotten.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Changes. Default 10,000.
    pub changes: usize,
    /// Age. Default 5 minutes, upstream's compaction interval.
    pub age: Duration,
    /// Keys with a time to live go at multiples of this, so that an idle store seldom wakes. Default 30 s.
    pub expiry_step: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { changes: 10_000, age: Duration::from_secs(300), expiry_step: Duration::from_secs(30) }
    }
}

/// A store in one file with a journal beside it. Dropping it waits for the commit under way.
pub struct RedbStore {
    db: Arc<redb::Database>,
    checkpoint: Arc<Checkpoint>,
    newest: Arc<AtomicU64>,
    lost: Arc<OnceLock<StoreError>>,
    commands: Option<mpsc::Sender<Command>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl RedbStore {
    /// Opens or makes the file; the journal is the folder of the same name with `.journal` added. It is locked: a second
    /// process that opens it gets an error.
    ///
    /// # Errors
    /// [`StoreError::Engine`] if the file cannot be opened, is locked or is broken, or if the journal lacks something that
    /// was acknowledged.
    pub fn open(path: &Path, limits: Limits) -> Result<Self, StoreError> {
        let db = Arc::new(database(path)?);
        let marks = tables::open(&db)?;
        let (mut index, mut expiry) = (HashMap::new(), BTreeSet::new());
        tables::each(&db, "", |key, row| {
            let key = Arc::<str>::from(key);
            if row.expires > 0 {
                expiry.insert((row.expires, row.revision, key.clone()));
            }
            index.insert(key, row.revision);
        })?;
        let (journal, batches) = Journal::open(&journal_dir(path), marks.revision)
            .map_err(|e| StoreError::Engine { call: "open the journal", source: Arc::new(e) })?;
        let first = journal.first().filter(|_| !batches.is_empty());
        let compacted = marks.compacted.max(first.map_or(marks.revision, |first| first - 1));
        let checkpoint = Arc::new(Checkpoint::new(marks, compacted));
        let mut past = VecDeque::new();
        for batch in batches {
            past.extend(batch.changes.last().map(|c| (c.revision, c.at)));
            if batch.last() <= marks.revision {
                continue;
            }
            for (change, expires) in batch.changes.iter().zip(&batch.expires) {
                if change.deleted {
                    index.remove(&change.key);
                } else {
                    index.insert(change.key.clone(), change.revision);
                }
                if *expires > 0 {
                    expiry.insert((*expires, change.revision, change.key.clone()));
                }
            }
            checkpoint.push(batch, compacted);
        }
        let revision = past.back().map_or(0, |(last, _)| *last).max(marks.revision);
        let newest = Arc::new(AtomicU64::new(revision));
        let lost = Arc::<OnceLock<StoreError>>::default();
        let (commands, queue) = mpsc::channel();
        let writer = Writer {
            db: db.clone(),
            checkpoint: checkpoint.clone(),
            journal,
            newest: newest.clone(),
            revision,
            compacted,
            past,
            index,
            expiry,
            limits,
            feeds: Vec::new(),
            lost: lost.clone(),
        };
        let (carried, target) = (checkpoint.clone(), db.clone());
        let threads = vec![
            thread("store", move || writer.run(&queue))?,
            thread("checkpoint", move || carried.run(&target))?,
        ];
        Ok(Self { db, checkpoint, newest, lost, commands: Some(commands), threads: Mutex::new(threads) })
    }

    /// Makes a store of a snapshot. Its revision is moved on by [`RESTORED`], so that nobody who saw newer ones than the
    /// snapshot's takes an old state for a new one: they are told that theirs is forgotten.
    ///
    /// # Errors
    /// [`StoreError::Engine`] if anything is at the path, or if it cannot be written; nothing is left then.
    pub fn restore(path: &Path, snapshot: &Snapshot) -> Result<(), StoreError> {
        let refused = |e| StoreError::Engine { call: "make the database file", source: Arc::new(e) };
        if path.exists() || journal_dir(path).exists() {
            let why = format!("{} is there already: a restore overwrites no store", path.display());
            return Err(refused(std::io::Error::new(std::io::ErrorKind::AlreadyExists, why)));
        }
        let mut partial = path.as_os_str().to_owned();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        let _ = std::fs::remove_file(&partial);
        let made =
            database(&partial).and_then(|db| tables::fill(&db, snapshot, snapshot.revision + RESTORED));
        let made = made.and_then(|()| std::fs::rename(&partial, path).map_err(refused));
        if made.is_err() {
            let _ = std::fs::remove_file(&partial);
        }
        made
    }

    fn ask<T: Send + 'static>(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Command,
    ) -> BoxFuture<'_, Result<T, StoreError>> {
        let (reply, answer) = oneshot::channel();
        let sent = self.commands.as_ref().is_some_and(|c| c.send(command(reply)).is_ok());
        async move {
            if !sent {
                return Err(StoreError::Closed);
            }
            answer.await.unwrap_or(Err(StoreError::Closed))
        }
        .boxed()
    }
}

impl Drop for RedbStore {
    fn drop(&mut self) {
        self.commands = None;
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            let name = thread.thread().name().unwrap_or_default().to_owned();
            if thread.join().is_err() {
                tracing::error!(name, "a thread of the store panicked");
            }
            // The writer is the first; what it did last goes into the last checkpoint.
            self.checkpoint.close();
        }
    }
}

fn database(path: &Path) -> Result<redb::Database, StoreError> {
    let database = redb::Database::builder().set_cache_size(PAGE_CACHE).create(path);
    database.map_err(engine("open the database file"))
}

fn journal_dir(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".journal");
    name.into()
}

fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, StoreError> {
    let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(work);
    spawned.map_err(|e| StoreError::Engine { call: "start a thread", source: Arc::new(e) })
}

impl Store for RedbStore {
    fn write(&self, write: Write) -> BoxFuture<'_, Result<u64, StoreError>> {
        self.ask(|reply| Command::Write(write, reply))
    }

    fn snapshot(&self, prefix: &str) -> BoxFuture<'_, Result<Snapshot, StoreError>> {
        let (db, prefix, flushed) = (self.db.clone(), prefix.to_owned(), self.checkpoint.flush());
        async move {
            flushed.await.unwrap_or(Err(StoreError::Closed))?;
            tokio::task::spawn_blocking(move || tables::snapshot(&db, &prefix))
                .await
                .unwrap_or(Err(StoreError::Closed))
        }
        .boxed()
    }

    fn feed(&self, after: u64) -> BoxFuture<'_, Result<Feed, StoreError>> {
        self.ask(|reply| Command::Feed(after, reply))
    }

    fn compact(&self, through: u64) -> BoxFuture<'_, Result<(), StoreError>> {
        self.ask(|reply| Command::Compact(through, reply))
    }

    fn revision(&self) -> BoxFuture<'_, Result<u64, StoreError>> {
        let newest = self.newest.load(Ordering::Acquire);
        let lost = self.lost.get().cloned();
        async move { lost.map_or(Ok(newest), Err) }.boxed()
    }
}
