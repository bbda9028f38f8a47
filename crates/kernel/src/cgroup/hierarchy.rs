//! Which cgroup hierarchies are mounted, and where this process is in each.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use super::{CgroupError, Group, LEAF, base};
use crate::container::Groups;
use crate::mountpoint::mounted;

/// Controllers of version 1 that containers get groups in.
const USED: [&str; 7] = ["cpu", "cpuacct", "cpuset", "memory", "pids", "devices", "hugetlb"];

/// One mounted hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchy {
    /// Its mount point's name (`memory`, `cpu,cpuacct`, `unified`); empty if it is the only one.
    pub name: String,
    /// Its controllers; none for the unified hierarchy of a hybrid machine.
    pub controllers: Vec<String>,
    /// True for version 2.
    pub unified: bool,
    /// Its mount point.
    pub mount: PathBuf,
    /// The group of this process, relative to the mount point.
    pub own: PathBuf,
    /// The group below which groups are made, relative to the mount point.
    pub base: PathBuf,
}

impl Hierarchy {
    /// True for version 2 where there is nothing else.
    #[must_use]
    pub fn only_unified(&self) -> bool {
        self.unified && self.name.is_empty()
    }

    /// The folder of the group below which groups are made.
    #[must_use]
    pub fn base_folder(&self) -> PathBuf {
        self.mount.join(&self.base)
    }
}

/// All hierarchies in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchies(Vec<Hierarchy>);

impl Hierarchies {
    /// Reads what is mounted and where this process is.
    ///
    /// # Errors
    /// [`CgroupError`] if `/proc` cannot be read or no hierarchy is there.
    pub fn discover() -> Result<Self, CgroupError> {
        let path = Path::new("/proc/self/cgroup");
        let own = std::fs::read_to_string(path).map_err(CgroupError::at("read", path))?;
        let mounts =
            mounted().map_err(|e| CgroupError { call: "read".to_owned(), path: e.path, source: e.source })?;
        let mounts: Vec<_> = mounts
            .into_iter()
            .filter(|m| m.fs_type == "cgroup" || m.fs_type == "cgroup2")
            .map(|m| (m.target, m.root, m.fs_type == "cgroup2"))
            .collect();
        let mut found = match_up(&own, &mounts);
        if found.is_empty() {
            let missing = std::io::Error::from(std::io::ErrorKind::NotFound);
            return Err(CgroupError::at("find a hierarchy in", path)(missing));
        }
        if let [only] = found.as_mut_slice()
            && only.unified
        {
            only.base = base::choose(&only.own, |group| !base::others(&only.mount.join(group)).is_empty());
        }
        Ok(Self(found))
    }

    /// The folder of the group below which groups are made, for each hierarchy by its name: to be written down, because a
    /// process started elsewhere would find others.
    #[must_use]
    pub fn bases(&self) -> BTreeMap<String, PathBuf> {
        self.0.iter().map(|hierarchy| (hierarchy.name.clone(), hierarchy.base_folder())).collect()
    }

    /// Takes up what [`Self::bases`] gave an earlier process, hierarchy by hierarchy, if `group` or that process's leaf is
    /// still there.
    pub fn take_up(&mut self, bases: &BTreeMap<String, PathBuf>, group: &Path) {
        for hierarchy in &mut self.0 {
            let Some(folder) = bases.get(&hierarchy.name) else { continue };
            let lives = folder.join(group).is_dir() || hierarchy.only_unified() && folder.join(LEAF).is_dir();
            if let Ok(base) = folder.strip_prefix(&hierarchy.mount)
                && lives
            {
                hierarchy.base = base.to_owned();
            }
        }
    }

    pub(super) fn only_mut(&mut self) -> Option<&mut Hierarchy> {
        self.0.first_mut().filter(|first| first.only_unified())
    }

    /// The hierarchies.
    #[must_use]
    pub fn all(&self) -> &[Hierarchy] {
        &self.0
    }

    /// True if version 2 is the only one.
    #[must_use]
    pub fn unified(&self) -> bool {
        self.0.iter().all(|h| h.unified)
    }

