//! What the tests need from others: programs from Debian, installed when they run as root on Debian, and Go modules, fetched
//! where there is `go`.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::test::run_command;

/// Package and a file that says it is there.
const NEEDED: [(&str, &str); 9] = [
    ("xfsprogs", "/usr/sbin/mkfs.xfs"),
    ("e2fsprogs", "/usr/sbin/mkfs.ext4"),
    ("busybox-static", "/bin/busybox"),
    ("containernetworking-plugins", "/usr/lib/cni/bridge"),
    ("docker-registry", "/usr/bin/docker-registry"),
    ("skopeo", "/usr/bin/skopeo"),
    ("umoci", "/usr/bin/umoci"),
    ("nftables", "/usr/sbin/nft"),
    ("iptables", "/usr/sbin/iptables"),
];

/// The same for a machine with a stock kernel; the kernel itself is not installed.
const NEEDED_FOR_VM: [(&str, &str); 6] = [
    ("busybox-static", "/bin/busybox"),
    ("e2fsprogs", "/usr/sbin/mkfs.ext4"),
    ("iproute2", "/usr/bin/ip"),
    ("kmod", "/usr/sbin/depmod"),
    ("qemu-system-x86", crate::vm::EMULATOR),
    ("util-linux", "/usr/bin/setpriv"),
];

/// The same for Trine's kubelet on another runtime.
const NEEDED_FOR_SWAP: [(&str, &str); 3] =
    [("busybox-static", "/bin/busybox"), ("containerd", "/usr/bin/containerd"), ("runc", "/usr/sbin/runc")];

/// runc.
pub const RUNC: &str = "/usr/sbin/runc";
/// crun.
pub const CRUN: &str = "/usr/bin/crun";
/// The folder of the reference network plugins.
pub const REFERENCE_PLUGINS: &str = "/usr/lib/cni";

/// The same for other runtimes beside Trine's.
const NEEDED_FOR_BENCH: [(&str, &str); 4] = [
    ("busybox-static", "/bin/busybox"),
    ("containernetworking-plugins", "/usr/lib/cni/bridge"),
    ("crun", CRUN),
    ("runc", RUNC),
];

/// iperf3.
pub const IPERF: &str = "/usr/bin/iperf3";

/// The same for what Pods send each other.
const NEEDED_FOR_NETWORK_BENCH: [(&str, &str); 2] = [("iperf3", IPERF), ("iptables", "/usr/sbin/iptables")];

/// Modules whose files tests read (upstream's samples of objects), with their versions.
const MODULES: [&str; 1] = ["k8s.io/api@v0.37.0"];

/// Fetches the Go modules; where that cannot be done, the tests that need them are skipped by name.
pub fn fetch_modules() {
    if have_modules() || module_cache().is_none() {
        return;
    }
    println!("fetching for the tests: {}", MODULES.join(", "));
    let fetched =
        Command::new("go").args(["mod", "download"]).args(MODULES).current_dir(std::env::temp_dir()).status();
    if !fetched.is_ok_and(|status| status.success()) {
        println!("they cannot be had: tests that read them will be skipped");
    }
}

/// Whether the Go modules are there.
#[must_use]
pub fn have_modules() -> bool {
    module_cache().is_some_and(|cache| MODULES.iter().all(|module| cache.join(module).is_dir()))
}

/// Why suites that are built from Go modules cannot be run here; nothing if they can.
#[must_use]
pub fn why_no_suites() -> Option<&'static str> {
    if !have_modules() {
        return Some("there is no go, or its modules cannot be had");
    }
    if !missing(&NEEDED).is_empty() {
        return Some("packages are missing");
    }
    (!root()).then_some("not root")
}

fn root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|o| o.stdout.starts_with(b"0\n"))
}

fn module_cache() -> Option<PathBuf> {
    let answer = Command::new("go").args(["env", "GOMODCACHE"]).output().ok()?;
    let path = String::from_utf8(answer.stdout).ok()?;
    Some(PathBuf::from(path.trim())).filter(|_| answer.status.success())
}

/// Installs what is missing; elsewhere than on Debian as root, the tests that need it are skipped by name.
///
/// # Errors
/// If the package manager fails.
pub fn install() -> anyhow::Result<()> {
    let missing = missing(&NEEDED);
    if missing.is_empty() {
        return Ok(());
    }
    if !can_install() {
        println!("not root on Debian: tests that need {} will be skipped", missing.join(", "));
        return Ok(());
    }
    install_packages(&missing)
}

/// Installs what it takes to boot a stock kernel.
///
/// # Errors
/// If something is missing and cannot be installed.
pub fn install_for_vm() -> anyhow::Result<()> {
    install_or_say(&NEEDED_FOR_VM)
}

/// Installs another runtime.
///
/// # Errors
/// If something is missing and cannot be installed.
pub fn install_for_swap() -> anyhow::Result<()> {
    install_or_say(&NEEDED_FOR_SWAP)
}

/// Installs what containerd runs containers with, and the reference network plugins.
///
/// # Errors
/// If something is missing and cannot be installed.
pub fn install_for_bench() -> anyhow::Result<()> {
    install_or_say(&NEEDED_FOR_BENCH)
}

/// Installs what measures the network, and what the reference network plugins run.
///
/// # Errors
/// If something is missing and cannot be installed.
pub fn install_for_network_bench() -> anyhow::Result<()> {
    install_or_say(&NEEDED_FOR_NETWORK_BENCH)
}

fn install_or_say(needed: &[(&'static str, &str)]) -> anyhow::Result<()> {
    let missing = missing(needed);
    if missing.is_empty() {
        return Ok(());
    }
    anyhow::ensure!(can_install(), "it needs {}", missing.join(", "));
    install_packages(&missing)
}

fn missing(needed: &[(&'static str, &str)]) -> Vec<&'static str> {
    needed.iter().filter(|(_, file)| !Path::new(file).exists()).map(|(package, _)| *package).collect()
}

fn can_install() -> bool {
    root() && Path::new("/usr/bin/apt-get").exists()
}

fn install_packages(packages: &[&str]) -> anyhow::Result<()> {
    println!("installing for the tests: {}", packages.join(", "));
    let apt = |words: &[&str]| {
        let mut command = Command::new("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive").args(["-qq", "-y"]).args(words);
        command.stdout(std::process::Stdio::null());
        run_command(&mut command)
    };
    apt(&["update"])?;
    let mut words = vec!["install", "--no-install-recommends"];
    words.extend(packages);
    apt(&words)
}
