//! Which mounts a new machine must not hold on to: a copy of a Pod's volume keeps its device busy for as long as the
//! machine lives, and a copy of a pinned namespace keeps that alive.

use std::path::{Path, PathBuf};

use crate::mountpoint::Mounted;

/// Mounts to take off in a new machine's mount namespace, newest first: namespaces that are pinned, unpacked images, block
/// devices of files, and whatever lies in `foreign`. What `keep` lies on stays.
#[must_use]
pub(super) fn unwanted(mounted: &[Mounted], foreign: &[PathBuf], keep: &[PathBuf]) -> Vec<PathBuf> {
    let of_others = |m: &Mounted| {
        let passing = ["nsfs", "overlay"].contains(&m.fs_type.as_str()) || is_loop(&m.source);
        passing || foreign.iter().any(|dir| m.target.starts_with(dir) && m.target != *dir)
    };
    let needed =
        |m: &Mounted| m.target == Path::new("/") || keep.iter().any(|path| path.starts_with(&m.target));
    mounted.iter().rev().filter(|m| of_others(m) && !needed(m)).map(|m| m.target.clone()).collect()
}

fn is_loop(source: &Path) -> bool {
    let number = source.to_str().and_then(|s| s.strip_prefix("/dev/loop"));
    number.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(target: &str, fs_type: &str, source: &str) -> Mounted {
        Mounted {
            device: (0, 1),
            root: "/".into(),
            target: target.into(),
            options: Vec::new(),
            fs_type: fs_type.to_owned(),
            source: source.into(),
        }
    }

    #[test]
    fn what_passes_goes_and_what_the_machine_lies_on_stays() {
        let mounted = [
            mount("/", "overlay", "overlay"),
            mount("/home", "ext4", "/dev/sda2"),
            mount("/media/image", "ext4", "/dev/loop7"),
            mount("/srv", "xfs", "/dev/loop0"),
            mount("/run/netns/a", "nsfs", "nsfs"),
            mount("/srv/d", "tmpfs", "tmpfs"),
            mount("/srv/d/kubelet/pods/x", "tmpfs", "tmpfs"),
            mount("/other/rootfs", "overlay", "overlay"),
            mount("/dev/loops", "tmpfs", "/dev/loopy"),
        ];
        let gone = unwanted(&mounted, &["/srv/d".into()], &["/srv/d/nodes/n2".into()]);
        let gone: Vec<&str> = gone.iter().filter_map(|p| p.to_str()).collect();
        assert_eq!(gone, ["/other/rootfs", "/srv/d/kubelet/pods/x", "/run/netns/a", "/media/image"]);
    }
}
