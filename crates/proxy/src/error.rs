//! What can go wrong.

use trine_kernel::netlink::NetlinkError;
use trine_kernel::netns::NetnsError;
use trine_kernel::nft::NftError;
use trine_kernel::sysctl::SysctlError;

/// Why the proxy could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// The table could not be loaded or changed.
    #[error("proxy: cannot {call} table {table}")]
    Table {
        /// `load`, `change`, `list` or `delete`.
        call: &'static str,
        /// The table.
        table: String,
        /// What the kernel said.
        source: NftError,
    },
    /// The routes which guard the ranges could not be set or removed.
    #[error("proxy: cannot {call} the routes of Pods and Services")]
    Routes {
        /// `read`, `set` or `remove`.
        call: &'static str,
        /// What the kernel said.
        source: NetlinkError,
    },
    /// The network namespace cannot be entered.
    #[error("proxy: no way into the node's network namespace")]
    Netns(#[source] NetnsError),
    /// Forwarding could not be switched on.
    #[error("proxy: Pods cannot reach anything")]
    Forwarding(#[source] SysctlError),
    /// The watch ended by itself.
    #[error("proxy: the watch of {kind} ended")]
    WatchEnded {
        /// What was watched.
        kind: &'static str,
    },
    /// The executor's thread died.
    #[error("proxy: the executor failed: {message}")]
    Executor {
        /// The panic's message.
        message: String,
    },
}
