//! What only a machine with version 2 alone can show. Each arrangement is made for a process of its own: this one's groups are
//! other tests' too.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::OnceLock;

use super::{Hierarchies, LEAF, Limits};
use crate::testing;

/// Says to the process that a test starts that it is the one.
const INSIDE: &str = "TRINE_TEST_INSIDE";

/// The groups of this machine, made ready once for all tests of this process: who looks while another test makes them ready
/// would see something in between.
pub(super) fn prepared() -> Hierarchies {
    static ONCE: OnceLock<Hierarchies> = OnceLock::new();
    let prepare = || {
        let mut all = Hierarchies::discover().unwrap();
        all.prepare().unwrap();
        all
    };
    ONCE.get_or_init(prepare).clone()
}

/// A folder of groups that goes with all that is in it.
struct Groups(PathBuf);

impl Groups {
    /// Groups `names` below this process's base, with all controllers handed down to each.
    fn new(names: &[&str]) -> Self {
        let all = prepared();
        let top =
            all.all()[0].base_folder().join(format!("trine-test-{}-{}", std::process::id(), names.len()));
        std::fs::create_dir(&top).unwrap();
        for name in names {
            let folder = top.join(name);
            super::base::hand_down(folder.parent().unwrap(), None);
            std::fs::create_dir(&folder).unwrap();
        }
        Self(top)
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        let _ = std::fs::write(self.0.join("cgroup.kill"), "1");
        for _ in 0..200 {
            remove_tree(&self.0);
            if !self.0.exists() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        eprintln!("{} is left", self.0.display());
    }
}

fn remove_tree(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            remove_tree(&entry.path());
        }
    }
    let _ = std::fs::remove_dir(folder);
}

struct Killed(Child);
impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs `script` (with `"$@"` this test again, as the process that is inside) in `group`.
fn run_inside(test: &str, group: &Path, script: &str) {
    let output = Command::new("sh")
        .args(["-c", &format!("echo 0 >\"$0/cgroup.procs\"; {script}")])
        .arg(group)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", &format!("cgroup::version_2_tests::{test}"), "--nocapture"])
        .env(INSIDE, group)
        .output()
        .unwrap();
    assert!(output.status.success(), "{script}: {output:?}");
}

/// The group of this process, as the kernel names it.
fn own() -> String {
    std::fs::read_to_string("/proc/self/cgroup").unwrap().trim().trim_start_matches("0::").to_owned()
}

/// Makes a group as a runtime does and gives where it is.
fn make_limited_group(all: &mut Hierarchies) -> PathBuf {
    all.prepare().unwrap();
    let before = own();
    let group = all.group(Path::new("trine-x/pod/ctr"));
    group.create().unwrap();
    group
        .limit(&Limits { memory: Some(64 << 20), cpu_shares: Some(2), pids: Some(9), ..Limits::default() })
        .unwrap();
    let folder = group.folders().next().unwrap().folder.clone();
    assert_eq!(std::fs::read_to_string(folder.join("memory.max")).unwrap().trim(), "67108864");
    assert_eq!(std::fs::read_to_string(folder.join("cpu.weight")).unwrap().trim(), "1");
    assert_eq!(own(), before, "making groups moves nobody");
    let other = Hierarchies::discover().unwrap().group(Path::new("trine-x/pod/ctr"));
    assert!(other.exists(), "whoever looks later in the same place finds it");
    group.remove(2).unwrap();
    folder
}

#[test]
fn alone_in_its_group_a_process_goes_to_a_leaf_and_gives_the_group_back() {
    let test = "alone_in_its_group_a_process_goes_to_a_leaf_and_gives_the_group_back";
    if let Some(group) = std::env::var_os(INSIDE) {
        let group = PathBuf::from(group);
        let mut all = Hierarchies::discover().unwrap();
        let made = make_limited_group(&mut all);
        assert_eq!(made, group.join("trine-x/pod/ctr"));
        assert!(own().ends_with(&format!("/service/{LEAF}")), "{}", own());
        // A later process of the same service finds the same place.
        let again = Hierarchies::discover().unwrap();
        assert_eq!(again.bases(), all.bases());
        again.leave();
        assert!(own().ends_with("/service"), "{}", own());
        assert!(!group.join(LEAF).exists());
        assert_eq!(std::fs::read_to_string(group.join("cgroup.subtree_control")).unwrap().trim(), "");
        return;
    }
    if testing::root(test) && testing::cgroup_2(test) {
        let groups = Groups::new(&["service"]);
        run_inside(test, &groups.0.join("service"), "exec \"$@\"");
    }
}

