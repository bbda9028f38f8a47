//! The reference plugins as an oracle: Trine's plugins and Debian's `containernetworking-plugins` get the same words, each in a
//! machine of its own (a network namespace), and must leave the same answers, links, addresses and routes.
//!
//! - `cases` what they are asked
//! - `machine` a namespace that stands for a machine, with one for a Pod, and what is in them
//! - `compare` what of it must be the same, `apart` where it is meant to differ (pure)

mod apart;
mod cases;
mod compare;
mod machine;

use std::path::Path;
use std::process::Command;

use anyhow::Context;

use super::finish::{Run, finish};
use super::junit::{Case, Outcome, Report};
use super::options::Options;
use super::trine;
use crate::test::workspace_root;
use machine::Machine;

/// Where Debian has the reference plugins.
const REFERENCE: &str = "/usr/lib/cni";

/// Asks both and keeps the row.
///
/// # Errors
/// What [`super::run`] says.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let root = workspace_root()?;
    anyhow::ensure!(
        Path::new(REFERENCE).is_dir(),
        "cni: the reference plugins are not here: install containernetworking-plugins"
    );
    let program = trine::program(&root, options.program.as_deref())?;
    let ours = tempdir("plugins")?;
    let mut cases = Vec::new();
    for case in cases::all() {
        let wanted = |text: &Option<String>| text.as_ref().map(|text| case.name.contains(text.as_str()));
        if wanted(&options.focus) == Some(false) || wanted(&options.skip) == Some(true) {
            continue;
        }
        let link = ours.join(case.plugin);
        if !link.exists() {
            std::os::unix::fs::symlink(&program, &link)?;
        }
        for version in case.versions {
            cases.extend(one(case, version, &ours)?);
        }
    }
    std::fs::remove_dir_all(&ours)?;
    if !options.partial() {
        let apart = cases.iter().filter(|case| matches!(case.outcome, Outcome::Skipped(_)));
        let seen: Vec<String> = apart.map(|case| case.name.clone()).collect();
        for name in apart::unseen(&seen) {
            let why = "is declared to differ, and does not".to_owned();
            cases.push(Case { name: format!("{name}, declared"), outcome: Outcome::Failed(why) });
        }
    }
    let version = version()?;
    let run = Run { root: &root, options, part: "", version: &version, keep: true };
    finish(&run, &Report { cases, around: Vec::new() }, |_| true)
}

/// Runs one case in one version on both sides; a spec for each step.
fn one(case: &cases::Case, version: &str, ours: &Path) -> anyhow::Result<Vec<Case>> {
    let config = case.config.replace("VERSION", version);
    let mut sides = [Machine::new("o", ours)?, Machine::new("r", Path::new(REFERENCE))?];
    let mut all = Vec::new();
    for (number, step) in case.steps.iter().enumerate() {
        let mut answers = Vec::new();
        for side in &mut sides {
            let answer = side.ask(case.plugin, step, &config)?;
            answers.push(compare::normal(&answer, &side.seen()?));
        }
        let name = format!("{} ({version}): {}. {}", case.name, number + 1, step.command);
        let [ours, reference] = &answers[..] else { anyhow::bail!("two sides") };
        let outcome = match compare::difference(ours, reference) {
            None => Outcome::Passed,
            Some(difference) => match apart::reason(&name, step.command, ours, reference) {
                Some(why) => Outcome::Skipped(format!("differs as it should: {why}")),
                None => Outcome::Failed(difference),
            },
        };
        all.push(Case { name, outcome });
    }
    Ok(all)
}

fn tempdir(name: &str) -> anyhow::Result<std::path::PathBuf> {
    let dir = std::env::temp_dir().join(format!("upstream-cni-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    Ok(dir)
}

/// The version of the reference, as its package has it.
fn version() -> anyhow::Result<String> {
    let output = Command::new("dpkg-query")
        .args(["--showformat=${Version}", "--show", "containernetworking-plugins"])
        .output()
        .context("dpkg-query")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
