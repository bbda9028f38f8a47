//! Where on version 2 groups can be made at all. A group that hands controllers down to others may hold no process itself, so
//! Trine goes to a leaf of the group that it was started in; where a shell is in that group too, the nearest group above that
//! holds no process takes its place, and where there is none (a container), everything in it goes to the leaf.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::hierarchy::{Hierarchies, Hierarchy};
use super::{CgroupError, LEAF};

/// Controllers that Pods' limits need. The groups above the base are other people's: nothing else is asked of them.
const NEEDED: [&str; 5] = ["cpu", "cpuset", "memory", "pids", "hugetlb"];

/// The group below which groups are made, for a process in `own`. `others` says whether a group holds other processes.
pub(super) fn choose(own: &Path, others: impl Fn(&Path) -> bool) -> PathBuf {
    let begin = if own.ends_with(LEAF) { own.parent().unwrap_or(own) } else { own };
    let free = begin.ancestors().find(|group| group.as_os_str().is_empty() || !others(group));
    free.map(Path::to_owned).unwrap_or_default()
}

/// The processes of a group, other than this one. One that is not visible from here counts as 0.
pub(super) fn others(folder: &Path) -> BTreeSet<u32> {
    let mut all = processes(folder);
    all.remove(&std::process::id());
    all
}

fn processes(folder: &Path) -> BTreeSet<u32> {
    let text = std::fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

impl Hierarchies {
    /// Makes ready for groups with limits: on a machine with version 2 alone, this process goes to a leaf where its own group
    /// is the base, and controllers are handed down to the base. Elsewhere there is nothing to do.
    ///
    /// # Errors
    /// [`CgroupError`] if the leaf cannot be made or joined. That a controller is missing is found out when a limit is set.
    pub fn prepare(&mut self) -> Result<(), CgroupError> {
        let Some(only) = self.only_mut() else { return Ok(()) };
        let base = only.base_folder();
        // The root of all groups is free of the rule, and only there is no such file.
        let limited = base.join("cgroup.type").exists();
        let holds_others = !others(&base).is_empty();
        if limited && (holds_others || only.own == only.base) {
            let leaf = base.join(LEAF);
            std::fs::create_dir_all(&leaf).map_err(CgroupError::at("make", &leaf))?;
            let procs = leaf.join("cgroup.procs");
            std::fs::write(&procs, "0").map_err(CgroupError::at("join by", &procs))?;
            only.own = only.base.join(LEAF);
            for other in others(&base) {
                // Gone in the meantime is fine.
                let _ = std::fs::write(&procs, other.to_string());
            }
        }
        let above: Vec<&Path> = base.ancestors().take_while(|group| group.starts_with(&only.mount)).collect();
        for group in above.into_iter().skip(1).rev() {
            hand_down(group, Some(&NEEDED));
        }
        hand_down(&base, None);
        Ok(())
    }

    /// Undoes what [`Self::prepare`] did to the base, once no group is below it but the leaf and no other process in that.
    pub fn leave(&self) {
        let Some(only) = self.only() else { return };
        let base = only.base_folder();
        let leaf = base.join(LEAF);
        if !leaf.is_dir() || !others(&leaf).is_empty() || below(&base).any(|name| name != LEAF) {
            return;
        }
        withdraw(&base);
        if !processes(&leaf).is_empty() {
            let _ = std::fs::write(base.join("cgroup.procs"), "0");
        }
        // What came to it in the meantime keeps it.
        if std::fs::remove_dir(&leaf).is_err() {
            hand_down(&base, None);
        }
    }

    fn only(&self) -> Option<&Hierarchy> {
        self.all().first().filter(|first| first.only_unified())
    }
}

fn below(folder: &Path) -> impl Iterator<Item = String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.filter_map(|entry| entry.file_name().into_string().ok())
}

/// A group's controllers work in the groups below it only if it hands them down: `wanted`, or all that it has.
pub(super) fn hand_down(group: &Path, wanted: Option<&[&str]>) {
    let words = |file: &str| std::fs::read_to_string(group.join(file)).unwrap_or_default();
    let (available, handed) = (words("cgroup.controllers"), words("cgroup.subtree_control"));
    let handed: BTreeSet<&str> = handed.split_ascii_whitespace().collect();
    let missing: Vec<String> = available
        .split_ascii_whitespace()
        .filter(|name| !handed.contains(name) && wanted.is_none_or(|wanted| wanted.contains(name)))
        .map(|name| format!("+{name}"))
        .collect();
    let control = group.join("cgroup.subtree_control");
    if missing.is_empty() || std::fs::write(&control, missing.join(" ")).is_ok() {
        return;
    }
    // One that cannot be had must not keep the others back.
    for name in missing {
        let _ = std::fs::write(&control, name);
    }
}

fn withdraw(group: &Path) {
    let control = group.join("cgroup.subtree_control");
    let handed = std::fs::read_to_string(&control).unwrap_or_default();
    let words: Vec<String> = handed.split_ascii_whitespace().map(|name| format!("-{name}")).collect();
    let _ = std::fs::write(control, words.join(" "));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_base_is_the_nearest_group_that_nobody_else_is_in() {
        let busy = ["user.slice/u.slice/session-1.scope"];
        for (name, own, expected) in [
            ("alone in a service", "system.slice/t.service", "system.slice/t.service"),
            ("in its leaf already", "system.slice/t.service/trine", "system.slice/t.service"),
            ("beside a shell", "user.slice/u.slice/session-1.scope", "user.slice/u.slice"),
            ("at the root", "", ""),
        ] {
            let others = |group: &Path| busy.iter().any(|busy| group == Path::new(busy));
            assert_eq!(choose(Path::new(own), others), Path::new(expected), "{name}");
        }
        assert_eq!(choose(Path::new("a/b"), |_| true), Path::new(""), "nowhere but at the top");
    }
}