#[test]
fn beside_a_shell_groups_go_to_the_group_above_and_keep_its_limits() {
    let test = "beside_a_shell_groups_go_to_the_group_above_and_keep_its_limits";
    if let Some(group) = std::env::var_os(INSIDE) {
        let group = PathBuf::from(group);
        let made = make_limited_group(&mut Hierarchies::discover().unwrap());
        assert_eq!(made, group.parent().unwrap().join("trine-x/pod/ctr"));
        assert!(own().ends_with("/user/session"), "the shell's companion stays: {}", own());
        return;
    }
    if testing::root(test) && testing::cgroup_2(test) {
        let groups = Groups::new(&["user", "user/session"]);
        run_inside(test, &groups.0.join("user/session"), "\"$@\"; exit $?");
    }
}

#[test]
fn at_the_top_of_what_a_container_sees_everything_goes_to_the_leaf() {
    let test = "at_the_top_of_what_a_container_sees_everything_goes_to_the_leaf";
    if std::env::var_os(INSIDE).is_some() {
        let made = make_limited_group(&mut Hierarchies::discover().unwrap());
        assert_eq!(made, Path::new("/sys/fs/cgroup/trine-x/pod/ctr"));
        assert_eq!(own(), format!("/{LEAF}"));
        assert_eq!(std::fs::read_to_string("/sys/fs/cgroup/cgroup.procs").unwrap(), "");
        return;
    }
    if testing::root(test) && testing::cgroup_2(test) {
        let groups = Groups::new(&["container", "x", "y"]);
        let script = "exec unshare --cgroup --mount sh -c \
            'umount -l /sys/fs/cgroup; mount -t cgroup2 cgroup2 /sys/fs/cgroup && \"$@\"; exit $?' x \"$@\"";
        run_inside(test, &groups.0.join("container"), script);
    }
}

#[test]
fn what_was_written_down_is_taken_up_while_something_of_it_is_there() {
    let test = "what_was_written_down_is_taken_up_while_something_of_it_is_there";
    if !testing::root(test) || !testing::cgroup_2(test) {
        return;
    }
    let groups = Groups::new(&["old", "old/trine-x", "older", "a"]);
    let mut all = Hierarchies::discover().unwrap();
    let found = all.bases();
    let written = |name: &str| [(String::new(), groups.0.join(name))].into();
    all.take_up(&written("older"), Path::new("trine-x"));
    assert_eq!(all.bases(), found, "nothing is there any more");
    all.take_up(&written("old"), Path::new("trine-x"));
    assert_eq!(all.bases(), written("old"));
}

#[test]
fn a_process_may_use_only_the_devices_of_its_group() {
    let test = "a_process_may_use_only_the_devices_of_its_group";
    if !testing::root(test) {
        return;
    }
    let all = prepared();
    let name = format!("trine-test-devices-{}", std::process::id());
    let group = all.group(Path::new(&name));
    group.create().unwrap();
    group.allow_devices(&["c *:* m", "c 1:3 rwm", "c 1:5 r"].map(str::to_owned)).unwrap();
    let script = "for folder in \"$@\"; do echo 0 >$folder/cgroup.procs || exit 9; done
        true </dev/null && true >/dev/null && true </dev/zero || exit 1
        true >/dev/zero && exit 2
        true </dev/urandom && exit 3
        exit 0";
    let folders: Vec<_> = group.folders().map(|groups| groups.folder.clone()).collect();
    let status = Command::new("sh").args(["-c", script, "sh"]).args(folders).status();
    group.remove(0).unwrap();
    assert_eq!(status.unwrap().code(), Some(0));
}

#[test]
fn everything_in_a_group_and_below_it_is_killed_at_once() {
    let test = "everything_in_a_group_and_below_it_is_killed_at_once";
    if !testing::root(test) || !testing::cgroup_2(test) {
        return;
    }
    let all = prepared();
    let group = all.group(Path::new(&format!("trine-test-kill-{}", std::process::id())));
    group.create().unwrap();
    let folder = group.folders().next().unwrap().folder.clone();
    std::fs::create_dir(folder.join("own")).unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", "echo 0 >$0/own/cgroup.procs; exec sleep 600"]).arg(&folder).process_group(0);
    let mut child = Killed(shell.spawn().unwrap());
    let begun = std::time::Instant::now();
    while std::fs::read_to_string(folder.join("own/cgroup.procs")).unwrap().is_empty() {
        assert!(begun.elapsed() < std::time::Duration::from_secs(20), "it does not join");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    group.kill();
    assert!(!child.0.wait().unwrap().success());
    group.remove(0).unwrap();
    assert!(!folder.exists());
}
