//! The handle on the thread.

use super::tables::{self, engine};
use super::writer::{Command, Writer};
use crate::store::{Feed, Snapshot, Store, StoreError, Write};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;

/// Bytes of pages that the engine keeps in memory. All reads come from the watch cache, so this is small.
const PAGE_CACHE: usize = 8 << 20;

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

/// A store in one file. Dropping it waits for the commit under way.
pub struct RedbStore {
    db: Arc<redb::Database>,
    commands: Option<mpsc::Sender<Command>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl RedbStore {
    /// Opens or makes the file. It is locked: a second process that opens it gets an error.
    ///
    /// # Errors
    /// [`StoreError::Engine`] if the file cannot be opened, is locked or is broken.
    pub fn open(path: &Path, limits: Limits) -> Result<Self, StoreError> {
        let db = redb::Database::builder()
            .set_cache_size(PAGE_CACHE)
            .create(path)
            .map_err(engine("open the database file"))?;
        let db = Arc::new(db);
        let marks = tables::open(&db)?;
        let (commands, queue) = mpsc::channel();
        let writer = Writer { db: db.clone(), marks, limits, feeds: Vec::new(), considered: marks.revision };
        let thread = std::thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || writer.run(&queue))
            .map_err(|e| StoreError::Engine { call: "start the writer", source: Arc::new(e) })?;
        Ok(Self { db, commands: Some(commands), thread: Mutex::new(Some(thread)) })
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
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|t| t.join().is_err()) {
            tracing::error!("the store's writer panicked");
        }
    }
}

impl Store for RedbStore {
    fn write(&self, write: Write) -> BoxFuture<'_, Result<u64, StoreError>> {
        self.ask(|reply| Command::Write(write, reply))
    }

    fn snapshot(&self, prefix: &str) -> BoxFuture<'_, Result<Snapshot, StoreError>> {
        let (db, prefix) = (self.db.clone(), prefix.to_owned());
        async move {
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
}
