//! The machine: plain emulation, two processors, no network.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::test::run_command;

/// The emulator.
pub const PROGRAM: &str = "/usr/bin/qemu-system-x86_64";
/// The name under which the guest finds this machine's files.
pub const SHARE: &str = "host";
/// The scratch disk's size; it is sparse.
const SCRATCH_BYTES: u64 = 16 << 30;
const POLL: Duration = Duration::from_millis(100);

/// What the machine is made of.
#[derive(Debug)]
pub struct Machine {
    /// The kernel to boot.
    pub kernel: PathBuf,
    /// Its first file system.
    pub initramfs: PathBuf,
    /// The disk that it may write to.
    pub scratch: PathBuf,
    /// Where its second serial line is written to.
    pub control: PathBuf,
}

impl Machine {
    /// Boots it and waits for its end, at most `deadline`. Its first serial line is this process's output.
    ///
    /// # Errors
    /// If it cannot be started or has to be ended.
    pub fn run(&self, deadline: Duration) -> anyhow::Result<()> {
        // Whatever ends this process ends the machine too; Ctrl-C reaches both.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", PROGRAM]).args(self.words()).stdin(Stdio::null());
        let mut child = command.spawn().context("cannot run the emulator")?;
        let since = Instant::now();
        loop {
            if let Some(status) = child.try_wait()? {
                anyhow::ensure!(status.success(), "the emulator ended with {status}");
                return Ok(());
            }
            if since.elapsed() > deadline {
                child.kill()?;
                child.wait()?;
                anyhow::bail!("the machine has not ended after {deadline:?}");
            }
            std::thread::sleep(POLL);
        }
    }

    fn words(&self) -> Vec<String> {
        let machine = "-accel tcg,thread=multi -smp 2 -m 3072 -cpu max -nodefaults -no-user-config -display none \
            -nic none -no-reboot -serial stdio";
        let mut words: Vec<String> = machine.split_whitespace().map(str::to_owned).collect();
        let file = |path: &Path| path.display().to_string().replace(',', ",,");
        let pairs = [
            ("-serial", format!("file:{}", file(&self.control))),
            ("-kernel", self.kernel.display().to_string()),
            ("-initrd", self.initramfs.display().to_string()),
            ("-append", "console=ttyS0 quiet panic=-1".to_owned()),
            (
                "-virtfs",
                format!("local,path=/,mount_tag={SHARE},security_model=none,readonly=on,multidevs=remap"),
            ),
            ("-drive", format!("file={},format=raw,if=virtio,cache=unsafe", file(&self.scratch))),
        ];
        words.extend(pairs.into_iter().flat_map(|(option, value)| [option.to_owned(), value]));
        words
    }
}

/// An empty disk.
///
/// # Errors
/// If it cannot be made.
pub fn scratch_disk(run: &Path) -> anyhow::Result<PathBuf> {
    let path = run.join("scratch.img");
    let file = std::fs::File::create(&path).with_context(|| path.display().to_string())?;
    file.set_len(SCRATCH_BYTES)?;
    run_command(Command::new("/usr/sbin/mkfs.ext4").args(["-q", "-F"]).arg(&path))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_has_no_network_and_cannot_write_to_this_one() {
        let machine = Machine {
            kernel: "/k".into(),
            initramfs: "/i".into(),
            scratch: "/a,b".into(),
            control: "/c".into(),
        };
        let words = machine.words().join(" ");
        assert!(words.contains("-nic none") && words.contains("readonly=on"), "{words}");
        assert!(words.contains("file=/a,,b,format=raw"), "{words}");
    }
}
