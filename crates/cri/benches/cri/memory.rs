//! What a daemon and its helpers take of the machine's memory.

use std::path::{Path, PathBuf};

use crate::peers::Peer;

/// Memory, kB.
#[derive(Debug, Default, Clone, Copy)]
pub struct Memory {
    /// The daemon's resident pages, shared ones too.
    pub daemon: u64,
    /// Its own pages that it has written.
    pub daemon_dirty: u64,
    /// How many helpers there are.
    pub helpers: u64,
    /// Resident pages of all helpers.
    pub helpers_resident: u64,
    /// Their own pages that they have written.
    pub helpers_dirty: u64,
}

/// The processes that hold Pods.
#[derive(Debug, Clone)]
pub enum Helpers {
    /// Each sandbox's folder below this one says which.
    Keepers(PathBuf),
    /// Those whose command line has these words.
    Shims([String; 2]),
}

impl Helpers {
    fn pids(&self) -> Vec<i32> {
        let entries = |dir: &Path| std::fs::read_dir(dir).into_iter().flatten().flatten();
        match self {
            Self::Keepers(dir) => entries(dir)
                .filter_map(|sandbox| std::fs::read(sandbox.path().join("keeper.lock")).ok())
                .filter_map(|bytes| serde_json::from_slice::<serde_json::Value>(&bytes).ok())
                .filter_map(|id| i32::try_from(id["pid"].as_i64()?).ok())
                .collect(),
            Self::Shims(words) => entries(Path::new("/proc"))
                .filter_map(|process| process.file_name().to_str()?.parse().ok())
                .filter(|pid: &i32| {
                    let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                    words.iter().all(|word| line.contains(word.as_str()))
                })
                .collect(),
        }
    }
}

/// What `peer` takes now.
#[must_use]
pub fn of(peer: &Peer) -> Memory {
    let (daemon, daemon_dirty) = pages(peer.daemon);
    let mut memory = Memory { daemon, daemon_dirty, ..Memory::default() };
    for pid in peer.helpers.pids() {
        let (resident, dirty) = pages(pid);
        memory.helpers += 1;
        memory.helpers_resident += resident;
        memory.helpers_dirty += dirty;
    }
    memory
}

/// Resident and private dirty pages of a process, kB; none if it is gone.
fn pages(pid: i32) -> (u64, u64) {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
    };
    (field("Rss:"), field("Private_Dirty:"))
}
