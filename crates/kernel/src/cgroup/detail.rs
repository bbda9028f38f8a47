//! All that a group's files say, for those who keep metrics.

use std::path::Path;

use super::usage::{self, Usage, first, number, value_of};

/// What a group uses and has been denied, from whichever files are there; what is not told is zero.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Detail {
    /// The figures that are asked for most.
    pub usage: Usage,
    /// CPU time by where it went, ns.
    pub user: u64,
    /// The kernel's part of it, ns.
    pub system: u64,
    /// How the group was held to its CPU quota.
    pub throttled: Throttled,
    /// More of its memory.
    pub memory: MemoryDetail,
    /// How many processes and threads there may be; none if there is no limit.
    pub tasks_max: Option<u64>,
    /// What was read and written, device by device.
    pub devices: Vec<DeviceUse>,
    /// Huge pages, size by size.
    pub huge_pages: Vec<HugePages>,
    /// How long it waited for something: CPU, memory, input and output. None where the kernel does not tell.
    pub pressure: [Option<Pressure>; 3],
}

/// Periods of a CPU quota.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Throttled {
    /// All that have passed.
    pub periods: u64,
    /// Those in which the quota was used up.
    pub throttled: u64,
    /// How long it stood still for that, ns.
    pub time: u64,
}

/// Memory, bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryDetail {
    /// Of files.
    pub cache: u64,
    /// Of files, mapped by processes.
    pub mapped: u64,
    /// The kernel's own for the group.
    pub kernel: u64,
    /// Swapped out.
    pub swap: u64,
    /// The most that it ever was.
    pub max_usage: u64,
    /// How often it met its limit.
    pub limit_hits: u64,
}

/// One block device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceUse {
    /// `MAJOR:MINOR`
    pub device: String,
    /// Requests that read.
    pub reads: u64,
    /// Requests that wrote.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

/// Huge pages of one size, bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HugePages {
    /// As the kernel writes it: `2MB`.
    pub size: String,
    /// Used now.
    pub usage: u64,
    /// The most that it ever was.
    pub max_usage: u64,
}

/// How long tasks waited, µs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pressure {
    /// At least one of them.
    pub some: u64,
    /// All of them.
    pub full: u64,
}

/// Clock ticks of `cpuacct.stat`, ns each: the kernel tells them a hundred to the second.
const TICK: u64 = 10_000_000;

pub(super) fn read(folders: &[&Path]) -> Detail {
    let [acct, cpu, memory] =
        ["cpuacct.stat", "cpu.stat", "memory.stat"].map(|file| first(folders, file).unwrap_or_default());
    let stat = |names: [&str; 2]| names.iter().find_map(|name| value_of(&memory, name));
    let of_cpu = |name: &str| value_of(&cpu, name);
    let ticks = |name: &str| value_of(&acct, name).map(|ticks| ticks * TICK);
    let micros = |name: &str| of_cpu(name).map(|micros| micros * 1000);
    let number = |file: &str| number(folders, file);
    let or_zero = |value: Option<u64>| value.unwrap_or(0);
    Detail {
        usage: usage::read(folders),
        user: or_zero(ticks("user").or_else(|| micros("user_usec"))),
        system: or_zero(ticks("system").or_else(|| micros("system_usec"))),
        throttled: Throttled {
            periods: or_zero(of_cpu("nr_periods")),
            throttled: or_zero(of_cpu("nr_throttled")),
            time: or_zero(of_cpu("throttled_time").or_else(|| micros("throttled_usec"))),
        },
        memory: MemoryDetail {
            cache: or_zero(stat(["total_cache", "file"])),
            mapped: or_zero(stat(["total_mapped_file", "file_mapped"])),
            kernel: or_zero(number("memory.kmem.usage_in_bytes").or_else(|| value_of(&memory, "kernel"))),
            swap: or_zero(value_of(&memory, "total_swap").or_else(|| number("memory.swap.current"))),
            max_usage: or_zero(number("memory.max_usage_in_bytes").or_else(|| number("memory.peak"))),
            limit_hits: or_zero(
                number("memory.failcnt").or_else(|| value_of(&first(folders, "memory.events")?, "max")),
            ),
        },
        tasks_max: number("pids.max"),
        devices: devices(
            &first(folders, "io.stat").unwrap_or_default(),
            &first(folders, "blkio.throttle.io_serviced_recursive").unwrap_or_default(),
            &first(folders, "blkio.throttle.io_service_bytes_recursive").unwrap_or_default(),
        ),
        huge_pages: folders.iter().flat_map(|folder| huge_pages(folder)).collect(),
        pressure: ["cpu", "memory", "io"]
            .map(|what| first(folders, &format!("{what}.pressure")).map(|text| pressure(&text))),
    }
}

