//! What of the suites is part of `cargo xtask test`: little enough for a few minutes.

use std::io::Write;
use std::path::Path;

use super::options::Options;
use super::suite::Suite;
use super::{go, sanity};
use crate::packages;

/// Runs the fast part of the suites against `program`. What cannot be run here is written to `skips`, a line each.
///
/// # Errors
/// If a spec fails that is not known to, or passes that is known to fail.
pub fn quick(root: &Path, program: &Path, skips: &Path) -> anyhow::Result<()> {
    if let Some(why) = packages::why_no_suites() {
        let mut file = std::fs::OpenOptions::new().append(true).open(skips)?;
        writeln!(file, "upstream_csi_sanity\t{why}")?;
        return Ok(());
    }
    let suite = go::build(root, &sanity::TOOL)?;
    for access in ["mount", "block"] {
        sanity::one(root, &Options::of(Suite::CsiSanity), &suite, program, access, false)?;
    }
    Ok(())
}
