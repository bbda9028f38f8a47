//! Which specs there are: the suite itself says so in a run that runs nothing.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use super::{Bench, left_out};
use crate::upstream::ginkgo;
use crate::upstream::junit::Outcome;

/// The names that `suite` matches, and that are left of them by `--focus` and `--skip`.
///
/// # Errors
/// If the suite does not answer.
pub fn wanted(bench: &Bench, suite: &str) -> anyhow::Result<Vec<String>> {
    let mut wanted = matching(bench, suite)?;
    if let Some(focus) = &bench.options.focus {
        let focused: BTreeSet<String> = matching(bench, focus)?.into_iter().collect();
        wanted.retain(|name| focused.contains(name));
    }
    Ok(wanted)
}

fn matching(bench: &Bench, focus: &str) -> anyhow::Result<Vec<String>> {
    let dir = bench.out.join("specs");
    std::fs::create_dir_all(&dir)?;
    let mut command = Command::new(&bench.suite);
    command.arg("--ginkgo.dry-run").arg(format!("--ginkgo.focus={focus}"));
    let skips = bench.options.skip.as_deref().into_iter().chain(left_out(bench.options.suite));
    command.args(skips.map(|skip| format!("--ginkgo.skip={skip}")));
    command.arg(format!("--report-dir={}", dir.display())).args(&bench.words);
    command.args(["--kubeconfig=/dev/null", "--provider=skeleton"]);
    let report = dir.join("junit_01.xml");
    let report = ginkgo::run(&mut command, &dir.join("log"), &report, Duration::from_secs(60), || None)?;
    let chosen = report.cases.into_iter().filter(|case| case.outcome == Outcome::Passed);
    Ok(chosen.map(|case| case.name).collect::<BTreeSet<_>>().into_iter().collect())
}
