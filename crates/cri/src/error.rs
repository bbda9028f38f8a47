//! What can go wrong, and which gRPC code it is.

use std::path::{Path, PathBuf};

use tonic::{Code, Status};
use trine_cni::CniError;
use trine_images::{Fault, ImageError};
use trine_kernel::cgroup::CgroupError;
use trine_ledger::LedgerError;

use crate::keeper::KeeperError;

/// Why the runtime could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum CriError {
    /// There is no such sandbox or container.
    #[error("{kind} {id:?} is not found")]
    NotFound {
        /// `sandbox` or `container`.
        kind: &'static str,
        /// As it was asked for.
        id: String,
    },
    /// The request makes no sense, or asks for what is not supported.
    #[error("{call}: {why}")]
    Invalid {
        /// The RPC.
        call: &'static str,
        /// What is wrong.
        why: String,
    },
    /// It is not in a state in which this can be done.
    #[error("{call} {object}: {why}")]
    State {
        /// The RPC.
        call: &'static str,
        /// The sandbox or container.
        object: String,
        /// In which state it is.
        why: String,
    },
    /// A keeper could not do it.
    #[error("{call} {object}")]
    Keeper {
        /// The RPC.
        call: &'static str,
        /// The sandbox or container.
        object: String,
        /// What the keeper said.
        source: KeeperError,
    },
    /// The image plane could not do it.
    #[error("{call}")]
    Image {
        /// The RPC.
        call: &'static str,
        /// What the image store said.
        source: Box<ImageError>,
    },
    /// The network plane could not do it.
    #[error("{call} {object}: network")]
    Network {
        /// The RPC.
        call: &'static str,
        /// The sandbox.
        object: String,
        /// What CNI said.
        source: Box<CniError>,
    },
    /// A network namespace could not be made or removed.
    #[error("{call} {object}")]
    Netns {
        /// The RPC.
        call: &'static str,
        /// The sandbox.
        object: String,
        /// What the kernel said.
        source: trine_kernel::netns::NetnsError,
    },
    /// A group could not be made, limited or removed.
    #[error("{call} {object}")]
    Cgroup {
        /// The RPC.
        call: &'static str,
        /// The container.
        object: String,
        /// What the kernel said.
        source: CgroupError,
    },
    /// A mount could not be made or taken off.
    #[error("{call} {object}")]
    Mount {
        /// The RPC.
        call: &'static str,
        /// The sandbox.
        object: String,
        /// What the kernel said.
        source: trine_kernel::mountpoint::MountError,
    },
    /// The file system refused.
    #[error("cri: cannot {call} {path}")]
    Io {
        /// What was tried.
        call: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// An intent could not be recorded.
    #[error("cri: cannot record what is about to be made")]
    Ledger(#[from] LedgerError),
    /// It took too long.
    #[error("{call} {object}: not done after {} s", after.as_secs())]
    Timeout {
        /// The RPC.
        call: &'static str,
        /// The sandbox or container.
        object: String,
        /// How long was waited.
        after: std::time::Duration,
    },
    /// A part of the runtime failed in an unexpected way.
    #[error("{call}: {why}")]
    Internal {
        /// The RPC.
        call: &'static str,
        /// What is known of it.
        why: String,
    },
    /// Several steps of an undoing failed.
    #[error("{call} {object}: {} steps failed: {}", failed.len(), failed.join("; "))]
    Undone {
        /// The RPC.
        call: &'static str,
        /// The sandbox or container.
        object: String,
        /// Each of them.
        failed: Vec<String>,
    },
}

impl CriError {
    /// The gRPC code.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::NotFound { .. } | Self::Keeper { source: KeeperError::Unknown, .. } => Code::NotFound,
            Self::Invalid { .. } => Code::InvalidArgument,
            Self::State { .. } => Code::FailedPrecondition,
            Self::Timeout { .. } | Self::Keeper { source: KeeperError::Timeout { .. }, .. } => {
                Code::DeadlineExceeded
            }
            Self::Keeper { source: KeeperError::Gone { .. }, .. } => Code::Unavailable,
            Self::Keeper { .. } => Code::Unknown,
            Self::Image { source, .. } => match source.fault() {
                Fault::Invalid => Code::InvalidArgument,
                Fault::NotFound => Code::NotFound,
                Fault::Unauthorized => Code::PermissionDenied,
                Fault::Unavailable => Code::Unavailable,
                Fault::Timeout => Code::DeadlineExceeded,
                Fault::NoSpace => Code::ResourceExhausted,
                Fault::Internal => Code::Internal,
            },
            Self::Network { .. } => Code::Unknown,
            Self::Netns { .. }
            | Self::Cgroup { .. }
            | Self::Mount { .. }
            | Self::Io { .. }
            | Self::Ledger(_)
            | Self::Internal { .. }
            | Self::Undone { .. } => Code::Internal,
        }
    }

    /// For `map_err` on file system calls.
    pub(crate) fn io(call: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { call, path, source }
    }

    pub(crate) fn invalid(call: &'static str, why: impl Into<String>) -> Self {
        Self::Invalid { call, why: why.into() }
    }

    /// For a blocking task that panicked or was stopped.
    pub(crate) fn joined(call: &'static str) -> impl FnOnce(tokio::task::JoinError) -> Self {
        move |error| Self::Internal { call, why: error.to_string() }
    }
}

/// An error and what caused it, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        let part = source.to_string();
        if !text.ends_with(&part) {
            text.push_str(": ");
            text.push_str(&part);
        }
        next = source.source();
    }
    text
}

impl From<CriError> for Status {
    fn from(error: CriError) -> Self {
        Self::new(error.code(), chain(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_words_reach_the_caller() {
        let start = CriError::Keeper {
            call: "StartContainer",
            object: "abc".into(),
            source: KeeperError::Failed("exec: \"nosuch\": executable file not found in $PATH".into()),
        };
        let status = Status::from(start);
        assert_eq!(status.code(), Code::Unknown);
        assert_eq!(
            status.message(),
            "StartContainer abc: exec: \"nosuch\": executable file not found in $PATH"
        );
        let none = Status::from(CriError::NotFound { kind: "container", id: "x".into() });
        assert_eq!((none.code(), none.message()), (Code::NotFound, "container \"x\" is not found"));
        assert_eq!(CriError::invalid("Exec", "x").code(), Code::InvalidArgument);
    }
}
