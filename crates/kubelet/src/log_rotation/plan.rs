//! What is done with the files of one log when it has become too long. Pure.

use std::collections::BTreeSet;

/// How much of a container's output is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Length from which on a log is rotated, bytes (upstream: `containerLogMaxSize`, 10 MiB).
    pub max_bytes: u64,
    /// Files that there may be of a log, the one that is written to included; at least 2 (upstream:
    /// `containerLogMaxFiles`, 5).
    pub max_files: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_bytes: 10 << 20, max_files: 5 }
    }
}

/// One thing to do; names are those of files in the log's folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Removes a file: one that is too old, or that an earlier rotation left half done.
    Remove(String),
    /// Compresses a file to the same name with `.gz`.
    Compress(String),
    /// Gives the log its new name; the runtime then opens a new one.
    Rotate(String),
}

/// What to do with the log `log`, beside which are `files`. The time `stamp`, as `20060102-150405`, becomes part of its new
/// name, so that names sort by age. The newest of the older files is compressed now and not when it was rotated: somebody may
/// still read it.
#[must_use]
pub fn plan(log: &str, files: &BTreeSet<String>, limits: Limits, stamp: &str) -> Vec<Step> {
    let prefix = format!("{log}.");
    let (mut kept, mut steps) = (Vec::new(), Vec::new());
    for file in files.iter().filter(|file| file.starts_with(&prefix)) {
        if file.ends_with(".tmp") || files.contains(&format!("{file}.gz")) {
            steps.push(Step::Remove(file.clone()));
        } else {
            kept.push(file);
        }
    }
    // One more becomes an older one now, and one is written to.
    let room = usize::try_from(limits.max_files.saturating_sub(2)).unwrap_or_default();
    let excess = kept.len().saturating_sub(room);
    steps.extend(kept.iter().take(excess).map(|file| Step::Remove((*file).clone())));
    let plain = kept.iter().skip(excess).filter(|file| !file.ends_with(".gz"));
    steps.extend(plain.map(|file| Step::Compress((*file).clone())));
    steps.push(Step::Rotate(format!("{prefix}{stamp}")));
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_files_are_compressed_and_the_oldest_go() {
        let (old, mid, new) = ("0.log.20260101-000000", "0.log.20260102-000000", "0.log.20260103-000000");
        let gz = |name: &str, end: &str| format!("{name}.{end}");
        let remove = |name: &str| Step::Remove(name.to_owned());
        let rows: Vec<(&str, Vec<String>, u32, Vec<Step>)> = vec![
            ("the first", vec!["0.log".into()], 5, vec![]),
            ("the second", vec!["0.log".into(), old.into()], 5, vec![Step::Compress(old.into())]),
            (
                "one too many",
                vec![gz(old, "gz"), gz(mid, "gz"), new.into()],
                4,
                vec![remove(&gz(old, "gz")), Step::Compress(new.into())],
            ),
            ("only one older", vec![old.into(), mid.into()], 2, vec![remove(old), remove(mid)]),
            (
                "cut off while compressing",
                vec![gz(old, "tmp"), old.into()],
                5,
                vec![remove(&gz(old, "tmp")), Step::Compress(old.into())],
            ),
            ("cut off after compressing", vec![gz(old, "gz"), old.into()], 5, vec![remove(old)]),
            ("others", vec!["1.log.20260101-000000".into(), "0.logs".into()], 5, vec![]),
        ];
        for (name, files, max_files, mut expected) in rows {
            let files = files.into_iter().collect();
            expected.push(Step::Rotate("0.log.20260104-000000".into()));
            let limits = Limits { max_files, ..Limits::default() };
            assert_eq!(plan("0.log", &files, limits, "20260104-000000"), expected, "{name}");
        }
    }
}
