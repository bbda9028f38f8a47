//! A folder of the host as a machine with systemd has it.

use std::path::PathBuf;
use std::process::Command;

/// A folder of the host from which mounts propagate, as everything does on a machine with systemd.
pub struct Shared(pub PathBuf);

impl Shared {
    /// Makes the folder.
    pub fn make(path: PathBuf) -> Self {
        std::fs::create_dir_all(&path).unwrap();
        let shared = Self(path);
        shared.run("mount", &["--bind", &shared.path(), &shared.path()]);
        shared.run("mount", &["--make-shared", &shared.path()]);
        shared
    }

    /// Its path.
    pub fn path(&self) -> String {
        self.0.display().to_string()
    }

    fn run(&self, program: &str, words: &[&str]) {
        assert!(Command::new(program).args(words).status().unwrap().success(), "{program} {words:?}");
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--recursive").arg(&self.0).status();
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
