//! What the guest said, judged and written down.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use super::guest::{Job, MARK};
use crate::skips;
use crate::upstream::results::today;

/// What became of one job.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// The job's name.
    pub name: String,
    /// Its exit code; none if it did not come to an end.
    pub code: Option<i32>,
    /// How long it took, s.
    pub seconds: u64,
    /// Tests that passed, those that were skipped among them.
    pub passed: Vec<String>,
    /// Tests that failed.
    pub failed: Vec<String>,
    /// Tests that say that they could not run, with the reason.
    pub skipped: Vec<(String, String)>,
    /// What it left in the guest.
    pub left: Vec<String>,
}

/// What the guest said.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The jobs that began, in order.
    pub runs: Vec<Run>,
    /// True if the guest came to its own end.
    pub done: bool,
    /// True if it had no scratch disk.
    pub lost: bool,
}

/// Reads it: marked lines say what begins and ends, the others are the output of tests.
#[must_use]
pub fn read(said: &str) -> Report {
    let mut report = Report::default();
    for line in said.lines().map(|line| line.trim_end_matches('\r')) {
        let Some(line) = line.strip_prefix(MARK) else {
            if let Some(run) = report.runs.last_mut() {
                run.hear(line);
            }
            continue;
        };
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        let run = report.runs.last_mut();
        match (verb, run) {
            ("begin", _) => report.runs.push(Run { name: rest.to_owned(), ..Run::default() }),
            ("done", _) => report.done = true,
            ("lost", _) => report.lost = true,
            ("end", Some(run)) => {
                let mut numbers = rest.split(' ');
                run.code = numbers.next().and_then(|n| n.parse().ok());
                run.seconds = numbers.next().and_then(|n| n.parse().ok()).unwrap_or(0);
            }
            ("skip", Some(run)) => {
                let (test, reason) = rest.split_once('\t').unwrap_or((rest, ""));
                run.skipped.push((test.to_owned(), reason.to_owned()));
            }
            ("left", Some(run)) => run.left.push(rest.to_owned()),
            _ => {}
        }
    }
    report
}

impl Run {
    /// `test a::b ... ok`
    fn hear(&mut self, line: &str) {
        let Some((test, outcome)) = line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... "))
        else {
            return;
        };
        let test = test.rsplit("::").next().unwrap_or(test).to_owned();
        match outcome {
            "ok" => self.passed.push(test),
            "FAILED" => self.failed.push(test),
            _ => {}
        }
    }

    fn was_skipped(&self, test: &str) -> bool {
        self.skipped.iter().any(|(skipped, _)| skipped == test)
    }
}

impl Report {
    /// Success if every job came to a good end, left nothing, and skipped only what is declared.
    ///
    /// # Errors
    /// What was not so.
    pub fn judge(&self, root: &Path, jobs: &[Job]) -> anyhow::Result<()> {
        let allowed = skips::allowed_under_a_stock_kernel(root)?;
        let problems = self.problems(&jobs.iter().map(|job| job.name.as_str()).collect::<Vec<_>>(), &allowed);
        anyhow::ensure!(problems.is_empty(), "under the stock kernel:\n  {}", problems.join("\n  "));
        Ok(())
    }

    fn problems(&self, jobs: &[&str], allowed: &BTreeSet<String>) -> Vec<String> {
        let mut problems = Vec::new();
        if self.lost {
            problems.push("the machine had no scratch disk".to_owned());
        }
        if !self.done {
            problems.push("the machine did not come to its end".to_owned());
        }
        for job in jobs.iter().filter(|job| self.runs.iter().all(|run| run.name != **job)) {
            problems.push(format!("{job}: not begun"));
        }
        for run in &self.runs {
            match run.code {
                Some(0) => {}
                Some(code) => problems.push(format!("{}: exit code {code}", run.name)),
                None => problems.push(format!("{}: no end", run.name)),
            }
            problems.extend(run.failed.iter().map(|test| format!("{}: {test} failed", run.name)));
            problems.extend(run.left.iter().map(|what| format!("{}: left behind: {what}", run.name)));
            let undeclared = run.skipped.iter().filter(|(test, _)| !allowed.contains(test));
            problems.extend(undeclared.map(|(test, why)| format!("{}: skipped {test}: {why}", run.name)));
        }
        problems
    }

