//! Processes: which one it is (a pid alone is reused), whether it still lives, signals, and forking one.
//!
//! - [`ProcessId`] a pid with its start time, which no other process of this boot shares
//! - [`fork`](fork()) a child of a single-threaded process, optionally in new namespaces
//! - [`namespace`] what a single-threaded process does with its own namespaces

mod fork;
mod identity;
pub mod namespace;
mod program;
mod signal;

pub use fork::{Forked, NewNamespaces, children_are_reaped, exit_now, fork, hold_pid_namespace, silence};
pub use identity::{ProcessId, become_subreaper, boot_id};
pub use program::Program;
pub use signal::{SIGKILL, SIGTERM, is_heard, signal_group, signal_number, signal_pid, signal_pidfd};
