//! `critest` against Trine's runtime alone.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::finish::{Run, finish, not_here};
use super::go::{self, Tool};
use super::junit::Outcome;
use super::options::Options;
use super::trine::{self, Trine};
use super::{ginkgo, images, junit};
use crate::test::workspace_root;

/// The suite.
pub const TOOL: Tool = Tool {
    module: "tests/upstream/critest",
    package: "sigs.k8s.io/cri-tools/cmd/critest",
    test: true,
    file: "critest",
    ldflags: "",
    versioned: "sigs.k8s.io/cri-tools",
};

/// What critest calls for specs beside each other.
const BESIDE: Tool = Tool {
    package: "github.com/onsi/ginkgo/v2/ginkgo",
    test: false,
    file: "ginkgo-command",
    versioned: "github.com/onsi/ginkgo/v2",
    ..TOOL
};

/// How long all specs may take.
const DEADLINE: Duration = Duration::from_secs(30 * 60);
/// What the names of measurements, which are specs, too, have in them.
const BENCHMARK: &str = " benchmark about ";
const SOCKET: &str = "run/cri.sock";

/// Runs the suite and keeps its row.
///
/// # Errors
/// What [`super::run`] says.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let root = workspace_root()?;
    let suite = go::build(&root, &TOOL)?;
    let program = trine::program(&root, options.program.as_deref())?;
    let out = root.join("target/upstream/critest-out");
    std::fs::create_dir_all(&out)?;
    let images = images::prepare(&root, &program, None)?;
    let config = images.config_dir.display().to_string();
    let words = ["cri", "--registry-config", &config];
    let mut trine = Trine::start(&program, "critest", &words, SOCKET, &out.join("trine.log"))?;
    let report = out.join("junit.xml");
    let mut command = Command::new(suite);
    let mut part = String::new();
    if options.procs > 1 {
        "parallel".clone_into(&mut part);
        beside(&mut command, &go::build(&root, &BESIDE)?, &out)?;
        command.arg(format!("--parallel={}", options.procs)).arg("--ginkgo.junit-report=junit.xml");
    } else {
        command.arg(format!("--ginkgo.junit-report={}", report.display()));
    }
    command.arg(format!("--runtime-endpoint=unix://{}", trine.data_dir.join(SOCKET).display()));
    // A file of the machine's own must not change what is run.
    command.arg("--config=/dev/null");
    command.arg("--ginkgo.no-color");
    command.arg(format!("--ginkgo.timeout={}s", DEADLINE.as_secs()));
    command.args(options.focus.iter().map(|focus| format!("--ginkgo.focus={focus}")));
    command.args(options.skip.iter().map(|skip| format!("--ginkgo.skip={skip}")));
    let not_here = not_here(&root, options);
    command.args(not_here.0.keys().map(|name| format!("--ginkgo.skip={}", ginkgo::exactly(name))));
    let read = ginkgo::run(&mut command, &out.join("critest.log"), &report, DEADLINE, || trine.broken())?;
    if let Some(why) = trine.broken() {
        anyhow::bail!("critest: {why}");
    }
    drop(trine);
    let version = go::version(&root, &TOOL)?;
    let run = Run { root: &root, options, part: &part, version: &version, keep: true };
    // Measurements are never run among the others.
    let cases = read.cases.into_iter().filter(|case| !case.name.contains(BENCHMARK));
    let cases = cases.map(|case| match not_here.0.get(&case.name) {
        Some(why) => junit::Case { name: case.name, outcome: Outcome::Skipped(why.clone()) },
        None => case,
    });
    finish(&run, &junit::Report { around: read.around, cases: cases.collect() }, |_| !options.partial())
}

/// Has critest find its `ginkgo`, which by itself would leave the report in a folder that is gone afterwards.
fn beside(command: &mut Command, ginkgo: &Path, out: &Path) -> anyhow::Result<()> {
    let bin = out.join("bin");
    std::fs::create_dir_all(&bin)?;
    let script = bin.join("ginkgo");
    let text = format!("#!/bin/sh\nexec '{}' --output-dir='{}' \"$@\"\n", ginkgo.display(), out.display());
    std::fs::write(&script, text)?;
    std::fs::set_permissions(&script, Permissions::from_mode(0o755))?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all = std::iter::once(bin).chain(std::env::split_paths(&path));
    command.env("PATH", std::env::join_paths(all)?);
    Ok(())
}
