//! `cargo xtask swap PART`: a plane of Trine beside somebody else's on the other side of its contract. Each runs one story, a Pod
//! with a volume behind a Service, to its end, and what is seen of it has to be what Trine alone shows.
//!
//! - `part` which there are: one file each, `apiserver`, `kubelet`, `containerd`, `sidecars`, `hostpath`
//! - `stage` the folder of a run with its processes, and how nothing is left of them; `process` one of them
//! - `story` the Pod's; `facts` what is seen of it (pure); `http` a request to it
//! - `authority` certificates for an API server that brings none
//! - `table` writes `tests/upstream/SWAPS.md`

mod apiserver;
mod authority;
mod containerd;
mod facts;
mod hostpath;
mod http;
mod kubelet;
mod part;
mod process;
mod sidecars;
mod stage;
mod story;
mod table;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context;

use crate::test::workspace_root;
use crate::upstream::trine::{self, Trine};
use facts::Facts;
use part::{PARTS, Part};
use stage::Stage;

/// How the command is called.
pub const USAGE: &str = "\
cargo xtask swap [PART]        one plane swapped for somebody else's, a Pod with a volume and a Service run through, what is
                               seen compared with Trine alone; without PART: which there are; `all`: each
      --program FILE                  this trine, not target/release/trine";

/// Runs the command.
///
/// # Errors
/// In one line, if a peer cannot be had; if the story fails, differs from Trine's own, or leaves something behind.
pub fn run(words: &[&str]) -> anyhow::Result<()> {
    let (mut name, mut program) = (None, None);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "--program" => program = words.next().map(PathBuf::from),
            word if !word.starts_with('-') && name.is_none() => name = Some(word),
            other => anyhow::bail!("{other}: no such word\n{USAGE}"),
        }
    }
    let Some(name) = name else {
        println!("{}", part::list());
        return Ok(());
    };
    let parts: Vec<&Part> = PARTS.iter().filter(|part| name == "all" || part.name == name).collect();
    anyhow::ensure!(!parts.is_empty(), "there is no part {name}:\n{}", part::list());
    let program = trine::program(&workspace_root()?, program.as_deref())?;
    let mut failed = Vec::new();
    let mut alone = None;
    for part in parts {
        let since = Instant::now();
        let outcome = one(part, &program, &mut alone);
        println!("== swap {}: {} after {:.0?}", part.name, table::word(&outcome), since.elapsed());
        table::keep(&workspace_root()?, part, &outcome, since.elapsed())?;
        if let Err(error) = outcome {
            println!("{error:#}");
            failed.push(format!("{}: {error:#}", part.name));
        }
    }
    anyhow::ensure!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}

/// Runs the story with one part swapped, and compares with what Trine alone shows, which is seen once. What the peers are.
fn one(part: &Part, program: &Path, alone: &mut Option<Facts>) -> anyhow::Result<Vec<String>> {
    let root = workspace_root()?;
    let mut stage = Stage::new(&root, program, part.name)?;
    let played = (part.play)(&mut stage);
    if played.is_err() {
        stage.tell();
    }
    let left = stage.tear_down();
    let played = played?;
    anyhow::ensure!(left.is_empty(), "left on this machine: {}", left.join("; "));
    let alone = match alone {
        Some(seen) => seen,
        None => alone.insert(self::alone(&root, program)?),
    };
    let differences = facts::differences(&played.facts, alone);
    anyhow::ensure!(differences.is_empty(), "it is not what Trine alone shows: {}", differences.join("; "));
    println!("{} facts are what Trine alone shows", alone.len());
    Ok(played.peers)
}

/// The same story told by Trine alone.
fn alone(root: &Path, program: &Path) -> anyhow::Result<Facts> {
    let log = root.join("target/upstream/swap-alone.log");
    let mut trine = Trine::start(program, "swap", &["up"], "kubeconfig", &log)?;
    trine.ready()?;
    let archive = story::image(program, &trine.data_dir)?;
    story::import(program, &archive, &trine.data_dir)?;
    story::tell(program, &trine.data_dir.join("kubeconfig")).context("Trine alone")
}
