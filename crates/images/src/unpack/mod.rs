//! From a layer's archive to its files, as overlayfs wants them and nowhere but below the layer's own root.

mod apply;
mod attributes;
mod decode;
mod layers;
mod plan;
mod root;

use std::io;

use crate::content::Digest;

pub(crate) use apply::Expect;
pub(crate) use decode::decoder;
pub(crate) use layers::{Layers, NewLayer};
pub use plan::PathFault;

/// Why a layer could not be unpacked. Nothing of it is left then.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    /// The archive stops early or is damaged.
    #[error("its archive is truncated or damaged after entry {after:?}")]
    Archive {
        /// The last entry that was read; empty at the start.
        after: String,
        /// What the decoder said.
        source: io::Error,
    },
    /// An entry with a name that no layer may hold.
    #[error("entry {entry:?} {fault}")]
    Entry {
        /// The entry, as it is named in the archive.
        entry: String,
        /// What is wrong with it.
        fault: PathFault,
    },
    /// The file system refused an entry.
    #[error("entry {entry:?}: cannot {call}")]
    Io {
        /// The entry, as it is named in the archive.
        entry: String,
        /// What was tried.
        call: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The content is not what the manifest or the configuration promised.
    #[error("its {what} is {actual}, expected {expected}")]
    Digest {
        /// `digest` (as transferred) or `diff id` (unpacked).
        what: &'static str,
        /// What was promised.
        expected: String,
        /// What came.
        actual: String,
    },
}

impl LayerError {
    /// The file system's error below, if that is what it was.
    pub(crate) fn io(&self) -> Option<&io::Error> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }

    fn digest(what: &'static str, expected: Option<&Digest>, actual: &Digest) -> Result<(), Self> {
        match expected {
            Some(expected) if expected != actual => {
                Err(Self::Digest { what, expected: expected.to_string(), actual: actual.to_string() })
            }
            _ => Ok(()),
        }
    }
}
