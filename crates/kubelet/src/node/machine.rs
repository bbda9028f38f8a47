//! What the machine is: read once at start from `/proc` and the root folder's file system.

use std::path::Path;

use crate::container::hugepages::{self, HugePages};

/// Facts that do not change while the kubelet runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Machine {
    /// Processors that this process may use.
    pub cpus: u64,
    /// Memory, bytes.
    pub memory: u64,
    /// Its huge pages, by size.
    pub huge_pages: Vec<HugePages>,
    /// Whether version 2 cgroups are all that there is.
    pub cgroup_2: bool,
    /// Size of the file system under the root folder, bytes.
    pub disk: u64,
    /// `/etc/machine-id`.
    pub machine_id: String,
    /// DMI product UUID, or the machine id.
    pub system_uuid: String,
    /// Id of this boot.
    pub boot_id: String,
    /// `uname -r`.
    pub kernel: String,
    /// PRETTY_NAME of os-release.
    pub os_image: String,
}

/// GOARCH's name of this machine's architecture.
#[must_use]
pub fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "powerpc64" => "ppc64le",
        other => other,
    }
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
}

impl Machine {
    /// Reads all facts; what cannot be read stays empty.
    #[must_use]
    pub fn read(root: &Path) -> Self {
        let machine_id = read("/etc/machine-id");
        let uuid = read("/sys/class/dmi/id/product_uuid");
        Self {
            cpus: std::thread::available_parallelism().map_or(1, |n| n.get() as u64),
            memory: memory_total(&read("/proc/meminfo")),
            huge_pages: hugepages::of_machine(Path::new("/sys/kernel/mm/hugepages")),
            cgroup_2: trine_kernel::cgroup::Hierarchies::discover().is_ok_and(|all| all.unified()),
            disk: trine_kernel::filesystem::usage(root).map(|u| u.total_bytes).unwrap_or_default(),
            system_uuid: if uuid.is_empty() { machine_id.clone() } else { uuid.to_lowercase() },
            machine_id,
            boot_id: read("/proc/sys/kernel/random/boot_id"),
            kernel: read("/proc/sys/kernel/osrelease"),
            os_image: pretty_name(&read("/etc/os-release")),
        }
    }
}

fn memory_total(meminfo: &str) -> u64 {
    meminfo_field(meminfo, "MemTotal:")
}

/// A field of `/proc/meminfo`, bytes.
#[must_use]
pub fn meminfo_field(meminfo: &str, field: &str) -> u64 {
    meminfo
        .lines()
        .find_map(|line| line.strip_prefix(field))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|kib| kib.parse::<u64>().ok())
        .map_or(0, |kib| kib * 1024)
}

fn pretty_name(os_release: &str) -> String {
    os_release
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="))
        .map_or_else(|| "Linux".to_owned(), |name| name.trim_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_name_are_found_in_the_files() {
        assert_eq!(memory_total("MemFree: 1 kB\nMemTotal:  2048 kB\n"), 2 * 1024 * 1024);
        assert_eq!(pretty_name("ID=x\nPRETTY_NAME=\"An OS 1\"\n"), "An OS 1");
        assert_eq!(pretty_name(""), "Linux");
    }
}
