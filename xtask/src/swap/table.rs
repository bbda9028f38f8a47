//! What was seen, for people: `tests/upstream/SWAPS.md`. Each run leaves one file in `tests/upstream/swaps`; the page is made of
//! all of them.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use super::part::{PARTS, Part};
use crate::upstream::results::{machine, today};

/// One row.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Row {
    part: String,
    about: String,
    peers: Vec<String>,
    /// `as Trine alone`, or why not.
    seen: String,
    seconds: u64,
    date: String,
    machine: String,
}

/// How a run has ended, in a word.
#[must_use]
pub fn word(outcome: &anyhow::Result<Vec<String>>) -> &'static str {
    if outcome.is_ok() { "ok" } else { "FAILED" }
}

/// Keeps a row, and writes the page anew.
///
/// # Errors
/// What the file system says.
pub fn keep(
    root: &Path,
    part: &Part,
    outcome: &anyhow::Result<Vec<String>>,
    took: Duration,
) -> anyhow::Result<()> {
    let row = Row {
        part: part.name.to_owned(),
        about: part.about.to_owned(),
        peers: outcome.as_ref().cloned().unwrap_or_default(),
        seen: match outcome {
            Ok(_) => "as Trine alone".to_owned(),
            Err(error) => one_line(&format!("{error:#}")),
        },
        seconds: took.as_secs(),
        date: today(),
        machine: machine(),
    };
    let dir = root.join("tests/upstream/swaps");
    std::fs::create_dir_all(&dir)?;
    let text = serde_json::to_string_pretty(&row)?;
    std::fs::write(dir.join(format!("{}.json", row.part)), format!("{text}\n"))?;
    let mut rows = Vec::new();
    for part in &PARTS {
        let path = dir.join(format!("{}.json", part.name));
        if let Ok(text) = std::fs::read_to_string(&path) {
            rows.push(serde_json::from_str(&text).with_context(|| path.display().to_string())?);
        }
    }
    Ok(std::fs::write(root.join("tests/upstream/SWAPS.md"), page(&rows))?)
}

/// As much of a text as a cell of the table takes.
fn one_line(text: &str) -> String {
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(300).collect::<String>().replace('|', "\\|")
}

fn page(rows: &[Row]) -> String {
    let mut text = "# One plane swapped for somebody else's\n\n\
        Written by `cargo xtask swap PART`, never by hand. Each runs a Pod with a volume behind a Service to its end: it serves \
        HTTP through\nthe Service, a second Pod finds on the volume what the first has written, and nothing is left. What is seen \
        of the objects, the\nlog, a command and the answers is compared with what Trine alone shows.\n\n\
        | part | what is whose | peers | seen | seconds | date | machine |\n|---|---|---|---|---|---|---|\n"
        .to_owned();
    for row in rows {
        let peers = row.peers.join(", ");
        let _ = writeln!(
            text,
            "| {} | {} | {peers} | {} | {} | {} | {} |",
            row.part, row.about, row.seen, row.seconds, row.date, row.machine
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_says_who_played_and_a_failure_is_one_cell() {
        let mut row = Row {
            part: "cri".into(),
            about: "a kubelet".into(),
            peers: vec!["kubelet v1".into(), "crictl v2".into()],
            seen: "as Trine alone".into(),
            seconds: 40,
            date: "2026-11-30".into(),
            machine: "6.1, 2 CPU".into(),
        };
        let last = |row: &Row| page(std::slice::from_ref(row)).lines().last().unwrap().to_owned();
        let seen =
            "| cri | a kubelet | kubelet v1, crictl v2 | as Trine alone | 40 | 2026-11-30 | 6.1, 2 CPU |";
        assert_eq!(last(&row), seen);
        row.seen = one_line("no go:\n  a|b");
        assert!(last(&row).contains("| no go: a\\|b |"));
    }
}
