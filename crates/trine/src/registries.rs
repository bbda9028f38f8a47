//! Where images come from: `--registry-config DIR` with mirrors and settings of registries.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use trine_images::{Options, Registries};

use crate::layout::Layout;

/// Words about registries, of every command that runs a node or pulls.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct RegistryArgs {
    /// Mirrors and settings of registries: DIR/<registry>/hosts.toml, in containerd's form [default: see docs/paths.md]
    #[arg(long, value_name = "DIR")]
    pub registry_config: Option<PathBuf>,
}

impl RegistryArgs {
    /// The image store's settings for a data dir.
    #[must_use]
    pub fn options(&self, layout: &Layout) -> Options {
        let hosts_dir = self.registry_config.clone().unwrap_or_else(|| layout.registries());
        let registries = Registries { hosts_dir: Some(hosts_dir), ..Registries::default() };
        Options { registries, ..Options::default() }
    }

    /// The same words, for another process.
    #[must_use]
    pub fn words(&self) -> Vec<OsString> {
        let Some(dir) = &self.registry_config else { return Vec::new() };
        let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.clone());
        vec!["--registry-config".into(), dir.into_os_string()]
    }
}
