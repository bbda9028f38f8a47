//! What was seen, for people: `tests/upstream/SWAPS.md`.

use std::path::Path;
use std::time::Duration;

use super::part::{PARTS, Part};
use crate::rows::{self, Page, Row};

const HEAD: &str = "# One plane swapped for somebody else's

Written by `cargo xtask swap PART`, never by hand. Each runs a Pod with a volume behind a Service to its end: it serves HTTP through
the Service, a second Pod finds on the volume what the first has written, and nothing is left. What is seen of the objects, the
log, a command and the answers is compared with what Trine alone shows.
";

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
    let peers = outcome.as_ref().cloned().unwrap_or_default();
    let seen = outcome.as_ref().map(|_| "as Trine alone");
    let order = PARTS.map(|part| part.name);
    let page =
        Page { rows: "tests/upstream/swaps", file: "tests/upstream/SWAPS.md", head: HEAD, order: &order };
    rows::keep(root, &page, &Row::of(part.name, part.about, peers, seen, took))
}
