//! What of one data dir is still on this machine: the check behind `down --purge` and the demo's last line.

use std::path::{Path, PathBuf};

use trine_kernel::netlink::{Cidr, Cidrs, Route};
use trine_kernel::nft::{Family, Nft};

use crate::identity::Identity;
use crate::layout::Layout;

/// Everything that is still there, one line each. `files` asks for the data dir itself too.
#[must_use]
pub fn leftovers(layout: &Layout, identity: &Identity, files: bool) -> Vec<String> {
    let mut found = Vec::new();
    found.extend(processes(layout.root()).into_iter().map(|pid| format!("process {pid}")));
    found.extend(mounts(layout));
    found.extend(network(identity));
    found.extend(cgroups(&format!("trine-{}", identity.instance)));
    match trine_kernel::loopdev::attached() {
        Ok(devices) => {
            let ours = devices.into_iter().filter(|d| d.backing_file.starts_with(layout.root()));
            found.extend(ours.map(|d| format!("loop device of {}", d.backing_file.display())));
        }
        Err(error) => found.push(format!("loop devices cannot be listed: {error}")),
    }
    if files && layout.root().exists() {
        found.push(format!("folder {}", layout.root().display()));
    }
    found
}

/// Processes that were started with a path of the data dir among their words.
fn processes(root: &Path) -> Vec<u32> {
    let own = std::process::id();
    let root = root.as_os_str().as_encoded_bytes();
    let named = |pid: &u32| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        // A word that is the data dir, or a path in it: `/tmp/a` must not match `/tmp/ab`.
        words.split(|b| *b == 0).any(|word| {
            word.windows(root.len())
                .enumerate()
                .any(|(at, part)| part == root && matches!(word.get(at + root.len()), None | Some(b'/')))
        })
    };
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| *pid != own && is_trine(*pid) && named(pid)).collect()
}

/// True if the program's first word ends in `trine` or it is a keeper; a shell that merely names the path is not ours.
fn is_trine(pid: u32) -> bool {
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let mut words = words.split(|b| *b == 0);
    let program = words.next().unwrap_or_default();
    let verb = words.next().unwrap_or_default();
    program.ends_with(b"trine") && verb != b"down" && verb != b"demo" || verb == b"keeper"
}

fn mounts(layout: &Layout) -> Vec<String> {
    let places = [layout.root().to_owned(), layout.kubelet()];
    match trine_kernel::mountpoint::mounted() {
        Ok(mounted) => mounted
            .into_iter()
            .filter(|m| places.iter().any(|p| m.target.starts_with(p)))
            .map(|m| format!("mount {}", m.target.display()))
            .collect(),
        Err(error) => vec![format!("mounts cannot be listed: {error}")],
    }
}

fn network(identity: &Identity) -> Vec<String> {
    let mut found = Vec::new();
    let prefix = format!("tr{}", identity.instance);
    let ranges = [&identity.pod_cidr, &identity.service_cidr].map(|ranges| ranges.parse::<Cidrs>().ok());
    let ranges: Vec<Cidr> =
        ranges.iter().flatten().flat_map(|ranges| ranges.iter().collect::<Vec<_>>()).collect();
    let listed = Route::open().and_then(|mut route| {
        let (links, mut routes) = (route.links()?, route.routes(false)?);
        routes.extend(route.routes(true)?);
        Ok((links, routes))
    });
    match listed {
        Ok((links, routes)) => {
            let ours = links.into_iter().filter(|l| l.name.starts_with(&prefix));
            found.extend(ours.map(|l| format!("link {}", l.name)));
            let inside = |dst: Cidr| ranges.iter().any(|r| r.len <= dst.len && r.contains(dst.addr));
            let ours = routes.into_iter().filter(|r| inside(r.dst));
            found.extend(ours.map(|r| format!("route to {}/{}", r.dst.addr, r.dst.len)));
        }
        Err(error) => found.push(format!("links and routes cannot be listed: {error}")),
    }
    let families = [Family::Inet, Family::Ip, Family::Ip6];
    let tables: Result<Vec<Vec<String>>, _> =
        Nft::open().and_then(|mut nft| families.into_iter().map(|family| nft.tables(family)).collect());
    match tables {
        Ok(tables) => {
            let name = format!("trine-{}", identity.instance);
            let ours = tables.into_iter().flatten().filter(|t| t.starts_with(&name));
            found.extend(ours.map(|t| format!("nft table {t}")));
        }
        Err(error) => found.push(format!("nft tables cannot be listed: {error}")),
    }
    found
}

/// Levels of cgroups that are looked through: inside containers and a user's services they nest deeply.
const CGROUP_LEVELS: usize = 12;

/// Folders `name` in every cgroup hierarchy (Trine nests below the cgroup that it was started in).
fn cgroups(name: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut waiting = vec![(PathBuf::from("/sys/fs/cgroup"), 0)];
    while let Some((dir, depth)) = waiting.pop() {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|t| t.is_dir()) {
                continue;
            }
            if entry.file_name() == name {
                found.push(format!("cgroup {}", entry.path().display()));
            } else if depth < CGROUP_LEVELS {
                waiting.push((entry.path(), depth + 1));
            }
        }
    }
    found
}
