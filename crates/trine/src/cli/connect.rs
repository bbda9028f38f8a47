//! The client of a command.

use anyhow::Context;
use trine_typed::kube::Client;

use super::args::Target;
use crate::layout::Layout;

/// A client for `--kubeconfig`, or for the cluster of the data dir.
///
/// # Errors
/// If there is no kubeconfig: the cluster was never up.
pub async fn connect(target: &Target) -> anyhow::Result<Client> {
    let path = match &target.kubeconfig {
        Some(path) => path.clone(),
        None => {
            let layout = Layout::new(&target.data_dir.data_dir)?;
            let path = layout.kubeconfig();
            anyhow::ensure!(
                path.exists(),
                "there is no cluster in {}: start one with `trine up --data-dir {0}`",
                layout.root().display()
            );
            path
        }
    };
    trine_typed::client::from_kubeconfig(&path)
        .await
        .with_context(|| format!("cannot connect with {}", path.display()))
}
