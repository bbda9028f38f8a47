//! Which metrics there are. Names, kinds and labels are cAdvisor's, so that dashboards find what they know. Values are whole
//! numbers, as the contract has them. Pure.

use trine_contracts::cri::{Metric, MetricDescriptor, MetricType, UInt64Value};

use super::facts::{Facts, Interface, Pod, Whose};

/// The labels that every metric has.
const BASE: [&str; 6] = ["container", "id", "image", "name", "namespace", "pod"];
/// ns in a second.
const SECOND: u64 = 1_000_000_000;
/// µs in a second.
const MICROS: u64 = 1_000_000;

use MetricType::{Counter, Gauge};

/// Values, each with those of the labels behind [`BASE`].
type Values = Vec<(Vec<String>, u64)>;

/// One metric of `T`.
struct Described<T: 'static> {
    name: &'static str,
    help: &'static str,
    kind: MetricType,
    labels: &'static [&'static str],
    of: fn(&T) -> Values,
}

/// What [`of_pod`] and [`of_container`] give.
pub(in crate::service) fn descriptors() -> Vec<MetricDescriptor> {
    POD.iter().map(descriptor).chain(CONTAINER.iter().map(descriptor)).collect()
}

pub(super) fn of_pod(pod: &Pod) -> Vec<Metric> {
    POD.iter().flat_map(|described| metrics(described, pod, &pod.whose, pod.at)).collect()
}

pub(super) fn of_container(facts: &Facts) -> Vec<Metric> {
    CONTAINER.iter().flat_map(|described| metrics(described, facts, &facts.whose, facts.at)).collect()
}

fn descriptor<T>(described: &Described<T>) -> MetricDescriptor {
    MetricDescriptor {
        name: described.name.to_owned(),
        help: described.help.to_owned(),
        label_keys: BASE.iter().chain(described.labels).map(|key| (*key).to_owned()).collect(),
    }
}

fn metrics<T>(described: &Described<T>, of: &T, whose: &Whose, at: i64) -> Vec<Metric> {
    let base = [&whose.container, &whose.group, &whose.image, &whose.id, &whose.namespace, &whose.pod];
    let metric = |(labels, value): (Vec<String>, u64)| Metric {
        name: described.name.to_owned(),
        timestamp: at,
        metric_type: described.kind as i32,
        label_values: base.iter().map(|value| (*value).clone()).chain(labels).collect(),
        value: Some(UInt64Value { value }),
    };
    (described.of)(of).into_iter().map(metric).collect()
}

fn one(value: u64) -> Values {
    vec![(Vec::new(), value)]
}

fn each_interface(pod: &Pod, value: fn(&Interface) -> u64) -> Values {
    pod.interfaces.iter().map(|interface| (vec![interface.name.clone()], value(interface))).collect()
}

const fn plain(
    name: &'static str,
    help: &'static str,
    kind: MetricType,
    of: fn(&Facts) -> Values,
) -> Described<Facts> {
    Described { name, help, kind, labels: &[], of }
}

const fn traffic(name: &'static str, help: &'static str, of: fn(&Pod) -> Values) -> Described<Pod> {
    Described { name, help, kind: Counter, labels: &["interface"], of }
}

/// How long tasks waited for `what` (CPU, memory, input and output), s: some of them or all.
fn waited(facts: &Facts, what: usize, all: bool) -> Values {
    let pressure = facts.detail.pressure[what];
    pressure.map(|p| (if all { p.full } else { p.some }) / MICROS).map_or_else(Vec::new, one)
}

