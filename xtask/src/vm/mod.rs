//! `cargo xtask vm [TEST]`: Debian's stock kernel under plain emulation, where nothing has been arranged for us: cgroup version 2
//! alone, modules that load when they are asked for, devices that are not there yet.
//!
//! The guest sees this machine's files read-only (9p) under a layer of its own, so it has the same programs and libraries, and
//! the test binaries at the paths that they were built with; a scratch disk holds what needs a real file system.
//!
//! - [`kernel`] the kernel: fetched and unpacked once, never installed
//! - [`modules`] which modules are loaded in which order before there is a file system
//! - [`initramfs`] the first file system, written on the fly
//! - [`binaries`] the test executables, as cargo names them
//! - [`features`] what the kernel must have
//! - [`guest`] what the guest does, as one script
//! - [`qemu`] the machine: its words, its deadline, its end
//! - [`results`] what the guest said, judged and written down

mod binaries;
mod features;
mod guest;
mod initramfs;
mod kernel;
mod modules;
mod qemu;
mod results;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::packages;
use crate::test::{cargo_command, run_command, workspace_root};
use guest::{Job, Place};
use kernel::Kernel;

pub use qemu::PROGRAM as EMULATOR;

/// How long booting and ending may take, on a busy machine.
const BOOT: Duration = Duration::from_secs(120);
/// How long the demo may take: ten times what it takes on an idle machine.
const DEMO: Duration = Duration::from_secs(600);
/// How long one test binary may take.
const BINARY: Duration = Duration::from_secs(900);
/// How long finding out what the kernel has may take.
const FEATURES: Duration = Duration::from_secs(120);
/// The demo's name among the jobs.
const DEMO_NAME: &str = "demo";
/// The written results.
const RESULTS: &str = "tests/vm/RESULTS.md";

/// Runs the demo and the kernel-facing tests, or those whose name holds `filter`; `demo` is the demo alone.
///
/// # Errors
/// If the machine cannot be made, something fails in it, or it does not end in time.
pub fn run(filter: Option<&str>) -> anyhow::Result<()> {
    let root = workspace_root()?;
    packages::install_for_vm()?;
    let mut jobs = Vec::new();
    if filter.is_none() {
        jobs.push(features_job(&root));
    }
    if filter.is_none_or(|name| name == DEMO_NAME) {
        run_command(cargo_command(&root).args(["build", "--package", "trine", "--quiet"]))?;
        jobs.push(demo_job(&root)?);
    }
    if filter != Some(DEMO_NAME) {
        let binaries = binaries::build(&root)?;
        jobs.extend(binaries.iter().filter_map(|binary| binary.job(filter)));
    }
    anyhow::ensure!(!jobs.is_empty(), "no test of the kernel-facing crates has {filter:?} in its name");
    let (kernel, report) = boot(&root, &jobs)?;
    let verdict = report.judge(&root, &jobs);
    if filter.is_none() {
        let path = root.join(RESULTS);
        std::fs::create_dir_all(path.parent().unwrap_or(&root))?;
        std::fs::write(&path, report.markdown(&root, &kernel.release)?).context(RESULTS)?;
    }
    verdict
}

/// The demo alone, of the program that is built, as part of all tests; says so and succeeds where there is no emulator or no
/// kernel.
///
/// # Errors
/// If the demo fails in the machine.
pub fn demo(root: &Path) -> anyhow::Result<()> {
    if let Err(error) = packages::install_for_vm().and_then(|()| kernel::fetch(&place(root)).map(drop)) {
        println!("skipped: the demo under a stock kernel: {error:#}");
        return Ok(());
    }
    let jobs = [demo_job(root)?];
    let (_, report) = boot(root, &jobs)?;
    report.judge(root, &jobs)
}

fn place(root: &Path) -> PathBuf {
    root.join("target/vm")
}

fn features_job(root: &Path) -> Job {
    Job {
        name: "features".to_owned(),
        folder: root.to_owned(),
        words: vec!["/bin/sh".to_owned(), "-c".to_owned(), features::script()],
        place: Place::Service,
        deadline: FEATURES,
    }
}

/// The program without its debug lines: half of the demo would be spent on making an image of them.
fn demo_job(root: &Path) -> anyhow::Result<Job> {
    let program = place(root).join("bin/trine");
    std::fs::create_dir_all(place(root).join("bin"))?;
    run_command(Command::new("strip").arg("-o").arg(&program).arg(root.join("target/debug/trine")))?;
    Ok(Job {
        name: DEMO_NAME.to_owned(),
        folder: root.to_owned(),
        words: vec![program.to_string_lossy().into_owned(), "demo".to_owned()],
        place: Place::Session,
        deadline: DEMO,
    })
}

fn boot(root: &Path, jobs: &[Job]) -> anyhow::Result<(Kernel, results::Report)> {
    let place = place(root);
    let kernel = kernel::fetch(&place)?;
    let run = place.join("run");
    std::fs::create_dir_all(&run)?;
    let script = run.join("guest.sh");
    std::fs::write(&script, guest::script(root, &kernel, jobs)).context("guest.sh")?;
    let machine = qemu::Machine {
        kernel: kernel.image.clone(),
        initramfs: initramfs::write(&run, &kernel, &script)?,
        scratch: qemu::scratch_disk(&run)?,
        control: run.join("control"),
    };
    let since = Instant::now();
    let deadline = BOOT + jobs.iter().map(|job| job.deadline).sum::<Duration>();
    println!("== Linux {} under emulation: {} to run", kernel.release, jobs.len());
    machine.run(deadline)?;
    println!("== the machine has ended after {:.0?}", since.elapsed());
    let said = std::fs::read(&machine.control).context("what the guest said")?;
    Ok((kernel, results::read(&String::from_utf8_lossy(&said))))
}
