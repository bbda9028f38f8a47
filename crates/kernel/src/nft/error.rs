//! What can go wrong with nftables.

use std::io;

/// Why a transaction or a listing failed.
#[derive(Debug, thiserror::Error)]
pub enum NftError {
    /// The socket itself failed.
    #[error("nftables: {call} failed")]
    Socket {
        /// The system call, or what it was for.
        call: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel refused an operation; nothing of the transaction was applied.
    #[error("nftables refused: {operation}{}{}", detail(.reason), and_more(.others))]
    Refused {
        /// The first refused operation, such as `add chain trine-00aabb prerouting`.
        operation: String,
        /// The kernel's own sentence, if it gave one.
        reason: Option<String>,
        /// How many further operations were refused.
        others: usize,
        /// The error number.
        source: io::Error,
    },
    /// The network namespace cannot be entered.
    #[error("nftables: no socket in the network namespace")]
    Netns(#[from] crate::netns::NetnsError),
    /// The kernel sent no answer, or one that cannot be read.
    #[error("nftables: no usable answer to {operation}")]
    NoAnswer {
        /// What was asked.
        operation: String,
    },
}

fn detail(reason: &Option<String>) -> String {
    reason.as_ref().map(|r| format!(" ({r})")).unwrap_or_default()
}

fn and_more(others: &usize) -> String {
    if *others == 0 { String::new() } else { format!(" and {others} more") }
}

impl NftError {
    /// The kernel's error number, if there was one.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Socket { source, .. } | Self::Refused { source, .. } => source.raw_os_error(),
            Self::Netns(_) | Self::NoAnswer { .. } => None,
        }
    }

    /// True if what was named is not there.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        self.errno() == Some(libc::ENOENT)
    }
}
