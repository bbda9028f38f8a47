use std::path::PathBuf;
use std::process::Command;

use super::*;
use crate::{mountpoint, testing};

struct Removed(Machine);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = self.0.remove();
    }
}

/// What `words` print inside a machine: a shell of this machine, led in by nsenter.
fn inside(dir: &std::path::Path, words: &str) -> String {
    let pin =
        |kind: &str| format!("--{kind}={}", dir.join(if kind == "mount" { "mnt" } else { kind }).display());
    let output = Command::new("nsenter")
        .args([pin("mount"), pin("net"), pin("uts")])
        .args(["sh", "-c", words])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn a_machine_has_its_own_name_links_and_mounts_and_goes_without_a_trace() {
    const TEST: &str = "a_machine_has_its_own_name_links_and_mounts_and_goes_without_a_trace";
    if !testing::root(TEST) || !testing::program(TEST, "nsenter") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    for name in ["own", "seen", "others/volume"] {
        std::fs::create_dir_all(path(name)).unwrap();
    }
    std::fs::write(path("own/mark"), "mine").unwrap();
    mountpoint::mount_device("tmpfs".as_ref(), &path("others/volume"), "tmpfs", &[]).unwrap();
    struct Unmount(PathBuf);
    impl Drop for Unmount {
        fn drop(&mut self) {
            let _ = mountpoint::unmount_all(&self.0, true);
        }
    }
    let _volume = Unmount(path("others/volume"));
    let machine = Removed(Machine::at(&path("ns")));
    let shared = Shared {
        instead: vec![(path("own"), path("seen"))],
        foreign: vec![path("others")],
        keep: vec![path("own")],
    };
    machine.0.create("inner", &shared).unwrap();
    assert!(machine.0.exists());
    let ns = path("ns");
    assert_eq!(inside(&ns, "cat /proc/sys/kernel/hostname"), "inner");
    assert_eq!(inside(&ns, "ls /sys/class/net"), "lo");
    assert_eq!(inside(&ns, &format!("cat {}", path("seen/mark").display())), "mine");
    let groups = "test -d /sys/fs/cgroup && ls /sys/fs/cgroup | wc -l";
    assert_ne!(inside(&ns, groups), "0");
    let table = inside(&ns, "cat /proc/self/mountinfo");
    assert!(!table.contains(path("others/volume").to_str().unwrap()), "{table}");
    // What is mounted there is not seen here.
    inside(&ns, &format!("mount -t tmpfs tmpfs {}", path("own").display()));
    assert!(mountpoint::mounted().unwrap().iter().all(|m| m.target != path("own")));

    machine.0.remove().unwrap();
    machine.0.remove().unwrap();
    assert!(!machine.0.exists() && !ns.exists());
    assert!(mountpoint::mounted().unwrap().iter().all(|m| !m.target.starts_with(&ns)));
}
