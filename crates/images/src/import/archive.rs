//! What can be wrong with an archive.

use std::io;

/// Why a file is not an image.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The file system refused.
    #[error("cannot {call}")]
    Io {
        /// What was tried.
        call: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The archive stops early or is damaged.
    #[error("the archive is truncated or damaged{}", at(.member))]
    Broken {
        /// The member where it was noticed; empty if between two.
        member: String,
        /// What the decoder said.
        source: io::Error,
    },
    /// Neither `manifest.json` nor `index.json`.
    #[error("it is neither a docker archive nor an OCI layout: it has no manifest.json and no index.json")]
    NotAnImage,
    /// A file that another one names is not there.
    #[error("{member} is missing")]
    Missing {
        /// The file.
        member: String,
    },
    /// A description that does not decode.
    #[error("{member} is not valid")]
    Json {
        /// The file.
        member: String,
        /// What the decoder said.
        source: serde_json::Error,
    },
    /// A description that makes no sense.
    #[error("{member}: {why}")]
    Content {
        /// The file.
        member: String,
        /// What is wrong with it.
        why: String,
    },
}

fn at(member: &str) -> String {
    if member.is_empty() { String::new() } else { format!(" at {member}") }
}

impl ArchiveError {
    /// The file system's error below, if that is what it was.
    pub(crate) fn io(&self) -> Option<&io::Error> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }

    pub(crate) fn content(member: &str, why: impl Into<String>) -> Self {
        Self::Content { member: member.to_owned(), why: why.into() }
    }
}
