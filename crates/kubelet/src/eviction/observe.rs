//! What is left of the node: `/proc` and the file system under the root folder.

use std::collections::BTreeMap;
use std::path::Path;

use super::thresholds::{Left, Signal};
use crate::node::machine::meminfo_field;

/// What is left, by signal; what cannot be read is not judged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observed(pub BTreeMap<Signal, Left>);

impl Observed {
    /// Looks now.
    #[must_use]
    pub fn now(root: &Path) -> Self {
        let read = |path: &str| std::fs::read_to_string(path).ok();
        let mut all = BTreeMap::new();
        all.extend(read("/proc/meminfo").map(|text| (Signal::Memory, memory(&text))));
        if let Ok(usage) = trine_kernel::filesystem::usage(root) {
            all.insert(Signal::Disk, Left { all: usage.total_bytes, left: usage.available_bytes });
            all.insert(Signal::Inodes, Left { all: usage.total_inodes, left: usage.free_inodes });
        }
        let most = read("/proc/sys/kernel/pid_max").and_then(|text| text.trim().parse().ok());
        let tasks = read("/proc/loadavg").as_deref().and_then(tasks);
        all.extend(
            most.zip(tasks)
                .map(|(all, used): (u64, u64)| (Signal::Pids, Left { all, left: all.saturating_sub(used) })),
        );
        Self(all)
    }
}

fn memory(meminfo: &str) -> Left {
    Left { all: meminfo_field(meminfo, "MemTotal:"), left: meminfo_field(meminfo, "MemAvailable:") }
}

/// The tasks of a line as `0.51 0.30 0.12 3/90 2460`.
fn tasks(loadavg: &str) -> Option<u64> {
    loadavg.split_whitespace().nth(3)?.split_once('/')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_found_in_the_files() {
        assert_eq!(tasks("0.51 0.30 0.12 3/90 2460\n"), Some(90));
        assert_eq!(tasks(""), None);
        assert_eq!(memory("MemTotal: 8 kB\nMemAvailable:  2 kB\n"), Left { all: 8192, left: 2048 });
    }

    #[test]
    fn this_machine_is_seen_whole() {
        let seen = Observed::now(Path::new("/"));
        assert_eq!(seen.0.len(), 4, "{seen:?}");
        for (signal, Left { all, left }) in &seen.0 {
            assert!(left <= all, "{signal:?}");
        }
    }
}
