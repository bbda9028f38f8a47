//! `trine snapshot save F` and `restore F`: the embedded store in a file.

use std::io::BufReader;
use std::path::Path;

use anyhow::Context;
use futures::AsyncReadExt;
use trine_store::redb::{Limits, RedbStore};
use trine_store::{Snapshot, Store, backup};

use super::args::SnapshotCommand;
use crate::daemon;
use crate::layout::Layout;

/// The path of the API server that gives everything in it.
const PATH: &str = "/trine/snapshot";

/// Saves or restores.
///
/// # Errors
/// If the cluster does not answer, the file is damaged, or a store is in the way.
pub async fn run(command: SnapshotCommand) -> anyhow::Result<()> {
    match command {
        SnapshotCommand::Save { file, data_dir } => {
            let layout = Layout::new(&data_dir.data_dir)?;
            let snapshot = match daemon::running(&layout) {
                Some(_) => online(&layout).await?,
                None => offline(&layout).await?,
            };
            backup::save(&snapshot, &file).with_context(|| format!("cannot save {}", file.display()))?;
            let (objects, revision) = (snapshot.entries.len(), snapshot.revision);
            println!("saved {objects} objects at revision {revision} in {}", file.display());
        }
        SnapshotCommand::Restore { file, data_dir } => restore(&file, &Layout::new(&data_dir.data_dir)?)?,
    }
    Ok(())
}

/// Asks the running cluster; its checksum comes along and is checked.
async fn online(layout: &Layout) -> anyhow::Result<Snapshot> {
    let client = trine_typed::client::from_kubeconfig(&layout.kubeconfig()).await?;
    let request = http::Request::get(PATH).body(Vec::new())?;
    let mut bytes = Vec::new();
    let mut body =
        std::pin::pin!(client.request_stream(request).await.context("the API server gives no snapshot")?);
    body.read_to_end(&mut bytes).await.context("the snapshot did not arrive")?;
    Ok(backup::decode(&bytes[..])?)
}

async fn offline(layout: &Layout) -> anyhow::Result<Snapshot> {
    let path = layout.store();
    anyhow::ensure!(path.exists(), "there is no store in {}", layout.root().display());
    let store = RedbStore::open(&path, Limits::default()).context("cannot open the store")?;
    Ok(store.snapshot("").await?)
}

fn restore(file: &Path, layout: &Layout) -> anyhow::Result<()> {
    let source = std::fs::File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
    let snapshot = backup::decode(BufReader::new(source)).with_context(|| file.display().to_string())?;
    if let Some(record) = daemon::running(layout) {
        anyhow::bail!("process {} uses {}: stop it first", record.process.pid, layout.root().display());
    }
    std::fs::create_dir_all(layout.root())?;
    RedbStore::restore(&layout.store(), &snapshot).with_context(|| {
        format!(
            "nothing is restored; to replace a store, move {} and its journal away",
            layout.store().display()
        )
    })?;
    println!("restored {} objects into {}", snapshot.entries.len(), layout.store().display());
    Ok(())
}
