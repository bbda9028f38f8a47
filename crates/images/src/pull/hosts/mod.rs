//! Where a registry's images are to be had: the registry itself, or mirrors that the node's owner names in
//! `DIR/<registry>/hosts.toml`, containerd's form (`certs.d`), which people already have.
//!
//! The folder is looked at on each pull: a change needs no restart.

mod folder;
mod plan;

pub(crate) use folder::of_registry;
pub(crate) use plan::{Host, Need};
