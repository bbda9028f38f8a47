//! The reference plugins as an oracle: Trine's plugins and the reference's, built from their module (Debian's older ones where there is
//! no Go), get the same words, each in a machine of its own (a network namespace), and must leave the same answers, links,
//! addresses, routes, rules and queues. Tables of packets are each one's own.
//!
//! - `cases` what they are asked
//! - `machine` a namespace that stands for a machine, with one for a Pod, and what is in them
//! - `cnitool` another's caller of plugins, against Trine's
//! - `compare` what of it must be the same, `apart` where it is meant to differ (pure)

mod apart;
mod cases;
mod cnitool;
mod compare;
mod machine;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use super::finish::{Run, finish};
use super::junit::{Case, Outcome, Report};
use super::options::Options;
use super::{go, network_plugins, trine};
use crate::test::workspace_root;
use machine::Machine;

/// Where Debian has the reference plugins.
const DEBIANS: &str = "/usr/lib/cni";
/// The version that Debian's do not speak.
const NEWEST: &str = "1.1.0";

/// The folder of the reference's plugins, and their version.
fn reference(root: &Path) -> anyhow::Result<(PathBuf, String)> {
    if go::present() {
        return Ok((network_plugins::build(root)?, network_plugins::version(root)?));
    }
    anyhow::ensure!(
        Path::new(DEBIANS).is_dir(),
        "cni: the reference plugins are not here: install Go, or containernetworking-plugins"
    );
    Ok((DEBIANS.into(), version()?))
}

/// Asks both and keeps the row.
///
/// # Errors
/// What [`super::run`] says.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let root = workspace_root()?;
    crate::packages::install_for_network_bench()?;
    let (reference, version) = reference(&root)?;
    let program = trine::program(&root, options.program.as_deref())?;
    let ours = tempdir("plugins")?;
    let mut asked = Vec::new();
    for case in cases::all() {
        let wanted = |text: &Option<String>| text.as_ref().map(|text| case.name.contains(text.as_str()));
        if wanted(&options.focus) == Some(false) || wanted(&options.skip) == Some(true) {
            continue;
        }
        if !reference.join(case.plugin).is_file() {
            continue;
        }
        for plugin in
            [case.plugin, "host-local", "static"].into_iter().chain(case.below.map(|(plugin, _)| plugin))
        {
            let link = ours.join(plugin);
            if !link.exists() {
                std::os::unix::fs::symlink(&program, &link)?;
            }
        }
        let newest = reference != Path::new(DEBIANS);
        asked
            .extend(case.versions.iter().filter(|v| newest || **v != NEWEST).map(|version| (case, *version)));
    }
    let mut cases = ask(&asked, &ours, &reference)?;
    if !options.partial() && go::present() {
        for name in ["bridge", "portmap", "bandwidth", "tuning", "host-local"] {
            let link = ours.join(name);
            if !link.exists() {
                std::os::unix::fs::symlink(&program, &link)?;
            }
        }
        cases.extend(cnitool::run(&network_plugins::cnitool(&root)?, &ours)?);
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
    let run = Run { root: &root, options, part: "", version: &version, keep: true };
    finish(&run, &Report { cases, around: Vec::new() }, |_| true)
}

/// Cases at once: each is in machines of its own.
const AT_ONCE: usize = 4;

/// Runs cases, each in its version.
fn ask(asked: &[(&cases::Case, &str)], ours: &Path, reference: &Path) -> anyhow::Result<Vec<Case>> {
    let part = |thread: usize| -> anyhow::Result<Vec<Case>> {
        let mut cases = Vec::new();
        for (case, version) in asked.iter().skip(thread).step_by(AT_ONCE) {
            cases.extend(one(case, version, ours, reference, thread)?);
        }
        Ok(cases)
    };
    let parts: Vec<_> = std::thread::scope(|scope| {
        let part = &part;
        let threads: Vec<_> = (0..AT_ONCE).map(|thread| scope.spawn(move || part(thread))).collect();
        threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
    });
    let mut all = Vec::new();
    for part in parts {
        all.extend(part.map_err(|_| anyhow::anyhow!("a thread panicked"))??);
    }
    Ok(all)
}

/// Runs one case in one version on both sides; a spec for each step.
fn one(
    case: &cases::Case,
    version: &str,
    ours: &Path,
    reference: &Path,
    thread: usize,
) -> anyhow::Result<Vec<Case>> {
    let config = case.config.replace("VERSION", version);
    let mut sides =
        [Machine::new(&format!("o{thread}"), ours)?, Machine::new(&format!("r{thread}"), reference)?];
    if let Some((plugin, below)) = case.below {
        for side in &mut sides {
            let answer = side.ask(plugin, &cases::BELOW, &below.replace("VERSION", version))?;
            anyhow::ensure!(answer.success, "{}: {plugin} fails: {}", case.name, answer.json);
        }
    }
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
