//! `policy-assistant`: 230 generated network policies, and what packets do under each. Upstream's tool of that name is in no
//! published module; cyclonus, of which it was made, is, and generates the same cases. What is tried from a Pod is tried by one
//! call into it, by a small program of our own.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use anyhow::Context;

use super::etcd::Etcd;
use super::finish::{Run, finish};
use super::go::{self, Tool};
use super::junit::{Case, Outcome, Report};
use super::options::Options;
use super::trine::{self, Trine};
use super::{ginkgo, images};
use crate::test::workspace_root;

/// The suite.
const TOOL: Tool = Tool {
    module: "tests/upstream/policy-assistant",
    package: "./cases",
    test: false,
    file: "policy-cases",
    ldflags: "",
    versioned: "github.com/mattfenwick/cyclonus",
};

/// How long all cases may take.
const DEADLINE: Duration = Duration::from_secs(4 * 3600);
/// How long the cluster has to take a policy over, s. Upstream's default is 5.
const SETTLED: &str = "2";

/// Runs the suite and keeps its row. `--focus` and `--skip` are names of its tags, with commas between them.
///
/// # Errors
/// What [`super::run`] says.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let root = workspace_root()?;
    let suite = go::build(&root, &TOOL)?;
    let program = trine::program(&root, options.program.as_deref())?;
    let out = root.join("target/upstream/policy-assistant");
    std::fs::create_dir_all(&out)?;
    let images = images::prepare(&root, &program, None)?;
    let config = images.config_dir.display().to_string();
    let etcd = Etcd::asked_for(&root, options)?;
    let mut trine =
        Trine::cluster((&program, &config), "policy", options, etcd.as_ref(), &out.join("trine.log"))?;
    let report = out.join("junit.xml");
    let mut command = Command::new(suite);
    command.env("KUBECONFIG", trine.data_dir.join("kubeconfig")).args(["-wait", SETTLED]);
    command.args(["-exclude", options.skip.as_deref().unwrap_or_default()]);
    command.args(["-include", options.focus.as_deref().unwrap_or_default()]);
    command.arg("-junit").arg(&report);
    let log = out.join("cases.log");
    let text = ginkgo::to_the_end(&mut command, &log, &report, DEADLINE, || trine.broken())?;
    if let Some(why) = trine.broken() {
        anyhow::bail!("policy-assistant: {why}");
    }
    drop(trine);
    let report = Report { cases: read(&text)?, around: Vec::new() };
    anyhow::ensure!(!report.cases.is_empty(), "no case was run (log: {})", log.display());
    let version = format!("cyclonus {}", go::version(&root, &TOOL)?);
    finish(&Run { root: &root, options, part: "", version: &version, keep: true }, &report, |_| true)
}

/// The cases of its report, which has several of one name: those are numbered.
fn read(text: &str) -> anyhow::Result<Vec<Case>> {
    let document = roxmltree::Document::parse(text).context("the report is no XML")?;
    let mut seen: BTreeMap<&str, u32> = BTreeMap::new();
    let mut cases = Vec::new();
    for case in document.descendants().filter(|node| node.has_tag_name("testcase")) {
        let name = case.attribute("name").unwrap_or_default();
        let times = seen.entry(name).and_modify(|times| *times += 1).or_insert(1);
        let name = if *times > 1 { format!("{name} ({times})") } else { name.to_owned() };
        let failed = case.children().any(|child| child.has_tag_name("failure"));
        let outcome =
            if failed { Outcome::Failed("packets did otherwise".to_owned()) } else { Outcome::Passed };
        cases.push(Case { name, outcome });
    }
    Ok(cases)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_of_one_name_are_told_apart_and_a_failure_is_one_although_it_says_nothing() {
        let text = r#"<testsuite tests="0" failures="1" name="cyclonus"><properties></properties>
            <testcase classname="" name="deny all" time=""></testcase>
            <testcase classname="" name="deny all" time=""><failure message="" type=""></failure></testcase></testsuite>"#;
        let failed = Outcome::Failed("packets did otherwise".into());
        let case = |name: &str, outcome| Case { name: name.into(), outcome };
        assert_eq!(read(text).unwrap(), [case("deny all", Outcome::Passed), case("deny all (2)", failed)]);
    }
}
