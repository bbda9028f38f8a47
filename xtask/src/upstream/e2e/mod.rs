//! The suites that are specs of upstream's `e2e.test`, against a whole cluster: each spec in a process of its own, so that none
//! holds another up, each has its own deadline, and a crash of Trine has a name.
//!
//! - `specs` which specs there are; `plan` in which order, how long, and what an end means (pure)
//! - `progress` what is done, kept over runs; `work` the specs themselves

mod plan;
mod progress;
mod specs;
mod work;

use std::path::{Path, PathBuf};

use anyhow::Context;

use super::etcd::Etcd;
use super::finish::{Run, finish, not_here};
use super::go::{self, Tool};
use super::images;
use super::junit::{Case, Outcome, Report};
use super::options::Options;
use super::suite::Suite;
use super::trine::{self, Trine};
use crate::test::workspace_root;
use progress::Progress;

/// The suite.
pub const TOOL: Tool = Tool {
    module: "tests/upstream/e2e",
    package: "k8s.io/kubernetes/test/e2e",
    test: true,
    file: "e2e.test",
    ldflags: go::KUBERNETES_VERSION,
    versioned: "k8s.io/kubernetes",
};

/// What its specs of the command line call.
const KUBECTL: Tool = Tool { package: "k8s.io/kubernetes/cmd/kubectl", test: false, file: "kubectl", ..TOOL };

/// What every spec of a run is given.
pub struct Bench<'a> {
    /// `e2e.test`.
    pub suite: PathBuf,
    /// `kubectl`.
    pub kubectl: PathBuf,
    /// More words for `e2e.test`.
    pub words: Vec<String>,
    /// Reports, logs and what is done.
    pub out: PathBuf,
    /// What was asked for.
    pub options: &'a Options,
}

/// Runs the suite, group by group, and keeps a row for each.
///
/// # Errors
/// What [`super::run`] says.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let root = workspace_root()?;
    let bench = Bench {
        suite: go::build(&root, &TOOL)?,
        kubectl: go::build(&root, &KUBECTL)?,
        words: words(&root, options.suite),
        out: root.join("target/upstream").join(options.suite.name()),
        options,
    };
    std::fs::create_dir_all(&bench.out)?;
    let program = trine::program(&root, options.program.as_deref())?;
    let wanted = specs::wanted(&bench, focus(options.suite)?)?;
    let groups = plan::groups(&wanted, options.sig.as_deref());
    anyhow::ensure!(!groups.is_empty(), "no spec is chosen");
    let images = images::prepare(&root, &program, named(options.suite))?;
    let config = images.config_dir.display().to_string();
    let mut progress = Progress::open(&bench.out.join("done.json"), options.resume)?;
    let mut result = Ok(());
    for (group, names) in groups {
        let done = one_group(&root, &bench, (&program, &config), &group, &names, &mut progress);
        if let Err(error) = &done {
            println!("{error:#}");
        }
        result = result.and(done);
    }
    result.context("not all groups are as they are known to be")
}

fn one_group(
    root: &Path,
    bench: &Bench,
    trine: (&Path, &str),
    group: &str,
    names: &[String],
    progress: &mut Progress,
) -> anyhow::Result<()> {
    let not_here = not_here(root, bench.options);
    for (name, why) in not_here.0.iter().filter(|(name, _)| names.contains(name)) {
        progress.note(name, Outcome::Skipped(why.clone()))?;
    }
    let left: Vec<String> = names.iter().filter(|name| !progress.done(name)).cloned().collect();
    println!("== {} {group}: {} specs, {} to run", bench.options.suite.name(), names.len(), left.len());
    let mut around = Vec::new();
    if !left.is_empty() {
        let log = bench.out.join(format!("{group}.trine.log"));
        let etcd = Etcd::asked_for(root, bench.options)?;
        let mut trine = Trine::cluster(trine, "e2e", bench.options, etcd.as_ref(), &log)?;
        around = work::run(bench, &mut trine, &left, progress)?;
    }
    let case = |name: &String| Case {
        name: name.clone(),
        outcome: progress.outcome(name).cloned().unwrap_or(Outcome::NotRun),
    };
    let report = Report { cases: names.iter().map(case).collect(), around };
    let version = go::version(root, &TOOL)?;
    finish(&Run { root, options: bench.options, part: group, version: &version, keep: true }, &report, |_| {
        true
    })
}

/// Which specs make up a suite.
fn focus(suite: Suite) -> anyhow::Result<&'static str> {
    match suite {
        Suite::Conformance => Ok(r"\[Conformance\]"),
        Suite::Node => Ok(r"\[NodeConformance\]"),
        Suite::Storage => Ok(r"External.Storage"),
        Suite::Netpol => Ok(r"Netpol|NetworkPolicy"),
        Suite::Dra => Ok(r"\[DRA\]"),
        Suite::DualStack => Ok(r"\[Feature:IPv6DualStack\]"),
        other => anyhow::bail!("{} is no suite of e2e.test", other.name()),
    }
}

/// Which of them do not: what upstream has off unless somebody asks for it.
fn left_out(suite: Suite) -> Option<&'static str> {
    (suite == Suite::Dra).then_some("Feature:OffByDefault")
}

/// The images that a suite names, where these are few.
fn named(suite: Suite) -> Option<&'static [&'static str]> {
    match suite {
        Suite::Dra => Some(&["pause", "busybox", "agnhost", "sample-device-plugin", "hostpathplugin"]),
        _ => None,
    }
}

/// What `e2e.test` has to be told for a suite.
fn words(root: &Path, suite: Suite) -> Vec<String> {
    let driver = root.join("tests/upstream/e2e/trine-disk.yaml");
    if suite == Suite::Storage {
        vec![format!("--storage.testdriver={}", driver.display())]
    } else {
        Vec::new()
    }
}