/// `io.stat` has a line for each device, version 1's files one for each device and direction.
fn devices(io_stat: &str, serviced: &str, bytes: &str) -> Vec<DeviceUse> {
    let mut devices: Vec<DeviceUse> = Vec::new();
    let mut of = |device: &str, change: &dyn Fn(&mut DeviceUse)| {
        let at = devices.iter().position(|known| known.device == device).unwrap_or_else(|| {
            devices.push(DeviceUse { device: device.to_owned(), ..DeviceUse::default() });
            devices.len() - 1
        });
        change(&mut devices[at]);
    };
    for line in io_stat.lines() {
        let mut words = line.split_whitespace();
        let Some(device) = words.next() else { continue };
        for (name, value) in words.filter_map(|word| word.split_once('=')) {
            let value = value.parse().unwrap_or(0);
            of(device, &|known| match name {
                "rbytes" => known.read_bytes = value,
                "wbytes" => known.written_bytes = value,
                "rios" => known.reads = value,
                "wios" => known.writes = value,
                _ => {}
            });
        }
    }
    for (text, counts_bytes) in [(serviced, false), (bytes, true)] {
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [device, direction, value] = words[..] else { continue };
            let value = value.parse().unwrap_or(0);
            of(device, &|known| match (direction, counts_bytes) {
                ("Read", false) => known.reads = value,
                ("Write", false) => known.writes = value,
                ("Read", true) => known.read_bytes = value,
                ("Write", true) => known.written_bytes = value,
                _ => {}
            });
        }
    }
    devices
}

/// `hugetlb.2MB.current` and `.max`'s count of version 2, `.usage_in_bytes` and `.max_usage_in_bytes` of version 1.
fn huge_pages(folder: &Path) -> Vec<HugePages> {
    let number = |name: String| {
        std::fs::read_to_string(folder.join(name)).ok().and_then(|text| text.trim().parse().ok())
    };
    let names = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    let mut sizes: Vec<String> = names
        .filter_map(|name| {
            let (size, what) = name.strip_prefix("hugetlb.")?.split_once('.')?;
            ["current", "usage_in_bytes"].contains(&what).then(|| size.to_owned())
        })
        .collect();
    sizes.sort();
    sizes
        .into_iter()
        .map(|size| HugePages {
            usage: number(format!("hugetlb.{size}.usage_in_bytes"))
                .or_else(|| number(format!("hugetlb.{size}.current")))
                .unwrap_or(0),
            max_usage: number(format!("hugetlb.{size}.max_usage_in_bytes")).unwrap_or(0),
            size,
        })
        .collect()
}

fn pressure(text: &str) -> Pressure {
    let total = |kind: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(kind))?;
        line.split_whitespace().find_map(|word| word.strip_prefix("total="))?.parse().ok()
    };
    Pressure { some: total("some ").unwrap_or(0), full: total("full ").unwrap_or(0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(files: &[(&str, &str)]) -> Detail {
        let dir = tempfile::tempdir().unwrap();
        for (file, text) in files {
            std::fs::write(dir.path().join(file), text).unwrap();
        }
        read(&[dir.path()])
    }

    #[test]
    fn both_versions_say_the_same_by_other_names() {
        let one = group(&[
            ("cpuacct.stat", "user 3\nsystem 2\n"),
            ("cpu.stat", "nr_periods 10\nnr_throttled 4\nthrottled_time 7000\n"),
            ("memory.stat", "cache 1\ntotal_cache 50\ntotal_mapped_file 20\ntotal_swap 9\n"),
            ("memory.kmem.usage_in_bytes", "11\n"),
            ("memory.max_usage_in_bytes", "900\n"),
            ("memory.failcnt", "5\n"),
            ("pids.max", "64\n"),
            ("blkio.throttle.io_serviced_recursive", "8:0 Read 1\n8:0 Write 2\n8:0 Sync 3\nTotal 3\n"),
            ("blkio.throttle.io_service_bytes_recursive", "8:0 Read 4096\n8:0 Write 8192\nTotal 12288\n"),
            ("hugetlb.2MB.usage_in_bytes", "0\n"),
        ]);
        let two = group(&[
            (
                "cpu.stat",
                "user_usec 30000\nsystem_usec 20000\nnr_periods 10\nnr_throttled 4\nthrottled_usec 7\n",
            ),
            ("memory.stat", "file 50\nfile_mapped 20\nkernel 11\n"),
            ("memory.swap.current", "9\n"),
            ("memory.peak", "900\n"),
            ("memory.events", "low 0\nmax 5\n"),
            ("pids.max", "64\n"),
            ("io.stat", "8:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0\n"),
            ("hugetlb.2MB.current", "0\n"),
        ]);
        assert_eq!(one, two);
        assert_eq!((one.user, one.system, one.throttled.time), (30_000_000, 20_000_000, 7000));
        let device = &one.devices[0];
        assert_eq!(
            (device.reads, device.writes, device.read_bytes, device.written_bytes),
            (1, 2, 4096, 8192)
        );
        assert_eq!(one.huge_pages[0].size, "2MB");
    }

    #[test]
    fn waiting_is_told_in_all_and_no_limit_is_none() {
        let detail = group(&[
            ("memory.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=12\nfull avg10=0.00 total=3\n"),
            ("pids.max", "max\n"),
        ]);
        assert_eq!(detail.pressure, [None, Some(Pressure { some: 12, full: 3 }), None]);
        assert_eq!(detail.tasks_max, None);
    }
}