fn positive(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

static POD: &[Described<Pod>] = &[
    traffic("container_network_receive_bytes_total", "Bytes received", |p| {
        each_interface(p, |i| i.received.bytes)
    }),
    traffic("container_network_receive_packets_total", "Packets received", |p| {
        each_interface(p, |i| i.received.packets)
    }),
    traffic("container_network_receive_packets_dropped_total", "Packets dropped on reception", |p| {
        each_interface(p, |i| i.received.dropped)
    }),
    traffic("container_network_receive_errors_total", "Errors on reception", |p| {
        each_interface(p, |i| i.received.errors)
    }),
    traffic("container_network_transmit_bytes_total", "Bytes sent", |p| each_interface(p, |i| i.sent.bytes)),
    traffic("container_network_transmit_packets_total", "Packets sent", |p| {
        each_interface(p, |i| i.sent.packets)
    }),
    traffic("container_network_transmit_packets_dropped_total", "Packets dropped on sending", |p| {
        each_interface(p, |i| i.sent.dropped)
    }),
    traffic("container_network_transmit_errors_total", "Errors on sending", |p| {
        each_interface(p, |i| i.sent.errors)
    }),
];

static CONTAINER: &[Described<Facts>] = &[
    Described {
        name: "container_blkio_device_usage_total",
        help: "Bytes that went to and from a block device",
        kind: Counter,
        labels: &["device", "operation"],
        of: |f| {
            let devices = f.detail.devices.iter();
            devices
                .flat_map(|d| [("Read", d.read_bytes), ("Write", d.written_bytes)].map(|(o, n)| (d, o, n)))
                .map(|(device, operation, bytes)| (vec![device.device.clone(), operation.to_owned()], bytes))
                .collect()
        },
    },
    plain("container_cpu_cfs_periods_total", "Periods of the CPU quota that have passed", Counter, |f| {
        one(f.detail.throttled.periods)
    }),
    plain(
        "container_cpu_cfs_throttled_periods_total",
        "Periods in which the CPU quota was used up",
        Counter,
        |f| one(f.detail.throttled.throttled),
    ),
    plain(
        "container_cpu_cfs_throttled_seconds_total",
        "Time stood still for want of CPU quota, s",
        Counter,
        |f| one(f.detail.throttled.time / SECOND),
    ),
    plain("container_cpu_system_seconds_total", "CPU time of the kernel, s", Counter, |f| {
        one(f.detail.system / SECOND)
    }),
    Described {
        name: "container_cpu_usage_seconds_total",
        help: "CPU time, s",
        kind: Counter,
        labels: &["cpu"],
        of: |f| vec![(vec!["total".to_owned()], f.detail.usage.cpu / SECOND)],
    },
    plain("container_cpu_user_seconds_total", "CPU time of the programs, s", Counter, |f| {
        one(f.detail.user / SECOND)
    }),
    plain("container_file_descriptors", "Open file descriptors", Gauge, |f| one(f.processes.descriptors)),
    plain("container_fs_inodes_free", "Inodes left on the file system", Gauge, |f| one(f.space.2)),
    plain("container_fs_inodes_total", "Inodes of the file system", Gauge, |f| one(f.space.1)),
    plain("container_fs_limit_bytes", "Size of the file system, bytes", Gauge, |f| one(f.space.0)),
    plain("container_fs_usage_bytes", "What the container wrote, bytes", Gauge, |f| one(f.written)),
    plain("container_fs_reads_bytes_total", "Bytes read from block devices", Counter, |f| {
        one(f.detail.devices.iter().map(|d| d.read_bytes).sum())
    }),
    plain("container_fs_reads_total", "Reads from block devices", Counter, |f| {
        one(f.detail.devices.iter().map(|d| d.reads).sum())
    }),
    plain("container_fs_writes_bytes_total", "Bytes written to block devices", Counter, |f| {
        one(f.detail.devices.iter().map(|d| d.written_bytes).sum())
    }),
    plain("container_fs_writes_total", "Writes to block devices", Counter, |f| {
        one(f.detail.devices.iter().map(|d| d.writes).sum())
    }),
    Described {
        name: "container_hugetlb_usage_bytes",
        help: "Huge pages used, bytes",
        kind: Gauge,
        labels: &["pagesize"],
        of: |f| f.detail.huge_pages.iter().map(|pages| (vec![pages.size.clone()], pages.usage)).collect(),
    },
    Described {
        name: "container_hugetlb_max_usage_bytes",
        help: "The most huge pages that were ever used, bytes",
        kind: Gauge,
        labels: &["pagesize"],
        of: |f| f.detail.huge_pages.iter().map(|pages| (vec![pages.size.clone()], pages.max_usage)).collect(),
    },
    plain("container_last_seen", "When these figures were read, s since 1970", Gauge, |f| {
        one(positive(f.at) / SECOND)
    }),
    plain("container_memory_cache", "Memory of files, bytes", Gauge, |f| one(f.detail.memory.cache)),
    plain("container_memory_failcnt", "How often memory met its limit", Counter, |f| {
        one(f.detail.memory.limit_hits)
    }),
    Described {
        name: "container_memory_failures_total",
        help: "Page faults",
        kind: Counter,
        labels: &["failure_type", "scope"],
        of: |f| {
            let memory = &f.detail.usage.memory;
            let kinds = [("pgfault", memory.faults), ("pgmajfault", memory.major_faults)];
            let scopes = ["container", "hierarchy"];
            kinds
                .iter()
                .flat_map(|(kind, count)| {
                    scopes.map(|scope| (vec![(*kind).to_owned(), scope.to_owned()], *count))
                })
                .collect()
        },
    },
    plain("container_memory_kernel_usage", "Memory of the kernel for the container, bytes", Gauge, |f| {
        one(f.detail.memory.kernel)
    }),
    plain("container_memory_mapped_file", "Memory of mapped files, bytes", Gauge, |f| {
        one(f.detail.memory.mapped)
    }),
    plain("container_memory_max_usage_bytes", "The most memory that was ever used, bytes", Gauge, |f| {
        one(f.detail.memory.max_usage)
    }),
    plain("container_memory_rss", "Anonymous memory, bytes", Gauge, |f| one(f.detail.usage.memory.rss)),
    plain("container_memory_swap", "Memory swapped out, bytes", Gauge, |f| one(f.detail.memory.swap)),
    plain("container_memory_usage_bytes", "Memory, cache included, bytes", Gauge, |f| {
        one(f.detail.usage.memory.usage)
    }),
    plain(
        "container_memory_working_set_bytes",
        "Memory without cache that could go at once, bytes",
        Gauge,
        |f| one(f.detail.usage.memory.working_set),
    ),
    plain("container_oom_events_total", "Processes killed for want of memory", Counter, |f| one(f.oom_kills)),
    plain("container_pressure_cpu_stalled_seconds_total", "All tasks waited for CPU, s", Counter, |f| {
        waited(f, 0, true)
    }),
    plain("container_pressure_cpu_waiting_seconds_total", "Some task waited for CPU, s", Counter, |f| {
        waited(f, 0, false)
    }),
    plain(
        "container_pressure_memory_stalled_seconds_total",
        "All tasks waited for memory, s",
        Counter,
        |f| waited(f, 1, true),
    ),
    plain(
        "container_pressure_memory_waiting_seconds_total",
        "Some task waited for memory, s",
        Counter,
        |f| waited(f, 1, false),
    ),
    plain(
        "container_pressure_io_stalled_seconds_total",
        "All tasks waited for input or output, s",
        Counter,
        |f| waited(f, 2, true),
    ),
    plain(
        "container_pressure_io_waiting_seconds_total",
        "Some task waited for input or output, s",
        Counter,
        |f| waited(f, 2, false),
    ),
    plain("container_processes", "Processes", Gauge, |f| one(f.processes.count)),
    plain("container_sockets", "Open sockets", Gauge, |f| one(f.processes.sockets)),
    plain("container_spec_cpu_period", "Period of the CPU quota, µs", Gauge, |f| {
        one(positive(f.resources.cpu_period))
    }),
    plain("container_spec_cpu_quota", "CPU quota, µs in a period", Gauge, |f| {
        let quota = positive(f.resources.cpu_quota);
        if quota > 0 { one(quota) } else { Vec::new() }
    }),
    plain("container_spec_cpu_shares", "CPU shares", Gauge, |f| one(positive(f.resources.cpu_shares))),
    plain("container_spec_memory_limit_bytes", "Limit of memory, bytes; 0 is none", Gauge, |f| {
        one(positive(f.resources.memory_limit_in_bytes))
    }),
    plain("container_spec_memory_reservation_limit_bytes", "Reserved memory, bytes; 0 is none", Gauge, |f| {
        let low = f.resources.unified.get("memory.low").and_then(|low| low.parse().ok());
        one(low.unwrap_or(0))
    }),
    plain(
        "container_spec_memory_swap_limit_bytes",
        "Limit of memory and swap, bytes; 0 is none",
        Gauge,
        |f| one(positive(f.resources.memory_swap_limit_in_bytes)),
    ),
    plain("container_start_time_seconds", "When it was started, s since 1970", Gauge, |f| {
        one(positive(f.started_at) / SECOND)
    }),
    plain("container_threads", "Threads", Gauge, |f| one(f.processes.threads)),
    plain("container_threads_max", "Threads that there may be; 0 is no limit", Gauge, |f| {
        one(f.detail.tasks_max.unwrap_or(0))
    }),
    Described {
        name: "container_ulimits_soft",
        help: "Soft limits of the first process",
        kind: Gauge,
        labels: &["ulimit"],
        of: |f| {
            f.processes
                .open_files
                .map(|files| (vec!["max_open_files".to_owned()], files))
                .into_iter()
                .collect()
        },
    },
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use trine_kernel::cgroup::{Detail, DeviceUse, HugePages, Pressure};

    use super::super::facts::Processes;
    use super::*;

    #[test]
    fn every_metric_has_a_value_for_each_of_its_labels_and_is_described_once() {
        let device = DeviceUse { device: "8:0".into(), read_bytes: 7, ..DeviceUse::default() };
        let pressure = Some(Pressure { some: 3 * MICROS, full: MICROS });
        let detail = Detail {
            devices: vec![device],
            huge_pages: vec![HugePages { size: "2MB".into(), ..HugePages::default() }],
            pressure: [pressure; 3],
            ..Detail::default()
        };
        let mut facts = Facts { detail, ..Facts::default() };
        facts.processes = Processes { open_files: Some(1024), ..Processes::default() };
        facts.resources.cpu_quota = 20_000;
        let pod = Pod {
            interfaces: vec![Interface { name: "eth0".into(), ..Interface::default() }],
            ..Pod::default()
        };
        let metrics: Vec<Metric> = of_pod(&pod).into_iter().chain(of_container(&facts)).collect();
        let descriptors = descriptors();
        for metric in &metrics {
            let of: Vec<_> = descriptors.iter().filter(|d| d.name == metric.name).collect();
            assert_eq!(of.len(), 1, "{}", metric.name);
            assert_eq!(of[0].label_keys.len(), metric.label_values.len(), "{}", metric.name);
        }
        let named: BTreeSet<&str> = metrics.iter().map(|metric| metric.name.as_str()).collect();
        let missing: Vec<_> = descriptors.iter().filter(|d| !named.contains(d.name.as_str())).collect();
        assert!(missing.is_empty(), "{missing:?}");
        let stalled = metrics.iter().find(|m| m.name == "container_pressure_memory_stalled_seconds_total");
        assert_eq!(stalled.and_then(|m| m.value), Some(UInt64Value { value: 1 }));
    }

    #[test]
    fn what_the_kernel_does_not_tell_has_no_value() {
        let names: Vec<String> = of_container(&Facts::default()).into_iter().map(|m| m.name).collect();
        for absent in [
            "container_pressure_cpu_waiting_seconds_total",
            "container_spec_cpu_quota",
            "container_ulimits_soft",
        ] {
            assert!(!names.iter().any(|name| name == absent), "{absent}");
        }
    }
}
