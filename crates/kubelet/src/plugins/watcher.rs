//! Sockets in the registration folder: those that come are registered, those that go are forgotten, those that
//! nobody answers on are removed.

use std::collections::{BTreeMap, HashMap};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::StreamExt;
use inotify::{Inotify, WatchMask};
use tokio::net::UnixStream;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::csinode::Cluster;
use super::drivers::Drivers;
use super::register;
use crate::wake::Wakers;

/// Rescan, against a notification that was lost.
const RESCAN: Duration = Duration::from_secs(10);
/// First and longest pause after a failed registration.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));

/// One socket by path; another inode is another socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Attempt {
    inode: u64,
    registered: bool,
    pause: Duration,
    next: Instant,
}

/// Watches `dir` until `stop`.
pub async fn run(dir: PathBuf, drivers: Drivers, cluster: Cluster, wakers: Wakers, stop: CancellationToken) {
    if let Err(error) = std::fs::create_dir_all(&dir) {
        tracing::error!(dir = %dir.display(), %error, "no folder for registrations");
        return;
    }
    let mut events = watch(&dir);
    let mut attempts: HashMap<PathBuf, Attempt> = HashMap::new();
    loop {
        let sockets = scan(&dir);
        forget_gone(&sockets, &mut attempts, &drivers, &cluster).await;
        for (path, inode) in sockets {
            try_one(&path, inode, &mut attempts, &drivers, &cluster, &wakers).await;
        }
        let next = attempts.values().filter(|a| !a.registered).map(|a| a.next).min();
        let until = next.unwrap_or_else(|| Instant::now() + RESCAN).min(Instant::now() + RESCAN);
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep_until(until) => {}
            () = notified(&mut events) => {}
        }
    }
}

type Events = Option<inotify::EventStream<[u8; 4096]>>;

fn watch(dir: &Path) -> Events {
    let inotify = Inotify::init().ok()?;
    inotify
        .watches()
        .add(dir, WatchMask::CREATE | WatchMask::DELETE | WatchMask::MOVED_TO | WatchMask::MOVED_FROM)
        .ok()?;
    inotify.into_event_stream([0; 4096]).ok()
}

async fn notified(events: &mut Events) {
    match events {
        Some(stream) => {
            if stream.next().await.is_none() {
                *events = None;
            }
        }
        None => std::future::pending().await,
    }
}

fn scan(dir: &Path) -> BTreeMap<PathBuf, u64> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter(|e| !e.file_name().to_string_lossy().starts_with('.'))
        .filter_map(|e| {
            let meta = e.metadata().ok()?;
            meta.file_type().is_socket().then(|| (e.path(), meta.ino()))
        })
        .collect()
}

async fn forget_gone(
    sockets: &BTreeMap<PathBuf, u64>,
    attempts: &mut HashMap<PathBuf, Attempt>,
    drivers: &Drivers,
    cluster: &Cluster,
) {
    let gone: Vec<PathBuf> = attempts.keys().filter(|path| !sockets.contains_key(*path)).cloned().collect();
    for path in gone {
        attempts.remove(&path);
        if let Some(name) = drivers.remove(&path) {
            tracing::info!(driver = name, "driver gone");
            if let Err(error) = cluster.remove(&name).await {
                tracing::warn!(driver = name, error = error.chain(), "CSINode still names the driver");
            }
        }
    }
}

async fn try_one(
    path: &Path,
    inode: u64,
    attempts: &mut HashMap<PathBuf, Attempt>,
    drivers: &Drivers,
    cluster: &Cluster,
    wakers: &Wakers,
) {
    let now = Instant::now();
    let mut attempt = match attempts.get(path) {
        Some(known) if known.inode == inode => *known,
        _ => Attempt { inode, registered: false, pause: BACKOFF.0, next: now },
    };
    if attempt.registered || attempt.next > now {
        return;
    }
    if let Err(error) = UnixStream::connect(path).await
        && error.kind() == std::io::ErrorKind::ConnectionRefused
    {
        tracing::info!(path = %path.display(), "nobody answers on this registration; it is removed");
        let _ = std::fs::remove_file(path);
        return;
    }
    match register::register(path, drivers, cluster).await {
        Ok(name) => {
            tracing::info!(driver = name, "driver registered");
            attempt.registered = true;
            wakers.wake_all();
        }
        Err(error) => {
            tracing::warn!(path = %path.display(), error = error.chain(), "driver not registered");
            attempt.next = Instant::now() + attempt.pause;
            attempt.pause = (attempt.pause * 2).min(BACKOFF.1);
        }
    }
    attempts.insert(path.to_owned(), attempt);
}
