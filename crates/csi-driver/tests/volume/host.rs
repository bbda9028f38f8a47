//! A host's file system that a test can fill and grow.

use std::path::PathBuf;

use trine_kernel::{filesystem, loopdev, mountpoint};

/// A host's file system in a file: small, and without shared blocks.
pub struct Host {
    dir: tempfile::TempDir,
    image: PathBuf,
    pub place: PathBuf,
    device: loopdev::Attached,
}

impl Host {
    pub fn new(bytes: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (image, place) = (root.join("image"), root.join("host"));
        std::fs::File::create(&image).unwrap().set_len(bytes).unwrap();
        std::fs::create_dir(&place).unwrap();
        let device = loopdev::attach(&image).unwrap();
        let mkfs = std::process::Command::new("mkfs.xfs")
            .args(["-q", "-K", "-s", "size=4096", "-m", "reflink=0", "-l", "size=64m"])
            .arg(&device.device)
            .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
            .status();
        assert!(mkfs.unwrap().success());
        mountpoint::mount_device(&device.device, &place, "xfs", &[]).unwrap();
        std::fs::create_dir(place.join("rig")).unwrap();
        Self { dir, image, place, device }
    }

    #[allow(dead_code, reason = "not all test programs with this file need it")]
    pub fn free(&self) -> u64 {
        filesystem::usage(&self.place).unwrap().available_bytes
    }

    pub fn grow(&self, bytes: u64) {
        std::fs::OpenOptions::new().write(true).open(&self.image).unwrap().set_len(bytes).unwrap();
        loopdev::refresh_size(&self.device.device).unwrap();
        filesystem::grow_mounted(filesystem::Kind::Xfs, &self.place, bytes).unwrap();
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = mountpoint::unmount_all(&self.place, true);
        let _ = loopdev::detach(&self.device);
        assert!(self.dir.path().exists());
    }
}