    /// The group `path` in every hierarchy: below the bases, or, if it begins with `/`, below the roots. Parts like `..` are left out.
    #[must_use]
    pub fn group(&self, path: &Path) -> Group {
        let absolute = path.is_absolute();
        let below: PathBuf = path.components().filter(|c| matches!(c, Component::Normal(_))).collect();
        let folders = self.0.iter().map(|hierarchy| {
            let base = if absolute { hierarchy.mount.clone() } else { hierarchy.base_folder() };
            (hierarchy.clone(), Groups { name: hierarchy.name.clone(), folder: base.join(&below) })
        });
        Group::new(folders.collect(), below.components().count())
    }
}

/// Pure part of [`Hierarchies::discover`]: lines of `/proc/self/cgroup` against `(mount point, root, version 2)`.
fn match_up(own: &str, mounts: &[(PathBuf, PathBuf, bool)]) -> Vec<Hierarchy> {
    let mut found: Vec<Hierarchy> = Vec::new();
    for line in own.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        let unified = controllers.is_empty();
        let names: Vec<&str> = controllers.split(',').filter(|c| !c.is_empty()).collect();
        if !unified && !names.iter().any(|name| USED.contains(name)) {
            continue;
        }
        let is_it = |target: &Path, v2: bool| {
            let name = target.file_name().and_then(|n| n.to_str()).unwrap_or_default();
            let mut mounted: Vec<&str> = name.split(',').collect();
            mounted.sort_unstable();
            let mut wanted = names.clone();
            wanted.sort_unstable();
            if unified { v2 } else { !v2 && mounted == wanted }
        };
        let Some((target, root, _)) = mounts.iter().find(|(target, _, v2)| is_it(target, *v2)) else {
            continue;
        };
        // In a container the mount shows a part of the hierarchy only.
        let path = Path::new(path);
        let own = path.strip_prefix(root).or_else(|_| path.strip_prefix("/")).unwrap_or(path);
        found.push(Hierarchy {
            name: target.file_name().and_then(|n| n.to_str()).unwrap_or_default().to_owned(),
            controllers: names.into_iter().map(str::to_owned).collect(),
            unified,
            mount: target.clone(),
            own: own.to_owned(),
            base: own.to_owned(),
        });
    }
    if let [only] = found.as_mut_slice() {
        only.name = String::new();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mounts(list: &[(&str, &str, bool)]) -> Vec<(PathBuf, PathBuf, bool)> {
        list.iter().map(|(t, r, v2)| (PathBuf::from(t), PathBuf::from(r), *v2)).collect()
    }

    #[test]
    fn on_a_hybrid_machine_each_controller_has_its_own_place() {
        let own = "5:name=systemd:/\n4:memory:/process_api/1\n2:cpu,cpuacct:/\n0::/x\n";
        let found = match_up(
            own,
            &mounts(&[
                ("/sys/fs/cgroup/cpuacct,cpu", "/", false),
                ("/sys/fs/cgroup/memory", "/", false),
                ("/sys/fs/cgroup/systemd", "/", false),
                ("/sys/fs/cgroup/unified", "/", true),
            ]),
        );
        let all = Hierarchies(found);
        let folders: Vec<_> = all
            .group(Path::new("a/../b"))
            .folders()
            .map(|g| (g.name.clone(), g.folder.to_string_lossy().into_owned()))
            .collect();
        assert_eq!(
            folders,
            [
                ("memory".to_owned(), "/sys/fs/cgroup/memory/process_api/1/a/b".to_owned()),
                ("cpuacct,cpu".to_owned(), "/sys/fs/cgroup/cpuacct,cpu/a/b".to_owned()),
                ("unified".to_owned(), "/sys/fs/cgroup/unified/x/a/b".to_owned()),
            ]
        );
        assert!(!all.unified());
        let rooted = all.group(Path::new("/k"));
        assert!(rooted.folders().any(|g| g.folder == Path::new("/sys/fs/cgroup/memory/k")));
    }

    #[test]
    fn version_2_alone_is_one_hierarchy_without_a_name() {
        let all = Hierarchies(match_up(
            "0::/system.slice/t.service\n",
            &mounts(&[("/sys/fs/cgroup", "/system.slice", true)]),
        ));
        assert!(all.unified());
        assert_eq!(all.all()[0].name, "");
        assert_eq!(
            all.group(Path::new("p")).folders().next().unwrap().folder,
            Path::new("/sys/fs/cgroup/t.service/p")
        );
    }
}
