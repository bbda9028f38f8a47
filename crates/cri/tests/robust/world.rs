//! All that a runtime has on a machine, as a set of lines: two looks are the same if nothing came or went between them.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use trine_kernel::cgroup::Hierarchies;
use trine_kernel::mountpoint::mounted;
use trine_kernel::netlink::Route;
use trine_kernel::nft::{Family, Nft};

use crate::harness::Node;

/// How long what is removed in the background may take.
const PATIENCE: Duration = Duration::from_secs(20);

pub type World = BTreeSet<String>;

/// What there is now.
fn look(node: &Node) -> World {
    let root = node.dir.path();
    let mut world = World::new();
    let below = |path: &Path| path.strip_prefix(root).map(|path| path.display().to_string()).ok();
    world.extend(
        mounted().unwrap().iter().filter_map(|m| below(&m.target)).map(|path| format!("mount {path}")),
    );
    groups(node, &mut world);
    keepers(root, &mut world);
    network(&mut world);
    // Names in folders; drafts have one name each and are written over by the next.
    for (folder, depth) in [
        ("cri/sandboxes", 3),
        ("cri/gone", 1),
        ("cni/networks", 3),
        ("cni/results", 1),
        ("images/snapshots", 1),
        ("images/layers", 1),
        ("images/blobs", 2),
    ] {
        names(root, &root.join(folder), depth, &mut world);
    }
    // A session is the daemon's own; what is in it beside its lock and its intents is in the making.
    for session in std::fs::read_dir(root.join("images/sessions")).into_iter().flatten().flatten() {
        let inside = std::fs::read_dir(session.path()).into_iter().flatten().flatten();
        let inside = inside.map(|entry| entry.file_name()).filter(|name| name != "lock" && name != "intents");
        world.extend(inside.map(|name| format!("in the making: image {}", name.display())));
    }
    world.extend(intents(root).into_iter().map(|key| format!("intent {key}")));
    world
}

/// What there is once all that was discarded is gone, too.
pub async fn calm(node: &Node) -> World {
    let begun = Instant::now();
    loop {
        let now = look(node);
        let going = |line: &&String| line.starts_with("cri/gone/") || line.starts_with("in the making");
        match now.iter().find(going) {
            None => return now,
            Some(line) => assert!(begun.elapsed() < PATIENCE, "{line} stays"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until there is what there was; says what differs if that does not come about.
pub async fn again(node: &Node, before: &World) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        let now = look(node);
        if now == *before {
            return Ok(());
        }
        if begun.elapsed() > PATIENCE {
            let more: Vec<_> = now.difference(before).collect();
            let less: Vec<_> = before.difference(&now).collect();
            return Err(format!("left: {more:#?}, gone: {less:#?}"));
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn names(root: &Path, folder: &Path, depth: usize, world: &mut World) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        let steady = name.starts_with("last_reserved_ip")
            || name == "lock"
            || name == ".trine-boot"
            || name.starts_with(".trine-bits.");
        if steady || Path::new(&name).extension().is_some_and(|end| end == "new") {
            continue;
        }
        world.insert(path.strip_prefix(root).unwrap().display().to_string());
        if depth > 1 && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            names(root, &path, depth - 1, world);
        }
    }
}

/// Groups of Pods, and the processes in them by pid and start: the same process is the same line.
fn groups(node: &Node, world: &mut World) {
    let all = Hierarchies::discover().unwrap();
    let top = all.group(Path::new(&format!("trine-{}", node.config.instance)));
    for groups in top.folders() {
        walk(&groups.folder, &groups.folder, &groups.name, world);
    }
}

fn walk(top: &Path, folder: &Path, hierarchy: &str, world: &mut World) {
    if !folder.is_dir() {
        return;
    }
    let name = folder.strip_prefix(top).unwrap().display().to_string();
    world.insert(format!("cgroup {hierarchy} /{name}"));
    let processes = std::fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    // The oldest: those that a container forks come and go.
    let all = processes.lines().filter_map(|pid| Some((start(pid)?, pid)));
    let oldest = all.min_by_key(|(start, pid)| (*start, pid.len(), *pid));
    world.extend(oldest.map(|(start, pid)| format!("process {pid} of {start} in {hierarchy} /{name}")));
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            walk(top, &entry.path(), hierarchy, world);
        }
    }
}

fn start(pid: &str) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split(' ').nth(20)?.parse().ok()
}

/// Processes that name the folder: keepers, each by pid and start, and the daemon's nursery, of which there is one.
fn keepers(root: &Path, world: &mut World) {
    let marker = root.to_string_lossy().into_owned();
    let mut nurseries = 0;
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let words = std::fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
        if !words.contains(&marker) {
            continue;
        }
        let pid = entry.file_name().to_string_lossy().into_owned();
        let name = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        match name.trim_end() {
            "trine-nursery" => nurseries += 1,
            name => world.extend(start(&pid).map(|start| format!("{name} {pid} of {start}"))),
        }
    }
    world.insert(format!("{nurseries} nurseries"));
}

fn network(world: &mut World) {
    let mut route = Route::open().unwrap();
    world.extend(route.links().unwrap().iter().map(|link| format!("link {}", link.name)));
    let routes = route.routes(false).unwrap();
    world.extend(routes.iter().map(|route| format!("route {:?} by {:?}", route.dst, route.device)));
    for family in [Family::Ip, Family::Ip6, Family::Inet] {
        let tables = Nft::open().unwrap().tables(family).unwrap();
        world.extend(tables.iter().map(|table| format!("nft {family:?} {table}")));
    }
}

/// Keys that are written down and not taken back, read from the file beside the daemon's own eyes.
fn intents(root: &Path) -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    for line in std::fs::read_to_string(root.join("cri/ledger")).unwrap_or_default().lines() {
        let Ok(line) = serde_json::from_str::<Value>(line) else { continue };
        let key = line["key"].as_str().unwrap_or_default().to_owned();
        if line["record"].is_null() {
            keys.remove(&key)
        } else {
            keys.insert(key)
        };
    }
    keys
}
