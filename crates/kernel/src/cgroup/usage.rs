//! What a group uses.

use std::path::Path;

/// What a group uses, from whichever files are there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time since it was made, ns.
    pub cpu: u64,
    /// Memory.
    pub memory: MemoryUse,
    /// Processes and threads.
    pub tasks: u64,
}

/// Memory of a group, bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// All of it, cache included.
    pub usage: u64,
    /// Without cache that could go at once.
    pub working_set: u64,
    /// Anonymous memory.
    pub rss: u64,
    /// The limit; none if there is none.
    pub limit: Option<u64>,
    /// Page faults.
    pub faults: u64,
    /// Page faults that read from disk.
    pub major_faults: u64,
}

/// Version 1's "no limit" is the largest number of pages.
const NO_LIMIT: u64 = 1 << 62;

pub(super) fn read(folders: &[&Path]) -> Usage {
    let memory = first(folders, "memory.stat").unwrap_or_default();
    let stat = |names: &[&str]| names.iter().find_map(|name| value_of(&memory, name));
    let number = |file: &str| number(folders, file);
    let micros = || value_of(&first(folders, "cpu.stat")?, "usage_usec");
    let cpu = number("cpuacct.usage").or_else(|| Some(micros()? * 1000));
    let usage = number("memory.usage_in_bytes").or_else(|| number("memory.current")).unwrap_or(0);
    let inactive = stat(&["total_inactive_file", "inactive_file"]).unwrap_or(0);
    Usage {
        cpu: cpu.unwrap_or(0),
        memory: MemoryUse {
            usage,
            working_set: usage.saturating_sub(inactive),
            rss: stat(&["total_rss", "anon"]).unwrap_or(0),
            limit: number("memory.limit_in_bytes").or_else(|| number("memory.max")).filter(|n| *n < NO_LIMIT),
            faults: stat(&["total_pgfault", "pgfault"]).unwrap_or(0),
            major_faults: stat(&["total_pgmajfault", "pgmajfault"]).unwrap_or(0),
        },
        tasks: number("pids.current").unwrap_or(0),
    }
}

/// A file of the first folder that has it.
pub(super) fn first(folders: &[&Path], file: &str) -> Option<String> {
    folders.iter().find_map(|folder| std::fs::read_to_string(folder.join(file)).ok())
}

/// The number that such a file holds.
pub(super) fn number(folders: &[&Path], file: &str) -> Option<u64> {
    first(folders, file)?.trim().parse().ok()
}

pub(super) fn value_of(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

/// The `oom_kill` count of `memory.events` or `memory.oom_control`.
pub(super) fn oom_kills(path: &Path) -> u64 {
    std::fs::read_to_string(path).ok().and_then(|text| value_of(&text, "oom_kill")).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_files_are_understood() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("1"), dir.path().join("2"));
        let write = |folder: &Path, files: &[(&str, &str)]| {
            std::fs::create_dir_all(folder).unwrap();
            for (file, text) in files {
                std::fs::write(folder.join(file), text).unwrap();
            }
        };
        write(
            &one,
            &[
                ("cpuacct.usage", "5000\n"),
                ("memory.usage_in_bytes", "100"),
                ("memory.limit_in_bytes", "9223372036854771712"),
                ("memory.stat", "inactive_file 1\ntotal_inactive_file 40\ntotal_rss 30\n"),
                ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"),
            ],
        );
        write(
            &two,
            &[
                ("cpu.stat", "usage_usec 5\nuser_usec 1\n"),
                ("memory.current", "100"),
                ("memory.max", "max"),
                ("memory.stat", "anon 30\ninactive_file 40\n"),
            ],
        );
        let (a, b) = (read(&[&one]), read(&[&two]));
        assert_eq!(a, b);
        assert_eq!((a.cpu, a.memory.working_set, a.memory.rss, a.memory.limit), (5000, 60, 30, None));
        assert_eq!(oom_kills(&one.join("memory.oom_control")), 3);
    }
}
