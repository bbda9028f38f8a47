//! Which numbers go under which names. Pure. Sources: upstream's `pkg/kubelet/metrics`, its `collectors/resource_metrics.go`,
//! and cAdvisor's `metrics/prometheus.go`.

use std::collections::BTreeMap;

use trine_kernel::filesystem::Usage;

use super::readings::{ContainerReading, Readings};
use super::text::{Kind, Text};
use crate::probes::Counts;
use crate::resize::Numbers;

/// Microseconds of a scheduling period.
const PERIOD: f64 = 100_000.0;

#[allow(clippy::cast_precision_loss, reason = "the form knows nothing but floating point")]
fn float(value: u64) -> f64 {
    value as f64
}

fn seconds(nanos: u64) -> f64 {
    float(nanos) / 1e9
}

fn created(container: &ContainerReading) -> f64 {
    seconds(u64::try_from(container.created).unwrap_or_default())
}

/// `/metrics/resource`: what the node, its Pods and its containers use.
#[must_use]
pub fn resource(readings: &Readings) -> String {
    let mut text = Text::default();
    let one = |value: f64| [([], value)];
    let node = &readings.node;
    let all = &readings.containers;
    fn of(c: &ContainerReading) -> [(&str, &str); 3] {
        [("container", &c.name), ("namespace", &c.namespace), ("pod", &c.pod)]
    }
    let pods = readings.pods();
    let sums = |value: fn(&ContainerReading) -> u64| {
        pods.values().filter_map(move |containers| {
            let first = containers.first()?;
            let labels = [("namespace", first.namespace.as_str()), ("pod", first.pod.as_str())];
            Some((labels, containers.iter().map(|c| value(c)).sum::<u64>()))
        })
    };
    text.family(
        "container_cpu_usage_seconds_total",
        "[STABLE] Cumulative cpu time consumed by the container in core-seconds",
        Kind::Counter,
        all.iter().map(|c| (of(c), seconds(c.cpu))),
    );
    text.family(
        "container_memory_working_set_bytes",
        "[STABLE] Current working set of the container in bytes",
        Kind::Gauge,
        all.iter().map(|c| (of(c), float(c.working_set))),
    );
    text.family(
        "container_start_time_seconds",
        "[STABLE] Start time of the container since unix epoch in seconds",
        Kind::Gauge,
        all.iter().map(|c| (of(c), created(c))),
    );
    text.family(
        "node_cpu_usage_seconds_total",
        "[STABLE] Cumulative cpu time consumed by the node in core-seconds",
        Kind::Counter,
        one(seconds(node.cpu)),
    );
    text.family(
        "node_memory_working_set_bytes",
        "[STABLE] Current working set of the node in bytes",
        Kind::Gauge,
        one(float(node.memory.saturating_sub(node.available))),
    );
    text.family(
        "pod_cpu_usage_seconds_total",
        "[STABLE] Cumulative cpu time consumed by the pod in core-seconds",
        Kind::Counter,
        sums(|c| c.cpu).map(|(labels, sum)| (labels, seconds(sum))),
    );
    text.family(
        "pod_memory_working_set_bytes",
        "[STABLE] Current working set of the pod in bytes",
        Kind::Gauge,
        sums(|c| c.working_set).map(|(labels, sum)| (labels, float(sum))),
    );
    text.family(
        "resource_scrape_error",
        "[STABLE] 1 if there was an error while getting container metrics, 0 otherwise",
        Kind::Gauge,
        one(0.0),
    );
    text.finish()
}

