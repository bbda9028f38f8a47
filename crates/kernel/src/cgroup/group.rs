//! One group over all hierarchies.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::{Duration, Instant};

use super::base::hand_down;
use super::detail::{self, Detail};
use super::hierarchy::Hierarchy;
use super::limits::{Limits, Version, writes};
use super::usage::{self, Usage};
use super::{CgroupError, usage::oom_kills};
use crate::container::Groups;
use crate::proc::{SIGKILL, signal_pid};
use crate::testing::failpoint;

/// How long [`Group::remove`] waits for the last process to be gone.
const REMOVE_PATIENCE: Duration = Duration::from_secs(2);
/// Between two tries of it.
const REMOVE_PAUSE: Duration = Duration::from_millis(2);

/// One group: a folder in every hierarchy.
#[derive(Debug, Clone)]
pub struct Group {
    folders: Vec<(Hierarchy, Groups)>,
    depth: usize,
}

impl Group {
    pub(super) fn new(folders: Vec<(Hierarchy, Groups)>, depth: usize) -> Self {
        Self { folders, depth }
    }

    /// Its folders, one for each hierarchy.
    pub fn folders(&self) -> impl Iterator<Item = &Groups> {
        self.folders.iter().map(|(_, groups)| groups)
    }

    pub(super) fn places(&self) -> impl Iterator<Item = &(Hierarchy, Groups)> {
        self.folders.iter()
    }

    /// Makes it and what is missing above it; there already is success.
    ///
    /// # Errors
    /// [`CgroupError`].
    pub fn create(&self) -> Result<(), CgroupError> {
        for (hierarchy, Groups { folder, .. }) in &self.folders {
            let mut levels: Vec<&Path> = folder.ancestors().take(self.depth).collect();
            levels.reverse();
            for level in levels {
                if hierarchy.only_unified() {
                    hand_down(level.parent().unwrap_or(level), None);
                }
                match std::fs::create_dir(level) {
                    Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                    result => result.map_err(CgroupError::at("make", level))?,
                }
                failpoint("cgroup: folder");
                if hierarchy.controllers.iter().any(|c| c == "cpuset") {
                    inherit_cpuset(level)?;
                }
            }
        }
        Ok(())
    }

    /// Sets what `limits` name and leaves the rest.
    ///
    /// # Errors
    /// [`CgroupError`] of the first file that could not be written.
    pub fn limit(&self, limits: &Limits) -> Result<(), CgroupError> {
        for (hierarchy, Groups { folder, .. }) in &self.folders {
            let version = match (hierarchy.unified, hierarchy.only_unified()) {
                (false, _) => Version::One,
                (true, true) => Version::Two,
                // Beside version 1's it has no controllers.
                (true, false) => continue,
            };
            let current = |file: &str| std::fs::read_to_string(folder.join(file)).ok();
            for (file, value) in writes(limits, version, &hierarchy.controllers, current) {
                let path = folder.join(file);
                let written = if path.exists() {
                    std::fs::write(&path, &value)
                } else {
                    Err(io::Error::new(
                        ErrorKind::NotFound,
                        "its controller is not handed down to this group",
                    ))
                };
                written.map_err(CgroupError::at(format!("write {value:?} to"), &path))?;
                failpoint("cgroup: limit");
            }
        }
        Ok(())
    }

    /// The processes in it, without those in groups below.
    #[must_use]
    pub fn processes(&self) -> BTreeSet<i32> {
        self.folders()
            .filter_map(|groups| std::fs::read_to_string(groups.folder.join("cgroup.procs")).ok())
            .flat_map(|text| text.lines().filter_map(|line| line.parse().ok()).collect::<Vec<i32>>())
            .filter(|pid| *pid > 0)
            .collect()
    }

    /// Kills everything in it; what is in a group below is killed too where there is a unified hierarchy.
    pub fn kill(&self) {
        for (hierarchy, Groups { folder, .. }) in &self.folders {
            if hierarchy.unified {
                let _ = std::fs::write(folder.join("cgroup.kill"), "1");
            }
        }
        let own = rustix::process::getpid().as_raw_nonzero().get();
        for pid in self.processes().into_iter().filter(|pid| *pid != own) {
            let _ = signal_pid(pid, SIGKILL);
        }
    }

