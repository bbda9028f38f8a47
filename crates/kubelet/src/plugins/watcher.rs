//! Sockets in the registration folder: those that come are registered, those that go are forgotten. One that nobody answers on
//! yet is tried again: its maker has given it its name (`bind`), and is about to listen.

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
use crate::devices::DeviceDrivers;
use crate::devices::slices::Slices;
use crate::wake::Wakers;

/// Rescan, against a notification that was lost.
const RESCAN: Duration = Duration::from_secs(10);
/// First and longest pause after a failed registration.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));

/// Which socket is at a path: the inode, and when it was made, because a new socket may be given the old one's inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Socket {
    inode: u64,
    made: (i64, i64),
}

/// One socket by path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Attempt {
    socket: Socket,
    registered: bool,
    pause: Duration,
    next: Instant,
}

impl Attempt {
    /// The attempt after one that failed: later, and later again.
    fn failed(self, now: Instant) -> Self {
        Self { next: now + self.pause, pause: (self.pause * 2).min(BACKOFF.1), ..self }
    }
}

/// Where those that register are noted.
pub struct Known {
    /// Drivers of storage, and how the cluster is told of them.
    pub drivers: Drivers,
    /// The cluster.
    pub cluster: Cluster,
    /// Drivers of devices.
    pub devices: DeviceDrivers,
    /// What they offer.
    pub slices: Slices,
}

/// Watches `dir` until `stop`.
pub async fn run(dir: PathBuf, known: Known, wakers: Wakers, stop: CancellationToken) {
    if let Err(error) = std::fs::create_dir_all(&dir) {
        tracing::error!(dir = %dir.display(), %error, "no folder for registrations");
        return;
    }
    let mut events = watch(&dir);
    let mut attempts: HashMap<PathBuf, Attempt> = HashMap::new();
    loop {
        let sockets = scan(&dir);
        forget_gone(&sockets, &mut attempts, &known).await;
        for (path, socket) in sockets {
            try_one(&path, socket, &mut attempts, &known, &wakers).await;
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

fn scan(dir: &Path) -> BTreeMap<PathBuf, Socket> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter(|e| !e.file_name().to_string_lossy().starts_with('.'))
        .filter_map(|e| {
            let meta = e.metadata().ok()?;
            let socket = Socket { inode: meta.ino(), made: (meta.mtime(), meta.mtime_nsec()) };
            meta.file_type().is_socket().then(|| (e.path(), socket))
        })
        .collect()
}

async fn forget_gone(
    sockets: &BTreeMap<PathBuf, Socket>,
    attempts: &mut HashMap<PathBuf, Attempt>,
    known: &Known,
) {
    let gone: Vec<PathBuf> = attempts.keys().filter(|path| !sockets.contains_key(*path)).cloned().collect();
    for path in gone {
        attempts.remove(&path);
        if let Some(name) = known.devices.remove(&path) {
            tracing::info!(driver = name, "driver of devices gone");
            known.slices.driver_gone(name);
        }
        if let Some(name) = known.drivers.remove(&path) {
            tracing::info!(driver = name, "driver gone");
            if let Err(error) = known.cluster.remove(&name).await {
                tracing::warn!(driver = name, error = error.chain(), "CSINode still names the driver");
            }
        }
    }
}

/// Whether somebody answers on the socket. A name without a listener may be one whose maker is about to listen: to remove it
/// would hide that driver for ever.
async fn answered(path: &Path) -> bool {
    match UnixStream::connect(path).await {
        Ok(_) => true,
        Err(error) => error.kind() != std::io::ErrorKind::ConnectionRefused,
    }
}

async fn try_one(
    path: &Path,
    socket: Socket,
    attempts: &mut HashMap<PathBuf, Attempt>,
    known: &Known,
    wakers: &Wakers,
) {
    let now = Instant::now();
    let mut attempt = match attempts.get(path) {
        Some(attempt) if attempt.socket == socket => *attempt,
        _ => Attempt { socket, registered: false, pause: BACKOFF.0, next: now },
    };
    if attempt.registered || attempt.next > now {
        return;
    }
    if !answered(path).await {
        tracing::debug!(path = %path.display(), "nobody answers on this registration yet");
        attempts.insert(path.to_owned(), attempt.failed(Instant::now()));
        return;
    }
    match register::register(path, known).await {
        Ok(name) => {
            tracing::info!(driver = name, "driver registered");
            attempt.registered = true;
            wakers.wake_all();
        }
        Err(error) => {
            tracing::warn!(path = %path.display(), error = error.chain(), "driver not registered");
            attempt = attempt.failed(Instant::now());
        }
    }
    attempts.insert(path.to_owned(), attempt);
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::UnixSocket;
    use trine_typed::kube::{Client, Config};

    /// A name in the folder, without a listener: what a driver has made between `bind` and `listen`.
    fn bound(path: &Path) -> UnixSocket {
        let socket = UnixSocket::new_stream().unwrap();
        socket.bind(path).unwrap();
        socket
    }

    #[tokio::test]
    async fn a_socket_whose_maker_does_not_listen_yet_stays_and_is_asked_when_it_does() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("slow-reg.sock");
        let socket = bound(&path);
        let client = Client::try_from(Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
        let (stop, devices) = (CancellationToken::new(), DeviceDrivers::default());
        let known = Known {
            drivers: Drivers::default(),
            cluster: Cluster::new(client.clone(), "n".to_owned(), "uid".to_owned()),
            slices: Slices::new(client, "n", devices.clone(), stop.clone()),
            devices,
        };
        let watching = tokio::spawn(run(dir.path().to_owned(), known, Wakers::default(), stop.clone()));
        tokio::time::sleep(BACKOFF.0 * 2).await;
        assert!(path.exists(), "the name of a driver that is about to listen was taken away");
        let listener = socket.listen(8).unwrap();
        let asked = async {
            // The first connection only looks whether somebody is there.
            let _ = listener.accept().await.unwrap();
            listener.accept().await.unwrap()
        };
        tokio::time::timeout(Duration::from_secs(5), asked).await.expect("it is asked");
        stop.cancel();
        watching.abort();
    }

    #[tokio::test]
    async fn a_new_socket_at_the_old_path_is_another_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("d-reg.sock");
        let first = bound(&path);
        let before = scan(dir.path())[&path];
        drop(first);
        std::fs::remove_file(&path).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        let _second = bound(&path);
        let after = scan(dir.path())[&path];
        assert_ne!(before, after);
    }
}