    /// The page with the results.
    ///
    /// # Errors
    /// If the declaration of skips cannot be read.
    pub fn markdown(&self, root: &Path, release: &str) -> anyhow::Result<String> {
        let only_here = skips::skipped_for_this_kernel(root)?;
        let date = today();
        let mut page = format!(
            "# Under a stock kernel\n\nWritten by `cargo xtask vm`: Debian's Linux {release} under emulation, cgroup version 2 \
             alone, {date}.\n\n| what | passed | failed | skipped | seconds |\n|---|---|---|---|---|\n"
        );
        for run in &self.runs {
            let skipped = run.passed.iter().filter(|test| run.was_skipped(test)).count();
            let passed = run.passed.len() - skipped;
            // The demo is no collection of tests.
            let (passed, failed) = match run.code {
                Some(0) if run.passed.is_empty() => (1, 0),
                Some(0) => (passed, 0),
                _ => (passed, run.failed.len().max(1)),
            };
            let _ = writeln!(page, "| {} | {passed} | {failed} | {skipped} | {} |", run.name, run.seconds);
        }
        let listed = |page: &mut String, title: &str, lines: &[String]| {
            if !lines.is_empty() {
                let _ = write!(page, "\n## {title}\n\n");
                lines.iter().for_each(|line| _ = writeln!(page, "- {line}"));
            }
        };
        let tests = |of: fn(&Run) -> &Vec<String>| {
            self.runs.iter().flat_map(move |run| of(run).iter().map(move |test| (run, test)))
        };
        let failed: Vec<_> =
            tests(|run| &run.failed).map(|(run, test)| format!("{}: {test}", run.name)).collect();
        listed(&mut page, "Failed", &failed);
        let ran_here = tests(|run| &run.passed)
            .filter(|(run, test)| only_here.contains(*test) && !run.was_skipped(test))
            .map(|(run, test)| format!("{}: {test}", run.name));
        listed(&mut page, "Ran only here", &ran_here.collect::<Vec<_>>());
        let skipped =
            self.runs.iter().flat_map(|run| &run.skipped).map(|(test, why)| format!("{test}: {why}"));
        listed(&mut page, "Skipped here too", &skipped.collect::<Vec<_>>());
        Ok(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "@@ begin demo\r\n-- fine\r\n@@ end 0 70\r\n@@ begin cri.pod\nrunning 3 tests\n\
        test a::one ... ok\ntest two ... FAILED\ntest three ... ok\n@@ skip three\tneeds a moon\n\
        @@ left cgroup /x\n@@ end 101 12\n@@ begin hung\ntest four ... ok\n";

    #[test]
    fn the_marked_lines_and_the_lines_of_tests_make_the_report() {
        let report = read(SAID);
        assert!(!report.done);
        let [demo, pod, hung] = report.runs.as_slice() else { panic!("{report:?}") };
        assert_eq!((demo.name.as_str(), demo.code, demo.seconds), ("demo", Some(0), 70));
        assert_eq!(
            (pod.passed.as_slice(), pod.failed.as_slice()),
            (&["one".into(), "three".into()][..], &["two".into()][..])
        );
        assert_eq!(pod.skipped, [("three".to_owned(), "needs a moon".to_owned())]);
        assert_eq!((hung.code, hung.passed.len()), (None, 1));
    }

    #[test]
    fn whatever_is_not_as_it_should_be_is_named() {
        let problems = read(SAID).problems(&["demo", "cri.pod", "hung", "never"], &BTreeSet::new());
        let expected = [
            "the machine did not come to its end",
            "never: not begun",
            "cri.pod: exit code 101",
            "cri.pod: two failed",
            "cri.pod: left behind: cgroup /x",
            "cri.pod: skipped three: needs a moon",
            "hung: no end",
        ];
        assert_eq!(problems, expected);
        let good = read("@@ begin a\ntest b ... ok\n@@ skip b\tc\n@@ end 0 1\n@@ done\n");
        assert_eq!(good.problems(&["a"], &BTreeSet::from(["b".to_owned()])), [""; 0]);
    }
}
