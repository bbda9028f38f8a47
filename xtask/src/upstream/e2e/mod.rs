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

use super::finish::{Run, finish};
use super::go::{self, Tool};
use super::junit::{Case, Outcome, Report};
use super::options::Options;
use super::suite::Suite;
use super::trine::{self, Trine};
use crate::test::workspace_root;
use progress::Progress;

/// The suite.
pub const TOOL: Tool = Tool {
    module: "e2e",
    package: "k8s.io/kubernetes/test/e2e",
    test: true,
    file: "e2e.test",
    ldflags: VERSION,
    versioned: "k8s.io/kubernetes",
};

/// What its specs of the command line call.
const KUBECTL: Tool = Tool { package: "k8s.io/kubernetes/cmd/kubectl", test: false, file: "kubectl", ..TOOL };

/// The version that upstream's own build writes into both.
const VERSION: &str = "-X k8s.io/component-base/version.gitVersion={version} \
    -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor={minor} \
    -X k8s.io/component-base/version.gitTreeState=clean";

/// What every spec of a run is given.
pub struct Bench<'a> {
    /// `e2e.test`.
    pub suite: PathBuf,
    /// `kubectl`.
    pub kubectl: PathBuf,
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
        out: root.join("target/upstream").join(options.suite.name()),
        options,
    };
    std::fs::create_dir_all(&bench.out)?;
    let program = trine::program(&root, options)?;
    let wanted = specs::wanted(&bench, focus(options.suite)?)?;
    anyhow::ensure!(!wanted.is_empty(), "no spec is chosen");
    let mut progress = Progress::open(&bench.out.join("done.json"), options.resume)?;
    let mut result = Ok(());
    for (group, names) in plan::groups(&wanted, options.sig.as_deref()) {
        let done = one_group(&root, &bench, &program, &group, &names, &mut progress);
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
    program: &Path,
    group: &str,
    names: &[String],
    progress: &mut Progress,
) -> anyhow::Result<()> {
    let left: Vec<String> = names.iter().filter(|name| !progress.done(name)).cloned().collect();
    println!("== {} {group}: {} specs, {} to run", bench.options.suite.name(), names.len(), left.len());
    let mut around = Vec::new();
    if !left.is_empty() {
        let log = bench.out.join(format!("{group}.trine.log"));
        let mut trine = start(bench, program, &log)?;
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

fn start(bench: &Bench, program: &Path, log: &Path) -> anyhow::Result<Trine> {
    let nodes = bench.options.nodes.to_string();
    let mut words = vec!["up"];
    if bench.options.nodes > 1 {
        words.extend(["--nodes", &nodes]);
    }
    anyhow::ensure!(bench.options.store == "redb", "--store etcd: not written yet");
    let mut trine = Trine::start(program, "e2e", &words, "kubeconfig", log)?;
    trine.ready()?;
    Ok(trine)
}

/// Which specs make up a suite.
fn focus(suite: Suite) -> anyhow::Result<&'static str> {
    match suite {
        Suite::Conformance => Ok(r"\[Conformance\]"),
        Suite::Node => Ok(r"\[NodeConformance\]"),
        Suite::Netpol => Ok(r"Netpol|NetworkPolicy"),
        other => anyhow::bail!("{} is no suite of e2e.test", other.name()),
    }
}
