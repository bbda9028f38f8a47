//! What was seen, for people: `tests/upstream/RESULTS.md`. Each run of a whole suite, or of a group of it, leaves one file in
//! `tests/upstream/results`; the page is made of all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use super::options::Options;
use super::suite::{self, Suite};
use super::verdict::Verdict;

/// One row of the table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// The suite's name.
    pub suite: String,
    /// The group of it, for instance a SIG; may be empty.
    pub part: String,
    /// The suite's version.
    pub version: String,
    /// The store, where there is one.
    pub store: String,
    /// The day, UTC.
    pub date: String,
    /// Kernel and processors.
    pub machine: String,
    /// How many specs hold.
    pub passed: usize,
    /// Which fail, and why.
    pub failed: BTreeMap<String, String>,
    /// Which cannot be tried, by reason.
    pub skipped: BTreeMap<String, BTreeSet<String>>,
    /// Which had no end or no turn.
    pub unfinished: BTreeSet<String>,
}

impl Row {
    /// The row of a run.
    #[must_use]
    pub fn of(options: &Options, part: &str, version: &str, verdict: &Verdict) -> Self {
        let mut skipped: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (name, why) in &verdict.skipped {
            skipped.entry(why.clone()).or_default().insert(name.clone());
        }
        let cluster = !matches!(options.suite, Suite::Critest | Suite::CsiSanity | Suite::Cni);
        Self {
            suite: options.suite.name().to_owned(),
            part: part.to_owned(),
            version: version.to_owned(),
            store: if cluster {
                format!("{}, {} nodes", options.store, options.nodes)
            } else {
                String::new()
            },
            date: today(),
            machine: machine(),
            passed: verdict.passed.len(),
            failed: verdict.failed.clone(),
            skipped,
            unfinished: verdict.unfinished.clone(),
        }
    }

    fn file(&self) -> String {
        let words: Vec<&str> =
            [self.suite.as_str(), self.part.as_str(), self.store.split(',').next().unwrap_or_default()]
                .into_iter()
                .filter(|word| !word.is_empty())
                .collect();
        format!("{}.json", words.join("-"))
    }
}

/// The day, UTC.
pub fn today() -> String {
    said("date", &["-u", "+%F"])
}

/// Kernel and processors of this machine.
pub fn machine() -> String {
    format!("{}, {} CPU", said("uname", &["-r"]), said("nproc", &[]))
}

/// What a program says, without the line's end; nothing if it cannot.
pub fn said(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).output();
    output.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned()).unwrap_or_default()
}

/// Keeps a row, and writes the page anew.
///
/// # Errors
/// What the file system says.
pub fn keep(root: &Path, row: &Row) -> anyhow::Result<()> {
    let dir = root.join("tests/upstream/results");
    std::fs::create_dir_all(&dir)?;
    let mut text = serde_json::to_string_pretty(row)?;
    text.push('\n');
    std::fs::write(dir.join(row.file()), text)?;
    let mut rows = Vec::new();
    for entry in std::fs::read_dir(&dir)? {
        let path = entry?.path();
        let text = std::fs::read_to_string(&path)?;
        rows.push(serde_json::from_str(&text).with_context(|| path.display().to_string())?);
    }
    std::fs::write(root.join("tests/upstream/RESULTS.md"), page(rows))?;
    Ok(())
}

/// The page of `rows`. Pure.
fn page(mut rows: Vec<Row>) -> String {
    let place = |row: &Row| suite::ALL.iter().position(|s| s.name() == row.suite);
    rows.sort_by(|a, b| (place(a), &a.part, &a.store).cmp(&(place(b), &b.part, &b.store)));
    let mut text = "# What upstream's suites say of Trine\n\n\
        Written by `cargo xtask upstream SUITE` from the suites' own reports, never by hand.\n\n\
        | suite | part | version | cluster | passed | failed | skipped | unfinished | date | machine |\n\
        |---|---|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    for row in &rows {
        let skipped: usize = row.skipped.values().map(BTreeSet::len).sum();
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {skipped} | {} | {} | {} |",
            row.suite,
            row.part,
            row.version,
            row.store,
            row.passed,
            row.failed.len(),
            row.unfinished.len(),
            row.date,
            row.machine
        );
    }
    for row in &rows {
        if row.failed.is_empty() && row.skipped.is_empty() && row.unfinished.is_empty() {
            continue;
        }
        let _ = writeln!(text, "\n## {}", [row.suite.as_str(), &row.part, &row.store].join(" ").trim());
        section(&mut text, "Failed", row.failed.iter().map(|(name, why)| line(name, why)));
        let skips = row.skipped.iter().map(|(why, names)| format!("- {}: {why}", names.len()));
        section(&mut text, "Skipped, by reason", skips);
        section(&mut text, "Without an end or a turn", row.unfinished.iter().map(|name| line(name, "")));
    }
    text
}

fn section(text: &mut String, title: &str, lines: impl Iterator<Item = String>) {
    let lines: Vec<String> = lines.collect();
    if !lines.is_empty() {
        let _ = writeln!(text, "\n{title}:\n\n{}", lines.join("\n"));
    }
}

fn line(name: &str, why: &str) -> String {
    if why.is_empty() { format!("- `{name}`") } else { format!("- `{name}`: {}", why.replace('|', "\\|")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(suite: &str, part: &str) -> Row {
        Row {
            suite: suite.into(),
            part: part.into(),
            version: "v1".into(),
            store: String::new(),
            date: "2026-11-30".into(),
            machine: "6.1, 2 CPU".into(),
            passed: 3,
            failed: BTreeMap::new(),
            skipped: BTreeMap::new(),
            unfinished: BTreeSet::new(),
        }
    }

    #[test]
    fn the_page_has_a_line_for_each_row_in_the_order_of_the_suites_and_names_below() {
        let mut block = row("csi-sanity", "block");
        block.failed.insert("[Node] works".into(), "got a|b".into());
        block.skipped.insert("not offered".into(), ["x".into(), "y".into()].into());
        block.unfinished.insert("slow".into());
        let page = page(vec![row("csi-sanity", "mount"), block, row("critest", "")]);
        let table: Vec<&str> = page.lines().filter(|line| line.starts_with("| c")).collect();
        assert_eq!(
            table,
            [
                "| critest |  | v1 |  | 3 | 0 | 0 | 0 | 2026-11-30 | 6.1, 2 CPU |",
                "| csi-sanity | block | v1 |  | 3 | 1 | 2 | 1 | 2026-11-30 | 6.1, 2 CPU |",
                "| csi-sanity | mount | v1 |  | 3 | 0 | 0 | 0 | 2026-11-30 | 6.1, 2 CPU |",
            ]
        );
        for below in ["## csi-sanity block", "- `[Node] works`: got a\\|b", "- 2: not offered", "- `slow`"] {
            assert!(page.lines().any(|line| line == below), "{below} is not in\n{page}");
        }
        assert!(!page.contains("## critest"));
    }

    #[test]
    fn rows_of_other_parts_and_stores_do_not_replace_each_other() {
        let mut node = row("conformance", "sig-node");
        node.store = "etcd, 2 nodes".into();
        assert_eq!(node.file(), "conformance-sig-node-etcd.json");
        assert_eq!(row("critest", "").file(), "critest.json");
    }
}
