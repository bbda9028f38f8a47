//! What can go wrong between an image's name and a container's root.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use trine_kernel::mountpoint::MountError;
use trine_kernel::overlay::OverlayError;
use trine_ledger::LedgerError;

use crate::import::ArchiveError;
use crate::pull::RegistryError;
use crate::unpack::LayerError;

/// The kind of a failure, for the one who has to choose a status code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The name, the file or the content is wrong; trying again does not help.
    Invalid,
    /// There is no such image here or in the registry.
    NotFound,
    /// The registry wants other credentials.
    Unauthorized,
    /// The registry cannot be reached or does not answer.
    Unavailable,
    /// Nothing more came in for too long.
    Timeout,
    /// The disk is full.
    NoSpace,
    /// This machine refused.
    Internal,
}

/// Why the image plane could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The reference does not parse.
    #[error("image reference {reference:?} is not valid: {why}")]
    Reference {
        /// As it was given.
        reference: String,
        /// What is wrong with it.
        why: String,
    },
    /// No such image in the store.
    #[error("image {reference} is not present")]
    Absent {
        /// As it was asked for.
        reference: String,
    },
    /// An archive or layout is not an image.
    #[error("cannot import {path}")]
    Import {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong with it.
        source: ArchiveError,
    },
    /// The registry gave no image.
    #[error("cannot pull {image} from registry {registry}")]
    Pull {
        /// The image's name.
        image: String,
        /// The registry's host.
        registry: String,
        /// What happened there.
        source: RegistryError,
    },
    /// A layer could not be unpacked.
    #[error("image {image}: cannot unpack layer {layer}")]
    Layer {
        /// The image's name or the archive's path.
        image: String,
        /// The layer's digest or member name.
        layer: String,
        /// What is wrong with it.
        source: LayerError,
    },
    /// An image's manifest or configuration makes no sense.
    #[error("image {image}: {why}")]
    Content {
        /// The image's name or the archive's path.
        image: String,
        /// What is wrong with it.
        why: String,
    },
    /// The file system refused.
    #[error("image store: cannot {call} {path}")]
    Io {
        /// What was tried.
        call: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// An intent could not be recorded.
    #[error("image store: cannot record what is about to be made")]
    Ledger(#[from] LedgerError),
    /// A container's root could not be mounted or taken away.
    #[error("snapshot {container}: root file system")]
    Mount {
        /// The container.
        container: String,
        /// The step and the kernel's words.
        source: OverlayError,
    },
    /// A layer's owners could not be shown as a user namespace has them.
    #[error("snapshot {container}: the file system of images cannot be mapped for a user namespace")]
    Users {
        /// The container.
        container: String,
        /// The layer and the kernel's words.
        source: MountError,
    },
    /// A container id that cannot be a folder's name.
    #[error("snapshot {container:?}: not a valid container id")]
    ContainerId {
        /// As it was given.
        container: String,
    },
    /// The same pull, shared with others who waited for it.
    #[error(transparent)]
    Shared(Arc<ImageError>),
}

impl ImageError {
    /// The kind of failure.
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            Self::Reference { .. } | Self::ContainerId { .. } => Fault::Invalid,
            Self::Absent { .. } => Fault::NotFound,
            Self::Import { source, .. } => source.io().map_or(Fault::Invalid, io_fault),
            Self::Layer { source, .. } => source.io().map_or(Fault::Invalid, io_fault),
            Self::Content { .. } => Fault::Invalid,
            Self::Pull { source, .. } => source.fault(),
            Self::Io { source, .. } => io_fault(source),
            Self::Ledger(LedgerError::Io { source, .. }) => io_fault(source),
            Self::Ledger(_) | Self::Mount { .. } | Self::Users { .. } => Fault::Internal,
            Self::Shared(inner) => inner.fault(),
        }
    }

    /// For `map_err` on file system calls.
    pub(crate) fn io(call: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { call, path: path.to_owned(), source }
    }
}

fn io_fault(e: &io::Error) -> Fault {
    match e.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Fault::NoSpace,
        io::ErrorKind::TimedOut => Fault::Timeout,
        io::ErrorKind::NotFound => Fault::NotFound,
        _ => Fault::Internal,
    }
}
