//! What the tests need from Debian, installed when they run as root on Debian.

use std::path::Path;
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

/// Installs what is missing; elsewhere than on Debian as root, the tests that need it are skipped by name.
///
/// # Errors
/// If the package manager fails.
pub fn install() -> anyhow::Result<()> {
    let missing: Vec<&str> =
        NEEDED.iter().filter(|(_, file)| !Path::new(file).exists()).map(|(p, _)| *p).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let root = Command::new("id").arg("-u").output().is_ok_and(|o| o.stdout.starts_with(b"0\n"));
    if !root || !Path::new("/usr/bin/apt-get").exists() {
        println!("not root on Debian: tests that need {} will be skipped", missing.join(", "));
        return Ok(());
    }
    println!("installing for the tests: {}", missing.join(", "));
    let apt = |words: &[&str]| {
        let mut command = Command::new("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive").args(["-qq", "-y"]).args(words);
        command.stdout(std::process::Stdio::null());
        run_command(&mut command)
    };
    apt(&["update"])?;
    let mut words = vec!["install", "--no-install-recommends"];
    words.extend(&missing);
    apt(&words)
}
