//! The words of `cargo xtask upstream`. Pure.

use std::path::PathBuf;

use super::suite::{self, Suite};

/// How the command is called.
pub const USAGE: &str = "\
cargo xtask upstream SUITE     somebody else's suite against Trine (conformance, node, storage, netpol, dra,
                               dual-stack, critest, csi-sanity, policy-assistant, cni); tests/upstream/RESULTS.md says what was seen
      --sig S --focus RE --skip RE    only some of its specs      --resume   go on where the last run was broken off
      --store redb|etcd --nodes N     another cluster             --bless    what fails is known from now on
      --program FILE                  this trine, not target/release/trine
      --procs N                       so many specs at once: of e2e.test 8 unless told otherwise, of critest 1
cargo xtask upstream images    makes the images that the suites name, as each suite does by itself
      --prove      has Trine run each      --serve    serves them until Ctrl-C
      --only NAME  one recipe alone        --program FILE";

/// What is to be run, and against what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The suite.
    pub suite: Suite,
    /// Only the specs of one special interest group, for instance `node`.
    pub sig: Option<String>,
    /// Only specs whose name this matches.
    pub focus: Option<String>,
    /// No specs whose name this matches.
    pub skip: Option<String>,
    /// `redb` or `etcd`.
    pub store: String,
    /// Nodes of the cluster, 1 and more.
    pub nodes: u32,
    /// Specs that run beside each other.
    pub procs: usize,
    /// Leave out what the last run has done.
    pub resume: bool,
    /// Write the list of known failures anew.
    pub bless: bool,
    /// Another `trine` than that of the release build.
    pub program: Option<PathBuf>,
}

impl Options {
    /// Reads the words behind `upstream`.
    ///
    /// # Errors
    /// If a word is unknown, or lacks its value.
    pub fn read(words: &[&str]) -> anyhow::Result<Self> {
        let names = || suite::ALL.map(Suite::name).join(", ");
        let Some((suite, rest)) = words.split_first() else {
            anyhow::bail!("which suite? {}", names());
        };
        let suite =
            Suite::named(suite).ok_or_else(|| anyhow::anyhow!("there is no suite {suite}: {}", names()))?;
        let mut options = Self::of(suite);
        let mut rest = rest.iter();
        while let Some(word) = rest.next() {
            let mut value = || match rest.next() {
                Some(value) => Ok((*value).to_owned()),
                None => anyhow::bail!("{word} wants a value"),
            };
            match *word {
                "--sig" => options.sig = Some(value()?.trim_start_matches("sig-").to_owned()),
                "--focus" => options.focus = Some(value()?),
                "--skip" => options.skip = Some(value()?),
                "--program" => options.program = Some(value()?.into()),
                "--nodes" => options.nodes = value()?.parse()?,
                "--procs" => options.procs = value()?.parse()?,
                "--store" => options.store = value()?,
                "--resume" => options.resume = true,
                "--bless" => options.bless = true,
                other => anyhow::bail!("unknown word {other}\n{USAGE}"),
            }
        }
        anyhow::ensure!(["redb", "etcd"].contains(&options.store.as_str()), "--store is redb or etcd");
        anyhow::ensure!(options.procs > 0, "--procs is at least 1");
        anyhow::ensure!(options.nodes > 0, "--nodes is at least 1");
        Ok(options)
    }

    /// All of a suite, against what it is run against ordinarily.
    #[must_use]
    pub fn of(suite: Suite) -> Self {
        Self {
            suite,
            sig: None,
            focus: None,
            skip: None,
            store: "redb".to_owned(),
            nodes: 1,
            // Most of a spec's time is waiting; critest's are quick.
            procs: if suite == Suite::Critest { 1 } else { 8 },
            resume: false,
            bless: false,
            program: None,
        }
    }

    /// Whether only some of the suite (or of the group) is run: no row of the table comes of it.
    #[must_use]
    pub fn partial(&self) -> bool {
        self.focus.is_some() || self.skip.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_options_and_groups_need_no_prefix() {
        let options =
            Options::read(&["conformance", "--sig", "sig-node", "--nodes", "2", "--resume"]).unwrap();
        assert_eq!((options.sig.as_deref(), options.nodes, options.resume), (Some("node"), 2, true));
        assert!(!options.partial());
        assert!(Options::read(&["critest", "--focus", "port"]).unwrap().partial());
    }

    #[test]
    fn words_that_mean_nothing_are_refused() {
        for (words, why) in [
            (vec![], "which suite"),
            (vec!["sonobuoy"], "no suite sonobuoy"),
            (vec!["cni", "--fast"], "--fast"),
            (vec!["cni", "--focus"], "wants a value"),
            (vec!["node", "--store", "sqlite"], "redb or etcd"),
            (vec!["node", "--nodes", "0"], "at least 1"),
        ] {
            let error = Options::read(&words).unwrap_err().to_string();
            assert!(error.contains(why), "{words:?}: {error}");
        }
    }
}
