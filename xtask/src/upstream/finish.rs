//! The end of a run: judged, kept, told.

use std::path::Path;

use super::junit::Report;
use super::known::Known;
use super::options::Options;
use super::results::{self, Row};
use super::verdict::Verdict;

/// The specs of a suite that cannot be run anywhere but with the internet at hand, or on another machine, and why.
pub fn not_here(root: &Path, options: &Options) -> Known {
    let path = root.join(format!("tests/upstream/not-here/{}.txt", options.suite.name()));
    Known::read(&std::fs::read_to_string(path).unwrap_or_default())
}

/// A run that has come to its end.
pub struct Run<'a> {
    /// The repository.
    pub root: &'a Path,
    /// What was asked for.
    pub options: &'a Options,
    /// The group of the suite; may be empty.
    pub part: &'a str,
    /// The suite's version.
    pub version: &'a str,
    /// Whether the table is to be written: a run of the whole suite, or of a whole group.
    pub keep: bool,
}

/// Judges a report, writes the list if blessed and the table if all was run, and prints what there is to say.
///
/// # Errors
/// If something fails that is not known to, passes that is known to fail, or had no end.
pub fn finish(run: &Run, report: &Report, wanted: impl Fn(&str) -> bool) -> anyhow::Result<()> {
    let suite = run.options.suite.name();
    let list = format!("tests/upstream/known-failures/{suite}.txt");
    let path = run.root.join(&list);
    let mut known = Known::read(&std::fs::read_to_string(&path).unwrap_or_default());
    let mut verdict = Verdict::of(&report.cases, &known, &wanted);
    if run.options.bless {
        known = known.blessed(&verdict.failed, &verdict.passed);
        std::fs::create_dir_all(path.parent().unwrap_or(run.root))?;
        std::fs::write(&path, known.write(suite))?;
        verdict = Verdict::of(&report.cases, &known, &wanted);
    }
    let part = if run.part.is_empty() { String::new() } else { format!(" {}", run.part) };
    println!(
        "{suite}{part} {}: {} passed, {} failed, {} skipped, {} without an end",
        run.version,
        verdict.passed.len(),
        verdict.failed.len(),
        verdict.skipped.len(),
        verdict.unfinished.len()
    );
    if run.keep && !run.options.partial() {
        // The list's reason says more than the suite's message.
        for (name, why) in &mut verdict.failed {
            if let Some(reason) = known.0.get(name).filter(|reason| !reason.is_empty()) {
                why.clone_from(reason);
            }
        }
        results::keep(run.root, &Row::of(run.options, run.part, run.version, &verdict))?;
    }
    let mut complaints = verdict.complaints(&list);
    complaints.extend(report.around.iter().map(|around| format!("failed outside of any spec: {around}")));
    for complaint in &complaints {
        println!("  {complaint}");
    }
    anyhow::ensure!(complaints.is_empty(), "{suite}{part} is not as it is known to be");
    Ok(())
}
