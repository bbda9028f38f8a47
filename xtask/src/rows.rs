//! What runs have shown, for people: each run leaves one file, and a page is made of all of them.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::upstream::results::{machine, today};

/// One row.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    part: String,
    about: String,
    peers: Vec<String>,
    /// What was seen, or why not.
    seen: String,
    seconds: u64,
    date: String,
    machine: String,
}

impl Row {
    /// The row of a run that has just ended; `seen` is what it shows if it went well.
    #[must_use]
    pub fn of(
        part: &str,
        about: &str,
        peers: Vec<String>,
        seen: Result<&str, &anyhow::Error>,
        took: Duration,
    ) -> Self {
        let seen = match seen {
            Ok(seen) => seen.to_owned(),
            Err(error) => one_line(&format!("{error:#}")),
        };
        let (date, machine) = (today(), machine());
        Self {
            part: part.to_owned(),
            about: about.to_owned(),
            peers,
            seen,
            seconds: took.as_secs(),
            date,
            machine,
        }
    }
}

/// Where rows are kept, and what is above them.
#[derive(Debug)]
pub struct Page<'a> {
    /// The folder of their files.
    pub rows: &'a str,
    /// The page.
    pub file: &'a str,
    /// What is written above the table.
    pub head: &'a str,
    /// The parts in the table's order.
    pub order: &'a [&'a str],
}

/// Keeps a row, and writes the page anew.
///
/// # Errors
/// What the file system says.
pub fn keep(root: &Path, page: &Page<'_>, row: &Row) -> anyhow::Result<()> {
    let dir = root.join(page.rows);
    std::fs::create_dir_all(&dir)?;
    let text = serde_json::to_string_pretty(row)?;
    std::fs::write(dir.join(format!("{}.json", row.part)), format!("{text}\n"))?;
    let mut rows = Vec::new();
    for part in page.order {
        let path = dir.join(format!("{part}.json"));
        if let Ok(text) = std::fs::read_to_string(&path) {
            rows.push(serde_json::from_str(&text).with_context(|| path.display().to_string())?);
        }
    }
    Ok(std::fs::write(root.join(page.file), written(page.head, &rows))?)
}

/// As much of a text as a cell of the table takes.
fn one_line(text: &str) -> String {
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(300).collect::<String>().replace('|', "\\|")
}

fn written(head: &str, rows: &[Row]) -> String {
    let mut text = format!(
        "{head}\n| part | what is whose | peers | seen | seconds | date | machine |\n|---|---|---|---|---|---|---|\n"
    );
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
        let last =
            |row: &Row| written("# Head\n", std::slice::from_ref(row)).lines().last().unwrap().to_owned();
        let seen =
            "| cri | a kubelet | kubelet v1, crictl v2 | as Trine alone | 40 | 2026-11-30 | 6.1, 2 CPU |";
        assert_eq!(last(&row), seen);
        row.seen = one_line("no go:\n  a|b");
        assert!(last(&row).contains("| no go: a\\|b |"));
    }
}
