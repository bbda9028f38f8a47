//! `trine down`: stops the daemon, the Pods and what they hold, from records alone; with `--purge` the data too. It goes
//! on after an error and reports them all; what is absent is success, so it works twice and without a daemon.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::cli::args::DownArgs;
use crate::identity::Identity;
use crate::layout::{DEFAULT_DATA_DIR, Layout};
use crate::leftovers::leftovers;
use crate::registries::RegistryArgs;
use crate::{daemon, node, nodes};

/// Runs the command.
///
/// # Errors
/// If the data dir's name is unusable. What could not be undone is printed and gives exit code 1.
pub async fn run(args: &DownArgs) -> anyhow::Result<ExitCode> {
    let layout = args.place.layout()?;
    let mut problems = Vec::new();
    match daemon::stop(&layout) {
        Ok(true) => eprintln!("the daemon has ended"),
        Ok(false) => {}
        Err(error) => problems.push(format!("{error:#}")),
    }
    problems.extend(tear_down(&layout, args.purge).await);
    for problem in &problems {
        eprintln!("trine down: {problem}");
    }
    if problems.is_empty() {
        eprintln!("nothing of {} runs any more", layout.root().display());
        Ok(ExitCode::SUCCESS)
    } else {
        Ok(ExitCode::FAILURE)
    }
}

/// Undoes all that a data dir's planes made on this machine; gives what could not be undone.
pub async fn tear_down(layout: &Layout, purge: bool) -> Vec<String> {
    let mut problems = Vec::new();
    let identity = match Identity::load(layout) {
        Ok(identity) => identity,
        Err(error) => return vec![format!("{error:#}")],
    };
    if let Some(identity) = &identity {
        problems.extend(nodes::down::tear_down(layout, identity).await);
        let mut failed = |plane: &str, error: &dyn std::error::Error| {
            problems.push(format!("{plane}: {}", trine_typed::chain::display(error)));
        };
        let config = node::cri_config(layout, identity, &RegistryArgs::default());
        let torn_down = trine_cri::teardown(&config).await;
        if let Err(error) = torn_down.and_then(|()| trine_cri::leave_groups(&config)) {
            failed("cri", &error);
        }
        let pool = layout.pool();
        match tokio::task::spawn_blocking(move || trine_csi_driver::teardown(&pool)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => failed("csi", &error),
            Err(error) => failed("csi", &error),
        }
        if let Err(error) = unmount_below(&layout.kubelet()) {
            failed("kubelet", &error);
        }
        if let Err(error) = trine_proxy::cleanup(&identity.instance, None) {
            failed("proxy", &error);
        }
        if let Err(error) = trine_policy::cleanup(&identity.instance, None) {
            failed("policy", &error);
        }
        if let Err(error) = trine_overlay::cleanup(&identity.instance) {
            failed("overlay", &error);
        }
    }
    if purge {
        problems.extend(remove_files(layout));
    }
    if let Some(identity) = &identity {
        problems.extend(leftovers(layout, identity, purge).into_iter().map(|l| format!("left behind: {l}")));
    }
    problems
}

/// Unmounts all below `dir`, newest first.
fn unmount_below(dir: &Path) -> Result<(), trine_kernel::mountpoint::MountError> {
    let mounted = trine_kernel::mountpoint::mounted()?;
    let mut result = Ok(());
    for mount in mounted.iter().rev().filter(|m| m.target.starts_with(dir)) {
        if let Err(error) = trine_kernel::mountpoint::unmount_all(&mount.target, true) {
            result = Err(error);
        }
    }
    result
}

/// Removes all files of a data dir; nothing below a mount is ever touched.
fn remove_files(layout: &Layout) -> Vec<String> {
    let mut dirs: Vec<PathBuf> = vec![layout.root().to_owned()];
    if layout.root() == Path::new(DEFAULT_DATA_DIR) {
        dirs.extend([layout.kubelet(), layout.pod_logs()]);
        let _ = std::fs::remove_file(layout.cni_conf().join("90-trine.conflist"));
    }
    let mounted = match trine_kernel::mountpoint::mounted() {
        Ok(mounted) => mounted,
        Err(error) => return vec![error.to_string()],
    };
    let mut problems = Vec::new();
    for dir in dirs {
        if let Some(mount) = mounted.iter().find(|m| m.target.starts_with(&dir) && m.target != dir) {
            problems.push(format!(
                "{} is kept: {} is still mounted in it",
                dir.display(),
                mount.target.display()
            ));
            continue;
        }
        match std::fs::remove_dir_all(&dir) {
            Ok(()) => {}
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => problems.push(format!("cannot remove {}: {e}", dir.display())),
        }
    }
    problems
}