    /// Removes it, waiting a moment for killed processes to be gone; absent is success. Groups above that are empty
    /// then are removed too, up to `levels` of them.
    ///
    /// # Errors
    /// [`CgroupError`] of the first folder that stays; the others are gone.
    pub fn remove(&self, levels: usize) -> Result<(), CgroupError> {
        let deadline = Instant::now() + REMOVE_PATIENCE;
        let mut first = None;
        for Groups { folder, .. } in self.folders() {
            if let Err(source) = remove_folder(folder, deadline) {
                first.get_or_insert(CgroupError { call: "remove".to_owned(), path: folder.clone(), source });
                continue;
            }
            failpoint("cgroup: removed");
            for above in folder.ancestors().skip(1).take(levels.min(self.depth.saturating_sub(1))) {
                // Not empty means that another still uses it.
                if std::fs::remove_dir(above).is_err() && above.exists() {
                    break;
                }
            }
        }
        first.map_or(Ok(()), Err)
    }

    /// True if it is there in any hierarchy.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.folders().any(|groups| groups.folder.is_dir())
    }

    /// Names of the groups right below it, in any hierarchy.
    #[must_use]
    pub fn children(&self) -> BTreeSet<String> {
        self.folders()
            .filter_map(|groups| std::fs::read_dir(&groups.folder).ok())
            .flat_map(|entries| entries.flatten().collect::<Vec<_>>())
            .filter(|entry| entry.file_type().is_ok_and(|t| t.is_dir()))
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect()
    }

    /// How many of its processes the kernel killed for want of memory.
    #[must_use]
    pub fn oom_kills(&self) -> u64 {
        self.oom_files().iter().map(|path| oom_kills(path)).sum()
    }

    /// The files that count processes killed for want of memory.
    #[must_use]
    pub fn oom_files(&self) -> Vec<std::path::PathBuf> {
        self.folders()
            .flat_map(|groups| ["memory.events", "memory.oom_control"].map(|file| groups.folder.join(file)))
            .filter(|path| path.is_file())
            .collect()
    }

    /// What it uses now; absent files count as zero.
    #[must_use]
    pub fn usage(&self) -> Usage {
        usage::read(&self.paths())
    }

    /// All that its files say; absent files count as zero.
    #[must_use]
    pub fn detail(&self) -> Detail {
        detail::read(&self.paths())
    }

    fn paths(&self) -> Vec<&Path> {
        self.folders().map(|groups| groups.folder.as_path()).collect()
    }
}

/// Version 1: a new cpuset group is empty, and nothing can join it until it has CPUs and memory nodes.
fn inherit_cpuset(folder: &Path) -> Result<(), CgroupError> {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let path = folder.join(file);
        if std::fs::read_to_string(&path).is_ok_and(|now| now.trim().is_empty())
            && let Some(parent) = folder.parent()
        {
            let above = parent.join(file);
            let value = std::fs::read_to_string(&above).map_err(CgroupError::at("read", &above))?;
            std::fs::write(&path, value.trim()).map_err(CgroupError::at("write to", &path))?;
        }
    }
    Ok(())
}

fn remove_folder(folder: &Path, deadline: Instant) -> io::Result<()> {
    loop {
        match std::fs::remove_dir(folder) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
            Err(e) if e.kind() == ErrorKind::ResourceBusy && Instant::now() < deadline => {
                remove_below(folder);
                std::thread::sleep(REMOVE_PAUSE);
            }
            result => return result,
        }
    }
}

/// Groups that the container's own processes made inside.
fn remove_below(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_dir())) {
        remove_below(&entry.path());
        let _ = std::fs::remove_dir(entry.path());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    struct Gone(Group);
    impl Drop for Gone {
        fn drop(&mut self) {
            self.0.kill();
            let _ = self.0.remove(2);
        }
    }

    #[test]
    fn a_group_is_made_limited_joined_killed_and_removed_with_its_empty_parents() {
        if !testing::root("a_group_is_made_limited_joined_killed_and_removed_with_its_empty_parents") {
            return;
        }
        let all = super::super::version_2_tests::prepared();
        let name = format!("trine-test-{}/pod/ctr", std::process::id());
        let group = Gone(all.group(Path::new(&name)));
        group.0.create().unwrap();
        group.0.create().unwrap();
        let limits =
            Limits { memory: Some(64 << 20), cpu_shares: Some(512), pids: Some(50), ..Limits::default() };
        group.0.limit(&limits).unwrap();
        group.0.limit(&Limits { memory: Some(128 << 20), ..Limits::default() }).unwrap();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        for groups in group.0.folders() {
            std::fs::write(groups.folder.join("cgroup.procs"), child.id().to_string()).unwrap();
        }
        assert_eq!(group.0.processes().len(), 1);
        assert_eq!(group.0.oom_kills(), 0);
        group.0.kill();
        assert!(!child.wait().unwrap().success());
        group.0.remove(2).unwrap();
        group.0.remove(2).unwrap();
        let top = all.group(Path::new(name.split('/').next().unwrap()));
        assert!(!top.exists());
    }
}