/// `/metrics/cadvisor`: the same in cAdvisor's names, with limits. `numbers` are the limits by Pod UID and container.
#[must_use]
pub fn cadvisor(readings: &Readings, numbers: &BTreeMap<(String, String), Numbers>, cores: u64) -> String {
    let mut text = Text::default();
    let all = &readings.containers;
    fn of(c: &ContainerReading) -> [(&str, &str); 6] {
        [
            ("container", &c.name),
            ("id", &c.id),
            ("image", &c.image),
            ("name", &c.id),
            ("namespace", &c.namespace),
            ("pod", &c.pod),
        ]
    }
    let with = |more: (&'static str, &'static str), c| of(c).into_iter().chain([more]);
    let mut gauge = |name: &str, help: &str, value: &dyn Fn(&ContainerReading) -> Option<f64>| {
        text.family(name, help, Kind::Gauge, all.iter().filter_map(|c| Some((of(c), value(c)?))));
    };
    gauge("container_last_seen", "Last time a container was seen by the exporter", &|_| {
        Some(float(u64::try_from(readings.at.as_second()).unwrap_or_default()))
    });
    gauge("container_memory_rss", "Size of RSS in bytes.", &|c| Some(float(c.rss)));
    gauge("container_memory_usage_bytes", "Current memory usage in bytes.", &|c| Some(float(c.usage)));
    gauge("container_memory_working_set_bytes", "Current working set in bytes.", &|c| {
        Some(float(c.working_set))
    });
    gauge("container_start_time_seconds", "Start time of the container since unix epoch in seconds.", &|c| {
        Some(created(c))
    });
    let limits = |c: &ContainerReading| numbers.get(&(c.uid.clone(), c.name.clone())).copied();
    let unsigned = |n: i64| float(u64::try_from(n).unwrap_or_default());
    gauge("container_spec_cpu_shares", "CPU share of the container.", &|c| {
        limits(c).map(|n| unsigned(n.cpu_shares))
    });
    gauge("container_spec_cpu_quota", "CPU quota of the container.", &|c| {
        limits(c).filter(|n| n.cpu_quota > 0).map(|n| unsigned(n.cpu_quota))
    });
    gauge("container_spec_cpu_period", "CPU period of the container.", &|c| {
        limits(c).filter(|n| n.cpu_quota > 0).map(|_| PERIOD)
    });
    gauge("container_spec_memory_limit_bytes", "Memory limit for the container.", &|c| {
        limits(c).map(|n| unsigned(n.memory))
    });
    text.family(
        "container_cpu_usage_seconds_total",
        "Cumulative cpu time consumed in seconds.",
        Kind::Counter,
        all.iter().map(|c| (with(("cpu", "total"), c), seconds(c.cpu))),
    );
    text.family(
        "container_memory_failures_total",
        "Cumulative count of memory allocation failures.",
        Kind::Counter,
        all.iter().flat_map(|c| {
            [("pgfault", c.faults.0), ("pgmajfault", c.faults.1)]
                .map(|(kind, count)| (with(("failure_type", kind), c), float(count)))
        }),
    );
    text.family("machine_cpu_cores", "Number of logical CPU cores.", Kind::Gauge, [([], float(cores))]);
    let memory = float(readings.node.memory);
    text.family(
        "machine_memory_bytes",
        "Amount of memory installed on the machine.",
        Kind::Gauge,
        [([], memory)],
    );
    text.finish()
}

/// `/metrics/probes`: how often each probe said what.
#[must_use]
pub fn probes(counts: &Counts) -> String {
    let mut text = Text::default();
    text.family(
        "prober_probe_total",
        "[BETA] Cumulative number of a liveness, readiness or startup probe for a container by result.",
        Kind::Counter,
        counts.iter().map(|(key, count)| {
            let labels = [
                ("container", key.container.as_str()),
                ("namespace", key.namespace.as_str()),
                ("pod", key.pod.as_str()),
                ("pod_uid", key.uid.as_str()),
                ("probe_type", key.kind.word()),
                ("result", key.result),
            ];
            (labels, float(*count))
        }),
    );
    text.finish()
}

/// What the kubelet says of itself.
#[derive(Debug, Clone, Default)]
pub struct Own {
    /// The node's name.
    pub node: String,
    /// The release that it speaks.
    pub version: String,
    /// Pods with a ready sandbox.
    pub running_pods: u64,
    /// Containers by state.
    pub containers: BTreeMap<&'static str, u64>,
    /// Pods that are bound here.
    pub desired_pods: u64,
    /// Processor time of this process, nanoseconds.
    pub cpu: u64,
    /// Memory of this process, bytes.
    pub resident: u64,
    /// When this process began, seconds since the epoch.
    pub started: u64,
    /// Files that it has open.
    pub files: u64,
}

/// A number of a file system.
type Room = fn(&Usage) -> u64;

