//! What can go wrong.

use trine_kernel::netlink::NetlinkError;
use trine_kernel::netns::NetnsError;
use trine_kernel::nft::NftError;

/// Why policies could not be enforced.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// A table could not be loaded or changed.
    #[error("policy: cannot {call} table {table}")]
    Table {
        /// `open`, `load`, `change`, `list` or `delete`.
        call: &'static str,
        /// The table.
        table: String,
        /// What the kernel said.
        source: NftError,
    },
    /// The links that are held could not be told from those that are gone.
    #[error("policy: cannot list links")]
    Links(#[source] NetlinkError),
    /// The network namespace cannot be entered.
    #[error("policy: no way into the node's network namespace")]
    Netns(#[source] NetnsError),
    /// Network plugins could not say that they hold a Pod.
    #[error("policy: network plugins cannot be heard")]
    Bell(#[source] std::io::Error),
    /// The watch ended by itself.
    #[error("policy: the watch of {kind} ended")]
    WatchEnded {
        /// What was watched.
        kind: &'static str,
    },
    /// The executor's thread died.
    #[error("policy: the executor failed: {message}")]
    Executor {
        /// The panic's message.
        message: String,
    },
}
