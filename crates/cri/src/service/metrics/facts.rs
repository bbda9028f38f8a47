//! What is to be known for the metrics.

use std::collections::BTreeSet;
use std::path::Path;

use trine_contracts::cri::LinuxContainerResources;
use trine_kernel::cgroup::Detail;
use trine_kernel::filesystem;
use trine_kernel::netns::Netns;

use crate::container::Container;
use crate::runtime::{Runtime, now};
use crate::sandbox::Sandbox;

/// What a metric belongs to: the labels that all have.
#[derive(Debug, Clone, Default)]
pub(super) struct Whose {
    pub(super) container: String,
    /// The path of its group.
    pub(super) group: String,
    pub(super) image: String,
    /// The runtime's id of it.
    pub(super) id: String,
    pub(super) namespace: String,
    pub(super) pod: String,
}

/// Of a sandbox.
#[derive(Debug, Default)]
pub(super) struct Pod {
    pub(super) whose: Whose,
    /// ns since 1970.
    pub(super) at: i64,
    pub(super) interfaces: Vec<Interface>,
}

/// What went through an interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::service) struct Interface {
    pub(in crate::service) name: String,
    pub(in crate::service) received: Traffic,
    pub(in crate::service) sent: Traffic,
}

/// In one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::service) struct Traffic {
    pub(in crate::service) bytes: u64,
    pub(in crate::service) packets: u64,
    pub(in crate::service) errors: u64,
    pub(in crate::service) dropped: u64,
}

/// Of a container.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub(super) whose: Whose,
    /// ns since 1970.
    pub(super) at: i64,
    /// ns since 1970.
    pub(super) started_at: i64,
    pub(super) detail: Detail,
    pub(super) oom_kills: u64,
    pub(super) processes: Processes,
    /// What it wrote, bytes.
    pub(super) written: u64,
    /// The file system that it is written to: bytes, inodes, and how many of those are free.
    pub(super) space: (u64, u64, u64),
    /// What was asked for.
    pub(super) resources: LinuxContainerResources,
}

/// Processes of a container.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Processes {
    pub(super) count: u64,
    pub(super) threads: u64,
    pub(super) descriptors: u64,
    pub(super) sockets: u64,
    /// Files that its first process may open; none if there is no limit.
    pub(super) open_files: Option<u64>,
}

pub(super) fn of_pod(sandbox: &Sandbox) -> Pod {
    let record = sandbox.record();
    let metadata = record.config.metadata.clone().unwrap_or_default();
    Pod {
        whose: Whose {
            group: of_group(&record.cgroup),
            id: record.id.clone(),
            namespace: metadata.namespace,
            pod: metadata.name,
            ..Whose::default()
        },
        at: now(),
        interfaces: record.netns.as_deref().map(interfaces_in).unwrap_or_default(),
    }
}

/// The interfaces of a network namespace; none if it is gone.
pub(in crate::service) fn interfaces_in(netns: &Path) -> Vec<Interface> {
    let read = || std::fs::read_to_string("/proc/thread-self/net/dev").ok();
    let dev = Netns::open(netns).ok().and_then(|netns| netns.run(read).ok()?);
    interfaces(&dev.unwrap_or_default())
}

/// The file system that containers write to: bytes, inodes, and how many of those are free.
pub(super) fn space(runtime: &Runtime) -> (u64, u64, u64) {
    let space = filesystem::usage(&runtime.config().images_dir);
    space.map_or((0, 0, 0), |s| (s.total_bytes, s.total_inodes, s.free_inodes))
}

pub(super) fn of_container(
    runtime: &Runtime,
    pod: &Whose,
    space: (u64, u64, u64),
    container: &Container,
) -> Facts {
    let record = container.record();
    let config = &record.config;
    let group = runtime.group(&record.cgroup);
    Facts {
        whose: Whose {
            container: config.metadata.clone().map(|m| m.name).unwrap_or_default(),
            group: of_group(&record.cgroup),
            image: record.image_name.clone(),
            id: record.id.clone(),
            namespace: pod.namespace.clone(),
            pod: pod.pod.clone(),
        },
        at: now(),
        started_at: record.started_at,
        detail: group.detail(),
        oom_kills: group.oom_kills(),
        processes: processes(&group.processes()),
        written: runtime.inner.images.snapshot_usage(&record.id).map_or(0, |usage| usage.bytes),
        space,
        resources: config.linux.as_ref().and_then(|linux| linux.resources.clone()).unwrap_or_default(),
    }
}

/// As cAdvisor names a group.
fn of_group(path: &Path) -> String {
    format!("/{}", path.display().to_string().trim_start_matches('/'))
}

/// The lines of `/proc/net/dev`, without the loopback.
fn interfaces(dev: &str) -> Vec<Interface> {
    let lines = dev.lines().filter_map(|line| line.split_once(':'));
    lines
        .map(|(name, counts)| (name.trim(), counts.split_whitespace().map(|n| n.parse().unwrap_or(0))))
        .filter(|(name, _)| *name != "lo")
        .map(|(name, counts)| {
            let counts: Vec<u64> = counts.collect();
            let at = |column: usize| counts.get(column).copied().unwrap_or(0);
            let traffic = |from: usize| Traffic {
                bytes: at(from),
                packets: at(from + 1),
                errors: at(from + 2),
                dropped: at(from + 3),
            };
            Interface { name: name.to_owned(), received: traffic(0), sent: traffic(8) }
        })
        .collect()
}

fn processes(pids: &BTreeSet<i32>) -> Processes {
    let mut all = Processes { count: pids.len() as u64, ..Processes::default() };
    for pid in pids {
        let folder = Path::new("/proc").join(pid.to_string());
        let entries = |name: &str| std::fs::read_dir(folder.join(name)).into_iter().flatten().flatten();
        all.threads += entries("task").count() as u64;
        for descriptor in entries("fd") {
            all.descriptors += 1;
            let target = std::fs::read_link(descriptor.path()).unwrap_or_default();
            all.sockets += u64::from(target.to_string_lossy().starts_with("socket:"));
        }
    }
    let limits =
        pids.first().map(|pid| std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap_or_default());
    all.open_files = limits.as_deref().and_then(open_files);
    all
}

fn open_files(limits: &str) -> Option<u64> {
    limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_interface_but_the_loopback_is_read_in_both_directions() {
        let dev = "Inter-|   Receive                                                |  Transmit\n \
                   face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n    \
                   lo:     100       2    0    0    0     0          0         0      100       2    0    0    0     0       0          0\n  \
                   eth0:    1500      12    1    2    0     0          0         0     2500      22    3    4    0     0       0          0\n";
        let received = Traffic { bytes: 1500, packets: 12, errors: 1, dropped: 2 };
        let sent = Traffic { bytes: 2500, packets: 22, errors: 3, dropped: 4 };
        assert_eq!(interfaces(dev), [Interface { name: "eth0".into(), received, sent }]);
    }

    #[test]
    fn a_process_is_counted_with_its_threads_and_what_it_holds_open() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let own = processes(&BTreeSet::from([std::process::id() as i32]));
        assert_eq!(own.count, 1);
        assert!(own.threads >= 1 && own.descriptors >= 4 && own.sockets >= 1, "{own:?}");
        drop(socket);
        assert_eq!(
            open_files("Limit  Soft  Hard\nMax open files            1024                 4096    files\n"),
            Some(1024)
        );
        assert_eq!(
            open_files("Max open files            unlimited            unlimited            files\n"),
            None
        );
    }
}
