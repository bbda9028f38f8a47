//! `trine cni install`: the network plugins as files, for a runtime that executes them. One program that is told by its name
//! which plugin it is.

use std::path::Path;

use anyhow::Context;
use trine_kernel::netlink::Cidrs;

use crate::builtin::{self, Given};
use crate::cli::alone_args::CniCommand;
use crate::identity::Identity;
use crate::layout::Layout;

/// What the program is called in the folder.
const PROGRAM: &str = "trine";

/// Runs the command.
///
/// # Errors
/// What the file system says, or if the range is none.
pub fn run(command: &CniCommand) -> anyhow::Result<()> {
    let CniCommand::Install { dir, conf_dir, pod_cidr, data_dir } = command;
    let names = install(&std::env::current_exe()?, dir)?;
    println!("{}: {}", dir.display(), names.join(", "));
    if let (Some(conf_dir), Some(range)) = (conf_dir, pod_cidr) {
        let layout = Layout::new(&data_dir.data_dir)?;
        let identity = Identity::of_node(&layout, None)?;
        let range: Cidrs = range.parse().context("--pod-cidr")?;
        let given = Given { range, mtu: identity.node_mtu };
        let path = builtin::write_network_to(conf_dir, &layout.cni_state(), &identity.instance, given)?;
        println!("{}", path.display());
    }
    Ok(())
}

/// Puts `program` and a link for each plugin into `dir`. Plugins that are there already are replaced, each at once: a runtime
/// that executes one meanwhile finds the old or the new one.
fn install(program: &Path, dir: &Path) -> anyhow::Result<Vec<&'static str>> {
    let failed = || format!("cannot install plugins in {}", dir.display());
    std::fs::create_dir_all(dir).with_context(failed)?;
    let fresh = dir.join(format!(".{PROGRAM}.new"));
    let put = |name: &str| std::fs::rename(&fresh, dir.join(name)).with_context(failed);
    let _ = std::fs::remove_file(&fresh);
    std::fs::copy(program, &fresh).with_context(failed)?;
    put(PROGRAM)?;
    let mut names = trine_cni::built_in();
    names.push(trine_networks::NAME);
    for name in &names {
        std::os::unix::fs::symlink(PROGRAM, &fresh).with_context(failed)?;
        put(name)?;
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_plugin_is_a_link_to_the_program_also_over_older_ones() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("built");
        std::fs::write(&program, "new").unwrap();
        let bin = dir.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        std::fs::write(bin.join("bridge"), "somebody else's").unwrap();
        for _ in 0..2 {
            let names = install(&program, &bin).unwrap();
            assert!(names.contains(&"bridge") && names.contains(&"loopback"), "{names:?}");
            for name in names {
                assert_eq!(std::fs::read_to_string(bin.join(name)).unwrap(), "new", "{name}");
            }
        }
        assert!(!bin.join(".trine.new").exists());
    }
}
