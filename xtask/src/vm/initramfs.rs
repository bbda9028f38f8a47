//! The first file system: a shell, the modules that lead to this machine's files, and a script that goes there.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use super::kernel::Kernel;
use super::modules::{Dependencies, name};

/// The shell, without libraries.
const BUSYBOX: &str = "/bin/busybox";
/// What it takes to see this machine's files.
const MODULES: [&str; 4] = ["virtio_pci", "9pnet_virtio", "9p", "overlay"];

/// An archive in the form that the kernel unpacks (`newc`).
#[derive(Debug, Default)]
pub struct Archive {
    bytes: Vec<u8>,
    files: u32,
}

impl Archive {
    /// Adds a folder.
    pub fn folder(&mut self, path: &str) {
        self.entry(path, 0o040_755, &[]);
    }

    /// Adds a program.
    pub fn program(&mut self, path: &str, content: &[u8]) {
        self.entry(path, 0o100_755, content);
    }

    /// Adds a symbolic link.
    pub fn link(&mut self, path: &str, target: &str) {
        self.entry(path, 0o120_777, target.as_bytes());
    }

    /// The finished archive.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    /// A header of hexadecimal numbers, the name and the content, the latter two filled up to a multiple of four.
    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.files += 1;
        let size = u32::try_from(content.len()).unwrap_or(u32::MAX);
        let name_size = u32::try_from(path.len() + 1).unwrap_or(u32::MAX);
        // Inode, mode, uid, gid, links, time, size, device (2), its own device (2), length of the name, sum.
        let numbers = [self.files, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0];
        let mut header = String::from("070701");
        for number in numbers {
            let _ = write!(header, "{number:08X}");
        }
        self.bytes.extend_from_slice(header.as_bytes());
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.fill_up();
        self.bytes.extend_from_slice(content);
        self.fill_up();
    }

    fn fill_up(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

/// Writes the archive that leads to `script`; gives its path.
///
/// # Errors
/// If a part of it cannot be read, or it cannot be written.
pub fn write(run: &Path, kernel: &Kernel, script: &Path) -> anyhow::Result<PathBuf> {
    let table = kernel.modules.join("modules.dep");
    let table = std::fs::read_to_string(&table).with_context(|| table.display().to_string())?;
    let order = Dependencies::read(&table).order(&MODULES);
    let mut archive = Archive::default();
    for folder in ["bin", "dev", "host", "modules", "new", "own", "proc", "sys"] {
        archive.folder(folder);
    }
    archive.program("bin/busybox", &std::fs::read(BUSYBOX).context(BUSYBOX)?);
    archive.link("bin/sh", "busybox");
    let mut names = Vec::new();
    for file in order {
        names.push(name(file));
        archive.program(&format!("modules/{}", name(file)), &module(&kernel.modules.join(file))?);
    }
    archive.program("init", init(&names, script).as_bytes());
    let path = run.join("initramfs");
    std::fs::write(&path, archive.finish()).with_context(|| path.display().to_string())?;
    Ok(path)
}

/// A module as the kernel takes it: Debian compresses them from 13 on.
fn module(path: &Path) -> anyhow::Result<Vec<u8>> {
    let context = || path.display().to_string();
    if path.extension().is_none_or(|ending| ending != "xz") {
        return std::fs::read(path).with_context(context);
    }
    let output = Command::new("xz").arg("-dc").arg(path).output().with_context(context)?;
    anyhow::ensure!(output.status.success(), "cannot unpack {}", path.display());
    Ok(output.stdout)
}

fn init(modules: &[String], script: &Path) -> String {
    format!(
        "#!/bin/sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
for module in {}; do insmod /modules/$module || echo \"cannot load $module\"; done
mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=loose,ro {} /host || exit 1
mount -t tmpfs -o size=1g own /own
mkdir /own/upper /own/work
mount -t overlay -o lowerdir=/host,upperdir=/own/upper,workdir=/own/work root /new || exit 1
mount --move /proc /new/proc
mount --move /sys /new/sys
mount --move /dev /new/dev
exec switch_root /new /bin/busybox sh {}
",
        modules.join(" "),
        super::qemu::SHARE,
        script.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_has_the_form_that_the_kernel_unpacks() {
        let mut archive = Archive::default();
        archive.program("init", b"hello");
        let bytes = archive.finish();
        let text = String::from_utf8(bytes.clone()).unwrap();
        assert!(text.starts_with("07070100000001000081ED0000000000000000000000010000000000000005"), "{text}");
        // 110 bytes of header and the name with its end are 115, filled up to 116; the content begins there.
        assert_eq!(&bytes[110..124], b"init\0\0hello\0\0\0");
        assert_eq!(&bytes[124..130], b"070701");
        assert!(text.trim_end_matches('\0').ends_with("TRAILER!!!"));
        assert_eq!(bytes.len() % 4, 0);
    }

    #[test]
    fn the_first_script_loads_the_modules_in_their_order_and_goes_to_the_second() {
        let text = init(&["a".into(), "b".into()], Path::new("/w/guest.sh"));
        assert!(text.contains("for module in a b;"), "{text}");
        assert!(text.ends_with("exec switch_root /new /bin/busybox sh /w/guest.sh\n"), "{text}");
    }
}
