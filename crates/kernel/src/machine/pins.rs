//! Makes the namespaces, pins them, enters and removes them.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_bind, mount_change, unmount};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use super::arrange::{Shared, arrange};

/// The pins in the order in which they are made; the last one says that the machine is whole.
const KINDS: [(&str, LinkNameSpaceType); 3] = [
    ("net", LinkNameSpaceType::Network),
    ("uts", LinkNameSpaceType::HostNameAndNISDomainName),
    ("mnt", LinkNameSpaceType::Mount),
];
/// Mounts on one pin that are taken off before giving up.
const MAX_STACKED: u32 = 16;

/// Why a machine could not be made, entered or removed.
#[derive(Debug, thiserror::Error)]
#[error("machine {dir}: cannot {call}")]
pub struct MachineError {
    /// The folder of its pins.
    pub dir: PathBuf,
    /// What was tried.
    pub call: &'static str,
    /// What the system said.
    pub source: io::Error,
}

/// A machine whose namespaces are pinned in a folder of its own.
#[derive(Debug, Clone)]
pub struct Machine {
    dir: PathBuf,
}

impl Machine {
    /// The machine of `dir`, which need not exist.
    #[must_use]
    pub fn at(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    /// Where its network namespace is pinned.
    #[must_use]
    pub fn netns(&self) -> PathBuf {
        self.dir.join("net")
    }

    /// True if it is there, whole.
    #[must_use]
    pub fn exists(&self) -> bool {
        KINDS.iter().all(|(name, _)| is_namespace(&self.dir.join(name)))
    }

    fn failed(&self, call: &'static str) -> impl Fn(io::Error) -> MachineError {
        let dir = self.dir.clone();
        move |source| MachineError { dir: dir.clone(), call, source }
    }

    /// Makes it, with its loopback down and no other link. What a crash left of an earlier attempt is removed first.
    ///
    /// # Errors
    /// [`MachineError`]; nothing is pinned then.
    pub fn create(&self, hostname: &str, shared: &Shared) -> Result<(), MachineError> {
        self.remove()?;
        std::fs::create_dir_all(&self.dir).map_err(self.failed("make its folder"))?;
        // A mount namespace cannot be pinned where the pin would be passed on to others.
        mount_bind(&self.dir, &self.dir).map_err(|e| self.failed("prepare its folder")(e.into()))?;
        let made = mount_change(&self.dir, MountPropagationFlags::PRIVATE)
            .map_err(|e| self.failed("prepare its folder")(e.into()))
            .and_then(|()| self.make(hostname, shared));
        if made.is_err() {
            let _ = self.remove();
        }
        made
    }

    /// One thread is born in this machine and moves into the new one; another one, still here, pins where it is.
    fn make(&self, hostname: &str, shared: &Shared) -> Result<(), MachineError> {
        let (ready, is_ready) = mpsc::channel();
        let (pinned, is_pinned) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let inside =
                std::thread::Builder::new().name("machine".to_owned()).spawn_scoped(scope, move || {
                    let tid = rustix::thread::gettid().as_raw_nonzero().get();
                    let made = move_out(hostname, shared).map(|()| tid);
                    let _ = ready.send(made);
                    // The namespaces live as long as this thread does.
                    let _ = is_pinned.recv();
                });
            inside.map_err(self.failed("start a thread"))?;
            let tid = is_ready
                .recv()
                .unwrap_or_else(|_| Err(io::Error::other("the thread ended")))
                .map_err(self.failed("make its namespaces"))?;
            let result = KINDS.iter().try_for_each(|(name, _)| {
                let pin = self.dir.join(name);
                File::create(&pin).map_err(self.failed("make a pin"))?;
                mount_bind(format!("/proc/self/task/{tid}/ns/{name}"), &pin)
                    .map_err(|e| self.failed("pin a namespace")(e.into()))
            });
            drop(pinned);
            result
        })
    }

    /// Moves the calling process into it. Its root stays the same folder, seen from there.
    ///
    /// # Errors
    /// [`MachineError`]; the process must not go on then. It may have one thread only.
    pub fn enter(&self) -> Result<(), MachineError> {
        let mut opened = Vec::new();
        for (name, kind) in KINDS {
            let file = File::open(self.dir.join(name)).map_err(self.failed("find a namespace"))?;
            opened.push((file, kind));
        }
        for (file, kind) in opened {
            move_into_link_name_space(file.as_fd(), Some(kind))
                .map_err(|e| self.failed("enter")(e.into()))?;
        }
        std::env::set_current_dir("/").map_err(self.failed("enter"))
    }

    /// Lets go of it: its links and mounts go with its last process. Absent is success.
    ///
    /// # Errors
    /// [`MachineError`] if a pin cannot be removed.
    pub fn remove(&self) -> Result<(), MachineError> {
        // The mark that it is whole goes first.
        for (name, _) in KINDS.iter().rev() {
            let pin = self.dir.join(name);
            self.unmount(&pin)?;
            match std::fs::remove_file(&pin) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(self.failed("remove a pin")(e)),
                _ => {}
            }
        }
        self.unmount(&self.dir)?;
        match std::fs::remove_dir(&self.dir) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(self.failed("remove its folder")(e)),
            _ => Ok(()),
        }
    }

    fn unmount(&self, path: &Path) -> Result<(), MachineError> {
        for _ in 0..MAX_STACKED {
            match unmount(path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
                Ok(()) => {}
                Err(Errno::INVAL | Errno::NOENT) => return Ok(()),
                Err(e) => return Err(self.failed("unpin a namespace")(e.into())),
            }
        }
        Ok(())
    }
}

fn is_namespace(path: &Path) -> bool {
    /// The file system of namespaces (`linux/magic.h`).
    const NSFS_MAGIC: u64 = 0x6e73_6673;
    let stat = File::open(path).and_then(|file| Ok(rustix::fs::fstatfs(&file)?));
    stat.is_ok_and(|s| u64::try_from(s.f_type).unwrap_or(0) == NSFS_MAGIC)
}

fn move_out(hostname: &str, shared: &Shared) -> io::Result<()> {
    let kinds = UnshareFlags::NEWNET | UnshareFlags::NEWUTS | UnshareFlags::NEWNS;
    // SAFETY: none of these touches the file table; this thread alone changes its namespaces (and its root and current
    // folder, which NEWNS makes its own), and it ends before it is used for anything else.
    unsafe { unshare_unsafe(kinds) }?;
    rustix::system::sethostname(hostname.as_bytes())?;
    arrange(shared)
}
