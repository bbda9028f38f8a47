//! What a group may use, and which files say so.

use std::collections::BTreeMap;

/// Limits; what is none stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Relative weight, version 1 scale (2 to 262144, default 1024).
    pub cpu_shares: Option<u64>,
    /// CPU time per period, µs; negative for no limit.
    pub cpu_quota: Option<i64>,
    /// That period, µs.
    pub cpu_period: Option<u64>,
    /// Bytes; negative for no limit.
    pub memory: Option<i64>,
    /// Memory and swap together, bytes, version 2 only: version 1 gives no swap beyond the memory limit. Negative for no limit.
    pub memory_and_swap: Option<i64>,
    /// Processes; negative for no limit.
    pub pids: Option<i64>,
    /// CPUs as a list (`0-3,6`).
    pub cpus: Option<String>,
    /// Memory nodes as a list.
    pub mems: Option<String>,
    /// Huge pages, bytes by their size as the groups' files spell it (`2MB`). A size that this machine has no files for is left out.
    pub huge_pages: BTreeMap<String, u64>,
    /// Version 2 files by name.
    pub unified: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    One,
    Two,
}

/// Period for a quota without one, µs (kernel default).
const PERIOD: u64 = 100_000;

/// Which files get which value, in that order. `current` reads a file of the group.
pub(super) fn writes(
    limits: &Limits,
    version: Version,
    controllers: &[String],
    current: impl Fn(&str) -> Option<String>,
) -> Vec<(String, String)> {
    match version {
        Version::One => version_1(limits, controllers, current),
        Version::Two => version_2(limits, current),
    }
}

fn version_1(
    limits: &Limits,
    controllers: &[String],
    current: impl Fn(&str) -> Option<String>,
) -> Vec<(String, String)> {
    let has = |name: &str| controllers.iter().any(|c| c == name);
    let mut files = Vec::new();
    let mut write = |file: &str, value: String| files.push((file.to_owned(), value));
    if has("cpu") {
        if let Some(shares) = limits.cpu_shares {
            write("cpu.shares", shares.to_string());
        }
        if let Some(period) = limits.cpu_period {
            write("cpu.cfs_period_us", period.to_string());
        }
        if let Some(quota) = limits.cpu_quota {
            write("cpu.cfs_quota_us", quota.max(-1).to_string());
        }
    }
    if has("cpuset") {
        if let Some(cpus) = &limits.cpus {
            write("cpuset.cpus", cpus.clone());
        }
        if let Some(mems) = &limits.mems {
            write("cpuset.mems", mems.clone());
        }
    }
    if has("memory")
        && let Some(memory) = limits.memory
    {
        let value = memory.max(-1).to_string();
        let (plain, with_swap) = ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes");
        let swap = current(with_swap).and_then(|now| now.trim().parse::<i64>().ok());
        match swap {
            None => write(plain, value),
            // Memory with swap may never be below memory alone: which one goes first depends on the direction.
            Some(now) if memory < 0 || memory > now => {
                write(with_swap, value.clone());
                write(plain, value);
            }
            Some(_) => {
                write(plain, value.clone());
                write(with_swap, value);
            }
        }
    }
    if has("pids")
        && let Some(pids) = limits.pids
    {
        write("pids.max", max_or(pids));
    }
    if has("hugetlb") {
        files.extend(huge_pages(limits, "limit_in_bytes", &current));
    }
    files
}

fn huge_pages(
    limits: &Limits,
    file: &str,
    current: impl Fn(&str) -> Option<String>,
) -> Vec<(String, String)> {
    let files =
        limits.huge_pages.iter().map(|(size, bytes)| (format!("hugetlb.{size}.{file}"), bytes.to_string()));
    files.filter(|(file, _)| current(file).is_some()).collect()
}

fn version_2(limits: &Limits, current: impl Fn(&str) -> Option<String>) -> Vec<(String, String)> {
    let mut files = Vec::new();
    let mut write = |file: &str, value: String| files.push((file.to_owned(), value));
    if let Some(shares) = limits.cpu_shares {
        write("cpu.weight", weight(shares).to_string());
    }
    if limits.cpu_quota.is_some() || limits.cpu_period.is_some() {
        // One file holds both; what is not said stays as it is.
        let now = current("cpu.max").unwrap_or_default();
        let mut now = now.split_ascii_whitespace();
        let (quota, period) = (now.next().unwrap_or("max"), now.next().and_then(|p| p.parse().ok()));
        let quota = limits.cpu_quota.map_or_else(|| quota.to_owned(), max_or);
        write("cpu.max", format!("{quota} {}", limits.cpu_period.or(period).unwrap_or(PERIOD)));
    }
    if let Some(cpus) = &limits.cpus {
        write("cpuset.cpus", cpus.clone());
    }
    if let Some(mems) = &limits.mems {
        write("cpuset.mems", mems.clone());
    }
    if let Some(memory) = limits.memory {
        write("memory.max", max_or(memory));
    }
    // A kernel without swap has no such file.
    if let (Some(both), Some(_)) = (limits.memory_and_swap, current("memory.swap.max")) {
        let now = || current("memory.max")?.trim().parse().ok();
        let memory = limits.memory.or_else(now).unwrap_or(0).max(0);
        let swap = if both < 0 { -1 } else { (both - memory).max(0) };
        write("memory.swap.max", max_or(swap));
    }
    if let Some(pids) = limits.pids {
        write("pids.max", max_or(pids));
    }
    files.extend(huge_pages(limits, "max", &current));
    files.extend(
        limits.unified.iter().filter(|(file, _)| !file.contains('/')).map(|(f, v)| (f.clone(), v.clone())),
    );
    files
}

