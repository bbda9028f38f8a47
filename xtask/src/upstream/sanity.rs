//! `csi-sanity` against Trine's CSI driver alone, for volumes with a file system and for raw ones.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::finish::{Run, finish};
use super::go::{self, Tool};
use super::options::Options;
use super::trine::{self, Trine};
use super::{ginkgo, junit};
use crate::test::workspace_root;

/// The suite.
pub const TOOL: Tool = Tool {
    module: "tests/upstream/csi",
    package: "github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity",
    test: false,
    file: "csi-sanity",
    ldflags: "",
    versioned: "github.com/kubernetes-csi/csi-test/v5",
};

/// How long all specs of one kind of volume may take.
const DEADLINE: Duration = Duration::from_secs(15 * 60);
/// Sizes of the suite's volumes, bytes: the smallest that every file system takes, and what they grow to.
const SIZE: u64 = 320 << 20;
const GROWN: u64 = 384 << 20;
/// Volumes that the driver takes: few, because the suite tries one more.
const MAX_VOLUMES: &str = "12";
const SOCKET: &str = "kubelet/plugins/disk.csi.trine.dev/csi.sock";

/// Runs the suite and keeps its rows.
///
/// # Errors
/// What [`super::run`] says.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let root = workspace_root()?;
    let suite = go::build(&root, &TOOL)?;
    let program = trine::program(&root, options.program.as_deref())?;
    let mut result = Ok(());
    for access in ["mount", "block"] {
        let done = one(&root, options, &suite, &program, access, true);
        result = result.and(done);
    }
    result
}

/// Runs the suite for one kind of volume; `keep` writes its row.
///
/// # Errors
/// What [`super::run`] says.
pub fn one(
    root: &Path,
    options: &Options,
    suite: &Path,
    program: &Path,
    access: &str,
    keep: bool,
) -> anyhow::Result<()> {
    let out = root.join("target/upstream/csi-sanity-out");
    std::fs::create_dir_all(&out)?;
    let log = out.join(format!("{access}.trine.log"));
    let mut trine = Trine::start(
        program,
        "sanity",
        &["csi-driver", "--node-id", "node-1", "--max-volumes", MAX_VOLUMES],
        SOCKET,
        &log,
    )?;
    let data_dir = trine.data_dir.clone();
    let report = out.join(format!("{access}.xml"));
    let mut command = Command::new(suite);
    command.arg(format!("--csi.endpoint=unix://{}", data_dir.join(SOCKET).display()));
    command.arg(format!("--csi.mountdir={}", data_dir.join("target").display()));
    command.arg(format!("--csi.stagingdir={}", data_dir.join("staging").display()));
    command.arg(format!("--csi.testvolumesize={SIZE}")).arg(format!("--csi.testvolumeexpandsize={GROWN}"));
    command.arg(format!("--csi.testvolumeaccesstype={access}")).arg("--csi.testnodevolumeattachlimit=true");
    command.arg(format!("--ginkgo.junit-report={}", report.display()));
    command.arg(format!("--ginkgo.timeout={}s", DEADLINE.as_secs()));
    command.args(options.focus.iter().map(|focus| format!("--ginkgo.focus={focus}")));
    command.args(options.skip.iter().map(|skip| format!("--ginkgo.skip={skip}")));
    let suite_log = out.join(format!("{access}.log"));
    let read = ginkgo::run(&mut command, &suite_log, &report, DEADLINE, || trine.broken())?;
    if let Some(why) = trine.broken() {
        anyhow::bail!("csi-sanity {access}: {why}");
    }
    drop(trine);
    let version = go::version(root, &TOOL)?;
    let run = Run { root, options, part: access, version: &version, keep };
    let read = junit::Report { around: read.around, cases: named(read.cases, access) };
    finish(&run, &read, |_| !options.partial())
}

/// Both kinds of volume share one list of known failures, so the kind is part of a spec's name.
fn named(cases: Vec<junit::Case>, access: &str) -> Vec<junit::Case> {
    cases
        .into_iter()
        .map(|case| junit::Case { name: format!("{access}: {}", case.name), outcome: case.outcome })
        .collect()
}
