//! Why a call failed, and the gRPC code that says so.

use std::io;
use std::path::PathBuf;

use tonic::{Code, Status};
use trine_kernel::filesystem::{FilesystemError, ProgramError};
use trine_kernel::loopdev::LoopError;
use trine_kernel::mountpoint::MountError;
use trine_ledger::LedgerError;

use crate::size::Bytes;

/// A call that failed: which, on what, and why.
#[derive(Debug, thiserror::Error)]
#[error("csi {call} {object}")]
pub struct DriverError {
    /// The RPC's name.
    pub call: &'static str,
    /// The volume's name or id; `-` if the request named none.
    pub object: String,
    /// Why.
    #[source]
    pub cause: Cause,
}

impl DriverError {
    /// The gRPC status: the whole chain as one line under the cause's code.
    #[must_use]
    pub fn status(&self) -> Status {
        Status::new(self.cause.code(), chain(self))
    }
}

/// The messages of `error` and its sources, joined.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text.push_str(": ");
        text.push_str(&source.to_string());
        next = source.source();
    }
    text
}

/// Why.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    /// The request is wrong in itself.
    #[error("{0}")]
    Invalid(String),
    /// There is no such volume.
    #[error("there is no volume {0}")]
    NoVolume(String),
    /// There is no such snapshot.
    #[error("there is no snapshot {0}")]
    NoSnapshot(String),
    /// There is no such group of snapshots.
    #[error("there is no group snapshot {0}")]
    NoGroup(String),
    /// There is no such node here.
    #[error("this driver serves the node {ours}, not {asked}")]
    NoNode {
        /// The node that was named.
        asked: String,
        /// The node we serve.
        ours: String,
    },
    /// The path shows nothing of the volume.
    #[error("{volume} is not at {path}")]
    NotAtPath {
        /// The volume.
        volume: String,
        /// The path.
        path: PathBuf,
    },
    /// The name, the target or the attachment is taken in another way.
    #[error("{0}")]
    Exists(String),
    /// No volume of this size is possible.
    #[error("{0}")]
    Size(String),
    /// Larger than the disk, however empty.
    #[error("{} asked for, but the whole pool on node {node} has {}", Bytes(*asked), Bytes(*whole))]
    LargerThanPool {
        /// Bytes asked for.
        asked: u64,
        /// Bytes that the pool's disk has in all.
        whole: u64,
        /// The node whose pool it is.
        node: String,
    },
    /// Fits the disk, but not beside the other volumes.
    #[error(
        "{} asked for, but the pool on node {node} has {} left (of {}; sizes of existing volumes count in full)",
        Bytes(*asked), Bytes(*left), Bytes(*whole)
    )]
    PoolFull {
        /// Bytes asked for.
        asked: u64,
        /// Bytes left.
        left: u64,
        /// Bytes that the pool has in all.
        whole: u64,
        /// The node whose pool it is.
        node: String,
    },
    /// The node takes no further volumes.
    #[error("node {node} has {limit} volumes attached, its limit")]
    NodeFull {
        /// The node.
        node: String,
        /// Its limit.
        limit: u32,
    },
    /// The volume must be where this driver is not.
    #[error("this driver makes volumes on node {0} only, and the request allows other nodes only")]
    Elsewhere(String),
    /// Another call on the volume is under way.
    #[error("another call on {0} is under way")]
    Busy(String),
    /// The paging token is not ours.
    #[error("the starting token {0:?} was not given out by this driver")]
    Token(String),
    /// The volume is in a state that does not allow it.
    #[error("{0}")]
    Precondition(String),
    /// A loop device.
    #[error(transparent)]
    Loop(#[from] LoopError),
    /// A mount.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// A file system.
    #[error(transparent)]
    Filesystem(#[from] FilesystemError),
    /// A program is missing.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The record of targets.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// A file of the pool or a target.
    #[error("cannot {call} {path}")]
    File {
        /// What was tried, as an infinitive.
        call: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The work ended without an answer.
    #[error("the call was broken off: {0}")]
    Broken(String),
}

impl Cause {
    /// The code of the contract (CSI spec 1.12, "error scheme" tables).
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Invalid(_) => Code::InvalidArgument,
            Self::NoVolume(_)
            | Self::NoSnapshot(_)
            | Self::NoGroup(_)
            | Self::NoNode { .. }
            | Self::NotAtPath { .. } => Code::NotFound,
            Self::Exists(_) => Code::AlreadyExists,
            Self::Size(_) | Self::LargerThanPool { .. } => Code::OutOfRange,
            Self::PoolFull { .. } | Self::NodeFull { .. } | Self::Elsewhere(_) => Code::ResourceExhausted,
            Self::Busy(_) | Self::Token(_) => Code::Aborted,
            Self::Precondition(_)
            | Self::Program(ProgramError::Missing { .. })
            | Self::Filesystem(FilesystemError::NeedsSysResource { .. }) => Code::FailedPrecondition,
            Self::Filesystem(FilesystemError::Program { source: ProgramError::Missing { .. }, .. }) => {
                Code::FailedPrecondition
            }
            Self::Loop(LoopError::Contended { .. }) => Code::Unavailable,
            Self::File { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                Code::ResourceExhausted
            }
            Self::Loop(_)
            | Self::Mount(_)
            | Self::Filesystem(_)
            | Self::Program(_)
            | Self::Ledger(_)
            | Self::File { .. }
            | Self::Broken(_) => Code::Internal,
        }
    }

    /// A closure for `map_err` on an `io::Result`.
    pub(crate) fn file(call: &'static str, path: &std::path::Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { call, path, source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_says_plane_call_object_and_cause_once() {
        let cause = Cause::LargerThanPool { asked: 10 << 40, whole: 1 << 30, node: "n1".to_owned() };
        let error = DriverError { call: "CreateVolume", object: "pvc-1".to_owned(), cause };
        let status = error.status();
        assert_eq!(status.code(), Code::OutOfRange);
        assert_eq!(
            status.message(),
            "csi CreateVolume pvc-1: 10 TiB asked for, but the whole pool on node n1 has 1 GiB"
        );
        let source = io::Error::from(io::ErrorKind::NotFound);
        let cause = Cause::File { call: "open", path: "/x".into(), source };
        let error = DriverError { call: "DeleteVolume", object: "v".to_owned(), cause };
        assert_eq!(error.status().message(), "csi DeleteVolume v: cannot open /x: entity not found");
    }
}
