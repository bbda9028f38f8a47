//! Runs a suite's program with a deadline, ginkgo's or another that writes a JUnit report; what it says goes to a file.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;

use super::junit::{self, Report};

/// How long after its own deadline a suite may still clean up and write its report.
const GRACE: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(100);

/// Runs `command` and reads its report, as [`to_the_end`] does.
///
/// # Errors
/// What [`to_the_end`] says, or if the report is none of ginkgo's.
pub fn run(
    command: &mut Command,
    log: &Path,
    report: &Path,
    deadline: Duration,
    watch: impl FnMut() -> Option<String>,
) -> anyhow::Result<Report> {
    junit::read(&to_the_end(command, log, report, deadline, watch)?)
}

/// Runs `command`, which ends by itself at `deadline` and writes its report to `report`: the text of it. A suite that fails is
/// no error, only one without a report is. `watch` is asked every few seconds and ends the run by saying why.
///
/// # Errors
/// If it does not start, writes no report, or `watch` ended it.
pub fn to_the_end(
    command: &mut Command,
    log: &Path,
    report: &Path,
    deadline: Duration,
    mut watch: impl FnMut() -> Option<String>,
) -> anyhow::Result<String> {
    let _ = std::fs::remove_file(report);
    let file = File::create(log).with_context(|| log.display().to_string())?;
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    let mut child = command.spawn().with_context(|| format!("cannot run {command:?}"))?;
    let since = Instant::now();
    let mut polls = 0_u32;
    let ended = loop {
        if child.try_wait()?.is_some() {
            break None;
        }
        if since.elapsed() > deadline + GRACE {
            break Some(format!("it did not end within {deadline:?} and {GRACE:?} more"));
        }
        polls += 1;
        if polls.is_multiple_of(30)
            && let Some(why) = watch()
        {
            break Some(why);
        }
        std::thread::sleep(POLL);
    };
    if let Some(why) = ended {
        stop(&mut child);
        anyhow::bail!("{why} (the suite's log: {})", log.display());
    }
    std::fs::read_to_string(report).with_context(|| {
        let said = std::fs::read_to_string(log).unwrap_or_default();
        let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("nothing").to_owned();
        format!("the suite wrote no report; its last words: {last} (all of them: {})", log.display())
    })
}

/// The expression that matches one spec alone.
pub fn exactly(name: &str) -> String {
    let mut expression = String::new();
    for character in without_versions(name).chars() {
        if character.is_ascii_punctuation() {
            expression.push('\\');
        }
        expression.push(character);
    }
    expression.push('$');
    expression
}

/// A name without the versions of components that the report puts behind it (` [kubelet: [>=1.34]]`): no expression sees them.
fn without_versions(name: &str) -> &str {
    let versions = name.ends_with("]]").then(|| name.rfind(": [")).flatten();
    let start = versions.and_then(|at| name[..at].rfind(" ["));
    start.map_or(name, |start| &name[..start])
}

fn stop(child: &mut std::process::Child) {
    let _ = Command::new("kill").arg(child.id().to_string()).status();
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(10) {
        if matches!(child.try_wait(), Ok(Some(_))) {
            return;
        }
        std::thread::sleep(POLL);
    }
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> (tempfile::TempDir, anyhow::Result<Report>) {
        let dir = tempfile::tempdir().unwrap();
        let report = dir.path().join("junit.xml");
        let mut command = Command::new("sh");
        command.args(["-c", script]).env("REPORT", &report);
        let gone = || Some("Trine is gone".to_owned());
        let result = run(&mut command, &dir.path().join("log"), &report, Duration::from_secs(20), gone);
        (dir, result)
    }

    #[test]
    fn a_suite_that_fails_is_read_and_one_without_a_report_says_its_last_words() {
        let (_dir, read) = shell("echo '<testsuites/>' > $REPORT; exit 1");
        assert_eq!(read.unwrap(), Report::default());
        let (_dir, none) = shell("echo no such socket; exit 1");
        assert!(none.unwrap_err().to_string().contains("no such socket"));
    }

    #[test]
    fn a_name_is_taken_literally_by_its_expression() {
        assert_eq!(exactly("[sig-x] a (b) | c.d"), r"\[sig\-x\] a \(b\) \| c\.d$");
        assert_eq!(exactly("a [Min:1.34] [kubelet: [>=1.34]]"), r"a \[Min\:1\.34\]$");
    }

    #[test]
    fn a_suite_is_ended_when_what_it_tests_is_gone() {
        let since = Instant::now();
        let (_dir, ended) = shell("exec sleep 20");
        assert!(ended.unwrap_err().to_string().contains("Trine is gone"));
        assert!(since.elapsed() < Duration::from_secs(15));
    }
}
