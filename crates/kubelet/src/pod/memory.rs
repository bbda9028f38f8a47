//! What a worker remembers between two looks at its Pod. Lost with the process, as upstream's.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::backoff::Backoffs;
use crate::config::{BACKOFF, SANDBOX_BACKOFF};
use crate::resize::Numbers;

/// Why a container could not be started, and until when nobody tries again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Waiting reason (`ErrImagePull`, `CreateContainerConfigError`, ...).
    pub reason: String,
    /// In words.
    pub message: String,
    /// The image, if it could not be pulled.
    pub image: Option<String>,
    /// When it failed.
    pub at: Timestamp,
    /// When to try again.
    pub retry: Timestamp,
    /// Whether the back-off was said.
    pub announced: bool,
}

/// A waiting reason with its words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// In one word.
    pub reason: String,
    /// In words.
    pub message: String,
}

/// What the probes say of one container (by id).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Verdict {
    /// `None` without a startup probe.
    pub started: Option<bool>,
    /// `None` without a readiness probe.
    pub ready: Option<bool>,
    /// Set when liveness or startup failed for good.
    pub failed: Option<ProbeKind>,
}

/// Which probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProbeKind {
    /// Has it come up?
    Startup,
    /// Does it live?
    Liveness,
    /// May it be asked?
    Readiness,
}

impl ProbeKind {
    /// As events spell it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Liveness => "Liveness",
            Self::Readiness => "Readiness",
        }
    }
}

/// Verdicts by container id.
pub type Verdicts = BTreeMap<String, Verdict>;

/// Everything that a worker remembers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    /// Restarts after a crash, by container name.
    pub crashes: Backoffs,
    /// Image pulls, by image.
    pub pulls: Backoffs,
    /// Starts that failed, by container name.
    pub starts: Backoffs,
    /// Sandboxes that failed.
    pub sandboxes: Backoffs,
    /// The last failure to start, by container name.
    pub failures: BTreeMap<String, Failure>,
    /// When the last sandbox failed.
    pub sandbox_failed: Option<Timestamp>,
    /// Waiting reasons, by container name.
    pub waiting: BTreeMap<String, Waiting>,
    /// Crash back-offs that were said, by container id.
    pub announced: BTreeMap<String, Timestamp>,
    /// Containers (by id) whose postStart hook has not ended.
    pub post_start: std::collections::BTreeSet<String>,
    /// Whether `NetworkNotReady` was said.
    pub network_announced: bool,
    /// The sandbox whose networks are written on the Pod.
    pub networks_said: Option<String>,
    /// Last words, by container id.
    pub messages: BTreeMap<String, String>,
    /// What was set of a container's group after its start, by container id.
    pub resized: BTreeMap<String, Numbers>,
    /// Why a container's group could not be changed, by container id.
    pub resize_errors: BTreeMap<String, String>,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            crashes: Backoffs::new(BACKOFF),
            pulls: Backoffs::new(BACKOFF),
            starts: Backoffs::new(BACKOFF),
            sandboxes: Backoffs::new(SANDBOX_BACKOFF),
            failures: BTreeMap::new(),
            sandbox_failed: None,
            waiting: BTreeMap::new(),
            announced: BTreeMap::new(),
            post_start: std::collections::BTreeSet::new(),
            network_announced: false,
            networks_said: None,
            messages: BTreeMap::new(),
            resized: BTreeMap::new(),
            resize_errors: BTreeMap::new(),
        }
    }
}
