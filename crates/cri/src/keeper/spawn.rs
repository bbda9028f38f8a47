//! How the daemon starts a keeper, and finds out whether one lives.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::pipe::{PipeFlags, pipe_with};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use trine_kernel::container::Owners;
use trine_kernel::proc::{ProcessId, SIGKILL, signal_pidfd};
use trine_kernel::testing::failpoint;

use super::client::KeeperError;
use super::nursery::Nursery;
use super::start::READY;

/// The file that a keeper holds locked as long as it lives, and in which it says which process it is.
const LOCK: &str = "keeper.lock";
/// How long a keeper may take to be ready.
const DEADLINE: Duration = Duration::from_secs(30);

/// What a keeper is told.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// The Pod's network namespace; the host's if none.
    pub netns: Option<PathBuf>,
    /// A user namespace of its own, whose the Pod's other namespaces are.
    #[serde(default)]
    pub users: Option<Users>,
    /// True for an IPC namespace of its own.
    pub new_ipc: bool,
    /// Host name in a UTS namespace of its own; the host's namespace if none.
    pub hostname: Option<String>,
    /// True if the containers share a pid namespace.
    pub share_pid: bool,
    /// Kernel settings of these namespaces.
    pub sysctls: BTreeMap<String, String>,
}

/// A user namespace to be made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Users {
    /// Where it is pinned. The network namespace is pinned by the keeper then, too.
    pub pin: PathBuf,
    /// Who is who.
    pub owners: Owners,
}

/// Calls `work` with a path to `folder/name` that is short enough for a socket's address.
///
/// # Errors
/// If the folder cannot be opened, or `work`'s.
pub(super) fn at_short_path<T>(
    folder: &Path,
    name: &str,
    work: impl FnOnce(&Path) -> io::Result<T>,
) -> io::Result<T> {
    let folder = File::open(folder)?;
    work(Path::new(&format!("/proc/self/fd/{}/{name}", folder.as_raw_fd())))
}

/// Has the nursery fork a keeper for the sandbox in `folder`, and waits until it serves.
///
/// # Errors
/// [`KeeperError::Start`] with its own words.
pub(crate) async fn spawn(
    nursery: &Arc<Nursery>,
    folder: &Path,
    settings: &Settings,
) -> Result<(), KeeperError> {
    let failed = |why: String| KeeperError::Start { folder: folder.to_owned(), why };
    let io = |error: io::Error| failed(error.to_string());
    let bytes = serde_json::to_vec(settings).map_err(|e| failed(e.to_string()))?;
    let lock = lock_file(folder).map_err(io)?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive)
        .map_err(|_| failed("the sandbox has a keeper already".to_owned()))?;
    let (words, to_say) = pipe_with(PipeFlags::CLOEXEC).map_err(|e| io(e.into()))?;
    let mut words = Receiver::from_owned_fd(words).map_err(io)?;
    let (nursery, place) = (Arc::clone(nursery), folder.to_owned());
    let forked = tokio::task::spawn_blocking(move || nursery.fork(&place, &bytes, &[lock.into(), to_say]));
    let pidfd = forked.await.map_err(|e| failed(e.to_string()))?.map_err(io)?;
    failpoint("keeper: forked");
    let mut said = String::new();
    let heard = tokio::time::timeout(DEADLINE, words.read_to_string(&mut said)).await;
    if said == READY {
        failpoint("keeper: ready");
        return Ok(());
    }
    let _ = signal_pidfd(&pidfd, SIGKILL);
    Err(failed(match heard {
        Err(_) => "it was not ready in time".to_owned(),
        Ok(Err(error)) => error.to_string(),
        Ok(Ok(_)) if said.is_empty() => "it ended without a word".to_owned(),
        Ok(Ok(_)) => said,
    }))
}

fn lock_file(folder: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).truncate(false).write(true).open(folder.join(LOCK))
}

/// True if the sandbox in `folder` has a keeper, or a child of one that has not let go yet.
#[must_use]
pub fn lives(folder: &Path) -> bool {
    let Ok(lock) = File::open(folder.join(LOCK)) else { return false };
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => false,
        Err(rustix::io::Errno::WOULDBLOCK) => true,
        Err(_) => false,
    }
}

/// The keeper of the sandbox in `folder`, as it wrote itself down, if it lives.
#[must_use]
pub fn recorded(folder: &Path) -> Option<ProcessId> {
    let bytes = std::fs::read(folder.join(LOCK)).ok()?;
    serde_json::from_slice::<ProcessId>(&bytes).ok().filter(ProcessId::lives)
}