fn max_or(value: i64) -> String {
    if value < 0 { "max".to_owned() } else { value.to_string() }
}

/// Version 2's weight for version 1's shares: the quadratic fit of the OCI runtimes since 2025, by which one CPU's
/// worth (1024) is the default weight 100.
fn weight(shares: u64) -> u64 {
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let of = |shares: u64| {
        let log = (shares as f64).log2();
        let exponent = (log * log + 125.0 * log) / 612.0 - 7.0 / 34.0;
        10f64.powf(exponent).ceil() as u64
    };
    match shares {
        0 => 0,
        1..=2 => 1,
        262_144.. => 10_000,
        _ => of(shares),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_become_weights_by_the_newer_formula() {
        for (shares, expected) in [(2, 1), (1024, 100), (262_144, 10_000)] {
            assert_eq!(weight(shares), expected, "{shares}");
        }
    }

    #[test]
    fn memory_and_swap_are_written_in_the_order_that_the_kernel_takes() {
        let files = |memory, now: &str| {
            let limits = Limits { memory: Some(memory), ..Limits::default() };
            let current = |_: &str| Some(now.to_owned());
            let files = writes(&limits, Version::One, &["memory".to_owned()], current);
            files.into_iter().map(|(file, _)| file).collect::<Vec<_>>()
        };
        let (plain, swap) = ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes");
        assert_eq!(files(10, "100"), [plain, swap]);
        assert_eq!(files(200, "100"), [swap, plain]);
        assert_eq!(files(-1, "100"), [swap, plain]);
    }

    #[test]
    fn version_2_writes_max_for_no_limit() {
        let limits = Limits { cpu_quota: Some(-1), pids: Some(-1), memory: Some(5), ..Limits::default() };
        let files = writes(&limits, Version::Two, &[], |_| Some(String::new()));
        let expect = [("cpu.max", "max 100000"), ("memory.max", "5"), ("pids.max", "max")];
        assert_eq!(files, expect.map(|(f, v)| (f.to_owned(), v.to_owned())));
    }

    #[test]
    fn on_version_2_swap_is_what_is_allowed_beyond_the_memory_limit() {
        for (memory, both, there, expected) in [
            (Some(100), Some(100), true, Some("0")),
            (Some(100), Some(150), true, Some("50")),
            (Some(100), Some(-1), true, Some("max")),
            (Some(100), Some(150), false, None),
            (Some(100), None, true, None),
        ] {
            let limits = Limits { memory, memory_and_swap: both, ..Limits::default() };
            let files = writes(&limits, Version::Two, &[], |_| there.then(String::new));
            let swap = files.iter().find(|(file, _)| file == "memory.swap.max");
            assert_eq!(swap.map(|(_, value)| value.as_str()), expected, "{memory:?} {both:?}");
        }
    }

    #[test]
    fn huge_pages_are_limited_where_the_kernel_counts_them() {
        let huge_pages = BTreeMap::from([("2MB".to_owned(), 4 << 20), ("16GB".to_owned(), 0)]);
        let limits = Limits { huge_pages, ..Limits::default() };
        let current = |file: &str| (!file.contains("16GB")).then(String::new);
        let of = |version, controllers: &[String]| writes(&limits, version, controllers, current);
        let expect = |file: &str| vec![(file.to_owned(), "4194304".to_owned())];
        assert_eq!(of(Version::One, &["hugetlb".to_owned()]), expect("hugetlb.2MB.limit_in_bytes"));
        assert_eq!(of(Version::One, &[]), []);
        assert_eq!(of(Version::Two, &[]), expect("hugetlb.2MB.max"));
    }

    #[test]
    fn version_2_keeps_of_quota_and_period_what_is_not_said() {
        for (quota, period, expected) in [
            (Some(5000), None, "5000 20000"),
            (None, Some(50_000), "1000 50000"),
            (Some(-1), None, "max 20000"),
        ] {
            let limits = Limits { cpu_quota: quota, cpu_period: period, ..Limits::default() };
            let files = writes(&limits, Version::Two, &[], |_| Some("1000 20000\n".to_owned()));
            assert_eq!(files, [("cpu.max".to_owned(), expected.to_owned())]);
        }
    }
}
