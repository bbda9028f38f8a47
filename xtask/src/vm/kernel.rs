//! The kernel: Debian's package, fetched and unpacked, never installed. What a virtual machine has no hardware for is left out.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use crate::test::run_command;

/// The package that depends on the newest one.
const META_PACKAGE: &str = "linux-image-amd64";
/// Drivers of hardware that the machine does not have; two thirds of all.
const LEFT_OUT: [&str; 16] = [
    "drivers/bluetooth",
    "drivers/gpu",
    "drivers/hid",
    "drivers/hwmon",
    "drivers/iio",
    "drivers/infiniband",
    "drivers/input",
    "drivers/media",
    "drivers/mfd",
    "drivers/net/ethernet",
    "drivers/net/wireless",
    "drivers/scsi",
    "drivers/staging",
    "drivers/usb",
    "net/bluetooth",
    "sound",
];

/// An unpacked kernel.
#[derive(Debug)]
pub struct Kernel {
    /// What `uname -r` says in it.
    pub release: String,
    /// The file to boot.
    pub image: PathBuf,
    /// Its modules, with what `depmod` makes of them.
    pub modules: PathBuf,
}

/// The kernel under `place`, fetched if there is none.
///
/// # Errors
/// If there is none and it cannot be fetched.
pub fn fetch(place: &Path) -> anyhow::Result<Kernel> {
    let kernels = place.join("kernel");
    if let Some(kernel) = newest(&kernels) {
        return Ok(kernel);
    }
    let depends =
        Command::new("apt-cache").args(["depends", META_PACKAGE]).output().context("no apt-cache")?;
    let depends = String::from_utf8_lossy(&depends.stdout);
    let package = image_package(&depends).context("the package lists do not name a kernel")?;
    println!("fetching {package}");
    let fresh = kernels.join("fresh");
    let _ = std::fs::remove_dir_all(&fresh);
    std::fs::create_dir_all(&fresh)?;
    run_command(Command::new("apt-get").args(["-qq", "download", package]).current_dir(&fresh))?;
    let archive = std::fs::read_dir(&fresh)?.flatten().next().context("nothing was downloaded")?.path();
    run_command(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(&fresh))?;
    std::fs::remove_file(&archive)?;
    let release = package.trim_start_matches("linux-image-");
    prepare(&fresh, release)?;
    std::fs::rename(&fresh, kernels.join(release))?;
    newest(&kernels).context("the package holds no kernel")
}

fn newest(kernels: &Path) -> Option<Kernel> {
    let mut found: Vec<Kernel> =
        std::fs::read_dir(kernels).ok()?.flatten().filter_map(|e| at(&e.path())).collect();
    found.sort_by(|a, b| a.release.cmp(&b.release));
    found.pop()
}

fn at(folder: &Path) -> Option<Kernel> {
    let release = folder.file_name()?.to_str()?.to_owned();
    let image = folder.join(format!("boot/vmlinuz-{release}"));
    let modules = folder.join("lib/modules").join(&release);
    image.is_file().then_some(Kernel { release, image, modules })
}

/// Takes out what is not needed and has the tables made by which modules are found.
fn prepare(folder: &Path, release: &str) -> anyhow::Result<()> {
    if !folder.join("lib").exists() {
        // Newer packages have it under `usr` alone.
        std::os::unix::fs::symlink("usr/lib", folder.join("lib"))?;
    }
    let modules = folder.join("lib/modules").join(release);
    for part in LEFT_OUT {
        let _ = std::fs::remove_dir_all(modules.join("kernel").join(part));
    }
    let map = folder.join(format!("boot/System.map-{release}"));
    let mut depmod = Command::new("/usr/sbin/depmod");
    depmod.arg("-b").arg(folder);
    if map.is_file() {
        depmod.arg("-F").arg(map);
    }
    // Modules that need one that was left out are named on stderr, hundreds of them.
    run_command(depmod.arg(release).stderr(std::process::Stdio::null()))
}

/// The package with the kernel, from what `apt-cache depends` prints.
fn image_package(depends: &str) -> Option<&str> {
    let named = depends.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    named.map(str::trim).find(|package| package.starts_with("linux-image-") && !package.contains(['<', '|']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_package_is_the_one_that_the_meta_package_depends_on() {
        let said = "linux-image-amd64\n  Depends: linux-image-6.1.0-57-amd64\n  Suggests: linux-doc\n";
        assert_eq!(image_package(said), Some("linux-image-6.1.0-57-amd64"));
        assert_eq!(image_package("linux-image-amd64\n  Depends: <linux-image-virtual>\n"), None);
    }
}
