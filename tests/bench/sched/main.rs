//! `cargo xtask bench sched`: how fast Pods get their nodes. A server alone with hollow nodes (`trine sim`) in processes of their own,
//! on the cores that this one uses, too.
//!
//! - [`stage`] the processes; [`load`] the Pods; [`seen`] when a watch has seen what of them
//! - [`phases`] what is measured, [`decide`] without a server; [`table`] what it is held against

mod decide;
mod load;
mod phases;
mod seen;
mod stage;
mod table;

use std::path::PathBuf;

use anyhow::Context;

/// How large it is.
#[derive(Debug, Clone)]
pub struct Size {
    /// Hollow nodes, and replicas of the Deployment that is rolled.
    pub nodes: u32,
    /// Pods of the largest load; a sixth of it for those that want to be apart or spread.
    pub pods: u32,
}

fn main() -> anyhow::Result<()> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut size = Size { nodes: 1000, pods: 30_000 };
    let mut out = None;
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().with_context(|| format!("{word} wants a value"))?;
        match word.as_str() {
            "--nodes" => size.nodes = value.parse()?,
            "--pods" => size.pods = value.parse()?,
            "--out" => out = Some(PathBuf::from(value)),
            other => anyhow::bail!("unknown word {other}: --nodes N, --pods M, --out FILE"),
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let rows = runtime.block_on(phases::run(&size))?;
    let page = table::page(&size, &rows);
    print!("{page}");
    out.map_or(Ok(()), |file| std::fs::write(file, page).context("the table is not written"))
}
