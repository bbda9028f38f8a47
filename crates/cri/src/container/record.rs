//! What is written down of a container, in `record.json` of its folder, and what is known of it in memory.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use trine_contracts::cri::ContainerConfig;
use trine_kernel::container::oci::{Spec, User};

use crate::keeper::Exit;
use crate::kept::Kept;

/// How far a container is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// Being made; nobody has seen it yet.
    Making,
    /// It waits for its start.
    Created,
    /// Its program runs.
    Running,
    /// It has ended.
    Exited,
}

/// What is written down.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ContainerRecord {
    /// Its id.
    pub id: String,
    /// Its sandbox.
    pub sandbox: String,
    /// What was asked for.
    pub config: Kept<ContainerConfig>,
    /// How far it is.
    pub state: State,
    /// The image's id.
    pub image_id: String,
    /// A name of the image, if it had one: a kubelet asks by id, and shows people what the runtime says.
    #[serde(default)]
    pub image_name: String,
    /// The image's digest or id, as the contract names it.
    pub image_ref: String,
    /// Where its cgroups are.
    pub cgroup: PathBuf,
    /// The log file.
    pub log_path: String,
    /// The signal that stops it.
    pub stop_signal: i32,
    /// Who it runs as.
    pub user: User,
    /// ns since 1970.
    pub created_at: i64,
    /// ns since 1970; 0 if it never ran.
    pub started_at: i64,
    /// How it ended.
    pub exit: Option<Exit>,
}

impl ContainerRecord {
    /// The contract's word for how it ended.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match &self.exit {
            None => "",
            Some(exit) if exit.error.is_some() => "StartError",
            Some(exit) if exit.oom => "OOMKilled",
            Some(exit) if exit.code == 0 => "Completed",
            Some(_) => "Error",
        }
    }
}

/// A container.
#[derive(Debug)]
pub struct Container {
    /// Its id.
    pub id: String,
    /// Its sandbox.
    pub sandbox: String,
    /// Its folder.
    pub folder: PathBuf,
    record: Mutex<ContainerRecord>,
    changed: watch::Sender<()>,
    /// It was sent its stop signal: by many who stop it, or one who tries again, it gets it once.
    pub(super) told_to_stop: AtomicBool,
    /// One call that changes it at a time.
    pub busy: tokio::sync::Mutex<()>,
}

impl Container {
    /// A container with this record, which is not written yet.
    #[must_use]
    pub fn new(record: ContainerRecord, folder: PathBuf) -> Self {
        Self {
            id: record.id.clone(),
            sandbox: record.sandbox.clone(),
            folder,
            record: Mutex::new(record),
            changed: watch::Sender::new(()),
            told_to_stop: AtomicBool::new(false),
            busy: tokio::sync::Mutex::new(()),
        }
    }

    /// Reads the record in `folder`.
    ///
    /// # Errors
    /// If it is not there or broken.
    pub fn load(folder: &Path) -> std::io::Result<Self> {
        let bytes = std::fs::read(folder.join("record.json"))?;
        let mut record: ContainerRecord = serde_json::from_slice(&bytes)?;
        of_its_folder(&record.id, folder)?;
        // The keeper may have written down the end while nobody listened.
        if record.exit.is_none()
            && let Ok(exit) = std::fs::read(folder.join("exit.json"))
            && let Ok(exit) = serde_json::from_slice::<Exit>(&exit)
        {
            // What was still being made is undone.
            if record.state != State::Making {
                record.state = State::Exited;
            }
            record.started_at = exit.started_at;
            record.exit = Some(exit);
        }
        Ok(Self::new(record, folder.to_owned()))
    }

    /// What is known of it now.
    #[must_use]
    pub fn record(&self) -> ContainerRecord {
        self.record.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Its state now.
    #[must_use]
    pub fn state(&self) -> State {
        self.record.lock().unwrap_or_else(PoisonError::into_inner).state
    }

    /// Changes what is known and writes it down.
    ///
    /// # Errors
    /// If it cannot be written; it is changed in memory nevertheless.
    pub fn update(&self, change: impl FnOnce(&mut ContainerRecord)) -> std::io::Result<()> {
        let result = {
            let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
            change(&mut record);
            write_json(&self.folder.join("record.json"), &*record)
        };
        self.changed.send_replace(());
        result
    }

    /// Waits until it has ended.
    pub async fn exited(&self) {
        let mut changed = self.changed.subscribe();
        while self.state() != State::Exited {
            if changed.changed().await.is_err() {
                return;
            }
        }
    }

    /// Its specification.
    ///
    /// # Errors
    /// If it is not there or broken.
    pub fn spec(&self) -> std::io::Result<Spec> {
        Ok(serde_json::from_slice(&std::fs::read(self.folder.join("config.json"))?)?)
    }
}

/// A record that lies in another's folder is not believed: it would take the other's place.
pub(crate) fn of_its_folder(id: &str, folder: &Path) -> std::io::Result<()> {
    if folder.file_name().is_some_and(|name| name == id) {
        return Ok(());
    }
    Err(std::io::Error::new(std::io::ErrorKind::InvalidData, format!("it is the record of {id}")))
}

/// Replaces a file whole, so that `kill -9` leaves the old one or the new one.
pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> std::io::Result<()> {
    trine_kernel::replace(path, &path.with_extension("new"), &serde_json::to_vec(value)?)
}