/// `/metrics`: the kubelet itself, and the room in volumes.
#[must_use]
pub fn own(own: &Own, readings: &Readings) -> String {
    let mut text = Text::default();
    text.family(
        "kubernetes_build_info",
        "[ALPHA] A metric with a constant '1' value labeled by git version.",
        Kind::Gauge,
        [([("git_version", own.version.as_str())], 1.0)],
    );
    text.family(
        "kubelet_node_name",
        "[ALPHA] The node's name. The count is always 1.",
        Kind::Gauge,
        [([("node", own.node.as_str())], 1.0)],
    );
    let mut gauge =
        |name: &str, help: &str, value: u64| text.family(name, help, Kind::Gauge, [([], float(value))]);
    gauge("kubelet_running_pods", "[BETA] Number of pods that have a running pod sandbox", own.running_pods);
    gauge("kubelet_desired_pods_total", "Number of pods bound to the node", own.desired_pods);
    gauge("process_open_fds", "Number of open file descriptors.", own.files);
    gauge("process_resident_memory_bytes", "Resident memory size in bytes.", own.resident);
    gauge(
        "process_start_time_seconds",
        "Start time of the process since unix epoch in seconds.",
        own.started,
    );
    text.family(
        "kubelet_running_containers",
        "[BETA] Number of containers currently running, by state",
        Kind::Gauge,
        own.containers.iter().map(|(state, count)| ([("container_state", *state)], float(*count))),
    );
    text.family(
        "process_cpu_seconds_total",
        "Total user and system CPU time spent in seconds.",
        Kind::Counter,
        [([], seconds(own.cpu))],
    );
    let volumes = &readings.volumes;
    let families: [(&str, &str, Room); 6] = [
        ("capacity_bytes", "Capacity in bytes of the volume", |u| u.total_bytes),
        ("available_bytes", "Number of available bytes in the volume", |u| u.available_bytes),
        ("used_bytes", "Number of used bytes in the volume", |u| u.used_bytes),
        ("inodes", "Maximum number of inodes in the volume", |u| u.total_inodes),
        ("inodes_free", "Number of free inodes in the volume", |u| u.free_inodes),
        ("inodes_used", "Number of used inodes in the volume", |u| {
            u.total_inodes.saturating_sub(u.free_inodes)
        }),
    ];
    for (name, help, value) in families {
        text.family(
            &format!("kubelet_volume_stats_{name}"),
            &format!("[ALPHA] {help}"),
            Kind::Gauge,
            volumes.iter().map(|v| {
                let labels = [
                    ("namespace", v.claim.namespace.as_str()),
                    ("persistentvolumeclaim", v.claim.claim.as_str()),
                ];
                (labels, float(value(&v.room)))
            }),
        );
    }
    text.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::metrics::readings::NodeReading;

    fn container(pod: &str, name: &str, cpu: u64) -> ContainerReading {
        ContainerReading {
            name: name.into(),
            pod: pod.into(),
            namespace: "ns".into(),
            uid: format!("{pod}-uid"),
            cpu,
            working_set: 10,
            created: 5_000_000_000,
            ..ContainerReading::default()
        }
    }

    fn readings() -> Readings {
        Readings {
            node: NodeReading { cpu: 3_000_000_000, memory: 100, available: 40, ..NodeReading::default() },
            containers: vec![
                container("p", "a", 1_000_000_000),
                container("p", "b", 500_000_000),
                container("q", "a", 0),
            ],
            ..Readings::default()
        }
    }

    #[test]
    fn resources_are_told_for_containers_pods_and_the_node() {
        let text = resource(&readings());
        for line in [
            "container_cpu_usage_seconds_total{container=\"a\",namespace=\"ns\",pod=\"p\"} 1",
            "container_start_time_seconds{container=\"b\",namespace=\"ns\",pod=\"p\"} 5",
            "pod_cpu_usage_seconds_total{namespace=\"ns\",pod=\"p\"} 1.5",
            "pod_memory_working_set_bytes{namespace=\"ns\",pod=\"p\"} 20",
            "node_cpu_usage_seconds_total 3",
            "node_memory_working_set_bytes 60",
            "resource_scrape_error 0",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
    }

    #[test]
    fn cadvisor_tells_limits_where_there_are_any() {
        let numbers = Numbers { cpu_shares: 102, cpu_quota: 10_000, memory: 64 };
        let limits = BTreeMap::from([(("p-uid".to_owned(), "a".to_owned()), numbers)]);
        let text = cadvisor(&readings(), &limits, 2);
        let of = |name: &str| text.lines().filter(|l| l.starts_with(&format!("{name}{{"))).count();
        assert_eq!((of("container_spec_cpu_quota"), of("container_cpu_usage_seconds_total")), (1, 3));
        assert!(
            text.contains(",pod=\"p\",cpu=\"total\"} 0.5") && text.contains("machine_cpu_cores 2"),
            "{text}"
        );
    }
}
