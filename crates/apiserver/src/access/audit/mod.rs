//! Who did what: a note of each request, as `audit.k8s.io/v1` Events.
//!
//! - [`policy`] what is noted of which request
//! - [`event`] one request's notes, [`annotations`] what others add to them
//! - [`sink`] where they go

pub mod annotations;
pub mod event;
pub mod policy;
pub mod sink;

use std::path::{Path, PathBuf};

pub use event::Noted;
use policy::Policy;
use sink::Sink;

/// Why there is no audit log.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The policy cannot be read.
    #[error("audit: the policy {path} cannot be used: {why}")]
    Policy {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The log cannot be opened.
    #[error("audit: the log {path} cannot be opened")]
    Log {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Notes requests.
pub struct Auditor {
    policy: Policy,
    sink: Sink,
}

impl Auditor {
    /// Notes go to the file `log`; the file `policy` says which, or else who, what and when of everything is noted.
    ///
    /// # Errors
    /// [`AuditError`].
    pub fn open(log: &Path, policy: Option<&Path>) -> Result<Self, AuditError> {
        let policy = match policy {
            None => Policy::metadata(),
            Some(path) => {
                let wrong = |why: String| AuditError::Policy { path: path.to_owned(), why };
                let text = std::fs::read_to_string(path).map_err(|e| wrong(e.to_string()))?;
                Policy::read(&text).map_err(wrong)?
            }
        };
        let sink = Sink::open(log).map_err(|source| AuditError::Log { path: log.to_owned(), source })?;
        Ok(Self { policy, sink })
    }
}
