//! Settings.

use std::path::PathBuf;

/// What the engine of one node must know.
#[derive(Clone, Debug)]
pub struct Config {
    /// The node's name: its Pods are isolated here, nobody else's.
    pub node_name: String,
    /// The instance id of six hex digits; it names the tables (`trine-<instance>-policy`, `trine-<instance>-held`).
    pub instance: String,
    /// The network namespace to work in; none is the one of the calling thread.
    pub netns: Option<PathBuf>,
}

/// The table of policies of an instance.
#[must_use]
pub fn table_name(instance: &str) -> String {
    format!("trine-{instance}-policy")
}
