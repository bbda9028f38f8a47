//! `cargo xtask upstream SUITE`: the suites that the field trusts, run against Trine, each by one command.
//!
//! - `options` the words of the command; `suite` which suites there are
//! - `go` builds a suite from its published module (`tests/upstream/*/go.mod`); `ginkgo` runs it with a deadline
//! - `network_plugins` what Trine's are compared with, measured beside and called by
//! - `trine` starts Trine or one of its planes and says whether it broke; `etcd` a store for it
//! - `junit` reads a report, `known` the failures that are known, `verdict` judges one by the other: all pure
//! - `results` keeps what was seen in `tests/upstream/results` and writes `tests/upstream/RESULTS.md` from it
//! - `images` the images that suites name, made and served here
//! - `e2e` the suites of `e2e.test`; `sanity`, `critest`, `oracle` (the CNI plugins), `policy_assistant` one suite each; `quick` what of them belongs to `cargo xtask test`

mod critest;
mod e2e;
pub mod etcd;
mod finish;
mod ginkgo;
pub mod go;
pub mod images;
mod junit;
mod known;
pub mod network_plugins;
mod options;
mod oracle;
mod policy_assistant;
mod quick;
pub mod results;
mod sanity;
mod suite;
pub mod trine;
mod verdict;

pub use quick::quick;

use options::Options;
use suite::Suite;

/// How the command is called.
pub const USAGE: &str = options::USAGE;

/// Runs a suite to its end and writes what was seen.
///
/// # Errors
/// If the suite cannot be built or run, if a spec fails that is not known to, or passes that is known to fail.
pub fn run(words: &[&str]) -> anyhow::Result<()> {
    if let ["images", rest @ ..] = words {
        return images::run(rest);
    }
    let options = Options::read(words)?;
    match options.suite {
        Suite::CsiSanity => sanity::run(&options),
        Suite::Critest => critest::run(&options),
        Suite::Conformance | Suite::Node | Suite::Storage | Suite::Netpol | Suite::Dra | Suite::DualStack => {
            e2e::run(&options)
        }
        Suite::Cni => oracle::run(&options),
        Suite::PolicyAssistant => policy_assistant::run(&options),
    }
}
