//! What is done: one file, written after each spec, so that a run that is broken off goes on where it was.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::upstream::junit::Outcome;

/// The specs that have an end.
pub struct Progress {
    file: PathBuf,
    ended: BTreeMap<String, Outcome>,
}

impl Progress {
    /// That of the run before if `resume`, an empty one else.
    ///
    /// # Errors
    /// If the file is broken.
    pub fn open(file: &Path, resume: bool) -> anyhow::Result<Self> {
        let ended = match std::fs::read(file) {
            Ok(bytes) if resume => {
                serde_json::from_slice(&bytes).with_context(|| format!("{} is broken", file.display()))?
            }
            _ => BTreeMap::new(),
        };
        Ok(Self { file: file.to_owned(), ended })
    }

    /// Whether a spec has an end.
    pub fn done(&self, name: &str) -> bool {
        self.ended.contains_key(name)
    }

    /// Its end.
    pub fn outcome(&self, name: &str) -> Option<&Outcome> {
        self.ended.get(name)
    }

    /// Notes an end.
    ///
    /// # Errors
    /// What the file system says.
    pub fn note(&mut self, name: &str, outcome: Outcome) -> anyhow::Result<()> {
        self.ended.insert(name.to_owned(), outcome);
        let fresh = self.file.with_extension("new");
        std::fs::write(&fresh, serde_json::to_vec_pretty(&self.ended)?)?;
        std::fs::rename(&fresh, &self.file)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_noted_is_known_to_the_next_run_only_if_it_resumes() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("done.json");
        let mut progress = Progress::open(&file, true).unwrap();
        progress.note("a", Outcome::Failed("why".into())).unwrap();
        let resumed = Progress::open(&file, true).unwrap();
        assert_eq!(resumed.outcome("a"), Some(&Outcome::Failed("why".into())));
        assert!(!resumed.done("b"));
        assert!(!Progress::open(&file, false).unwrap().done("a"));
    }
}
