//! The client of a command.

use std::path::PathBuf;

use anyhow::Context;
use trine_typed::kube::Client;

use super::args::Target;
use crate::layout::Layout;

/// The kubeconfig: `--kubeconfig`, or the data dir's.
///
/// # Errors
/// If the data dir has none: the cluster was never up.
pub fn kubeconfig(target: &Target) -> anyhow::Result<PathBuf> {
    if let Some(path) = &target.kubeconfig {
        return Ok(path.clone());
    }
    let layout = Layout::new(&target.data_dir.data_dir)?;
    let path = layout.kubeconfig();
    anyhow::ensure!(
        path.exists(),
        "there is no cluster in {}: start one with `trine up --data-dir {0}`",
        layout.root().display()
    );
    Ok(path)
}

/// A client for `--kubeconfig`, or for the cluster of the data dir.
///
/// # Errors
/// If there is no kubeconfig: the cluster was never up.
pub async fn connect(target: &Target) -> anyhow::Result<Client> {
    let path = kubeconfig(target)?;
    trine_typed::client::from_kubeconfig(&path)
        .await
        .with_context(|| format!("cannot connect with {}", path.display()))
}
