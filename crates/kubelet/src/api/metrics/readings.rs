//! What the runtime and the kernel say, as numbers.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use trine_contracts::cri;
use trine_kernel::filesystem;

use crate::api::server::Server;
use crate::error::KubeletError;
use crate::eviction::usage::{PodUse, measure};
use crate::node::machine::meminfo_field;
use crate::pod::spec;
use crate::runtime::labels;
use crate::volumes::model::MountedClaim;

/// Ticks of `/proc/stat` in a second (`USER_HZ`, the same on all architectures that there are).
const TICKS: u64 = 100;
/// How long the file systems of volumes may take to answer.
const VOLUMES: Duration = Duration::from_secs(5);

/// One container that runs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ContainerReading {
    /// Name in its Pod.
    pub name: String,
    /// The Pod's name.
    pub pod: String,
    /// The Pod's namespace.
    pub namespace: String,
    /// The Pod's UID.
    pub uid: String,
    /// The runtime's id.
    pub id: String,
    /// The image that was asked for.
    pub image: String,
    /// Creation, nanoseconds since the epoch.
    pub created: i64,
    /// Processor time, nanoseconds.
    pub cpu: u64,
    /// Memory that cannot be taken back easily, bytes.
    pub working_set: u64,
    /// All memory, bytes.
    pub usage: u64,
    /// Memory of its processes alone, bytes.
    pub rss: u64,
    /// Page faults, and those that needed the disk.
    pub faults: (u64, u64),
}

/// The node as a whole.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeReading {
    /// Processor time that was not idle, nanoseconds.
    pub cpu: u64,
    /// Memory, bytes.
    pub memory: u64,
    /// Memory that could be given away, bytes.
    pub available: u64,
    /// When it was started, seconds since the epoch.
    pub booted: u64,
    /// The root folder's file system.
    pub disk: Option<filesystem::Usage>,
}

/// A volume of a claim, and the room in it.
#[derive(Debug, Clone, PartialEq)]
pub struct VolumeReading {
    /// Whose it is.
    pub claim: MountedClaim,
    /// The room.
    pub room: filesystem::Usage,
}

/// All of it, at one time.
#[derive(Debug, Clone, Default)]
pub struct Readings {
    /// When.
    pub at: Timestamp,
    /// The node.
    pub node: NodeReading,
    /// Its containers, by Pod and name.
    pub containers: Vec<ContainerReading>,
    /// What the Pods have on the node's own disk, by their UIDs; only [`read`] walks over it.
    pub files: BTreeMap<String, PodUse>,
    /// Volumes that are mounted.
    pub volumes: Vec<VolumeReading>,
}

impl Readings {
    /// The containers of each Pod, by its UID.
    #[must_use]
    pub fn pods(&self) -> BTreeMap<&str, Vec<&ContainerReading>> {
        let mut pods: BTreeMap<&str, Vec<&ContainerReading>> = BTreeMap::new();
        for container in &self.containers {
            pods.entry(&container.uid).or_default().push(container);
        }
        pods
    }
}

/// Reads all. It walks over what Pods wrote.
///
/// # Errors
/// [`KubeletError::Cri`].
pub async fn read(server: &Server) -> Result<Readings, KubeletError> {
    let stats = server.runtime.container_stats().await?;
    let containers = containers(server, &stats).await?;
    let (config, pods) = (server.config.clone(), server.pods.all());
    let files = tokio::task::spawn_blocking(move || measure(&config, pods, &stats)).await.unwrap_or_default();
    let files = files.into_iter().map(|used| (spec::uid(&used.pod).to_owned(), used)).collect();
    Ok(Readings { containers, files, volumes: volumes(server).await, ..of_node(server) })
}

/// What the node and its containers use, without a look at the volumes.
///
/// # Errors
/// [`KubeletError::Cri`].
pub async fn usage(server: &Server) -> Result<Readings, KubeletError> {
    let stats = server.runtime.container_stats().await?;
    Ok(Readings { containers: containers(server, &stats).await?, ..of_node(server) })
}

/// The node and the room in volumes, without a look at the containers.
pub async fn rooms(server: &Server) -> Readings {
    Readings { volumes: volumes(server).await, ..of_node(server) }
}

fn of_node(server: &Server) -> Readings {
    Readings { at: Timestamp::now(), node: node(server), ..Readings::default() }
}

async fn containers(
    server: &Server,
    stats: &[cri::ContainerStats],
) -> Result<Vec<ContainerReading>, KubeletError> {
    let list = server.runtime.containers(None).await?;
    let listed: BTreeMap<&str, &cri::Container> = list.iter().map(|c| (c.id.as_str(), c)).collect();
    let mut containers: Vec<_> = stats.iter().filter_map(|stat| container(stat, &listed)).collect();
    containers.sort_by(|a, b| {
        (&a.namespace, &a.pod, &a.uid, &a.name).cmp(&(&b.namespace, &b.pod, &b.uid, &b.name))
    });
    Ok(containers)
}

fn node(server: &Server) -> NodeReading {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let (meminfo, stat) = (read("/proc/meminfo"), read("/proc/stat"));
    NodeReading {
        cpu: busy(&stat) * (1_000_000_000 / TICKS),
        memory: meminfo_field(&meminfo, "MemTotal:"),
        available: meminfo_field(&meminfo, "MemAvailable:"),
        booted: field(&stat, "btime"),
        disk: filesystem::usage(&server.config.root).ok(),
    }
}

/// A field of `/proc/stat` that is one number.
fn field(stat: &str, name: &str) -> u64 {
    let line = stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|rest| rest.trim().parse().ok()).unwrap_or_default()
}

/// Ticks of all processors that were not idle.
fn busy(stat: &str) -> u64 {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "));
    let ticks: Vec<u64> =
        line.into_iter().flat_map(str::split_whitespace).filter_map(|n| n.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal; guests are in user already.
    ticks.iter().take(8).enumerate().filter(|(i, _)| !matches!(i, 3 | 4)).map(|(_, n)| n).sum()
}

fn container(
    stat: &cri::ContainerStats,
    listed: &BTreeMap<&str, &cri::Container>,
) -> Option<ContainerReading> {
    let attributes = stat.attributes.as_ref()?;
    let get = |key: &str| attributes.labels.get(key).cloned().unwrap_or_default();
    let number = |value: Option<&cri::UInt64Value>| value.map(|v| v.value).unwrap_or_default();
    let (cpu, memory) = (stat.cpu.as_ref(), stat.memory.as_ref());
    let listed = listed.get(attributes.id.as_str());
    let image = listed.and_then(|c| c.image.as_ref());
    Some(ContainerReading {
        name: attributes.metadata.as_ref().map(|m| m.name.clone()).unwrap_or_default(),
        pod: get(labels::POD_NAME),
        namespace: get(labels::POD_NAMESPACE),
        uid: get(labels::POD_UID),
        id: attributes.id.clone(),
        image: image
            .map(|i| {
                if i.user_specified_image.is_empty() { &i.image } else { &i.user_specified_image }.clone()
            })
            .unwrap_or_default(),
        created: listed.map(|c| c.created_at).unwrap_or_default(),
        cpu: number(cpu.and_then(|c| c.usage_core_nano_seconds.as_ref())),
        working_set: number(memory.and_then(|m| m.working_set_bytes.as_ref())),
        usage: number(memory.and_then(|m| m.usage_bytes.as_ref())),
        rss: number(memory.and_then(|m| m.rss_bytes.as_ref())),
        faults: (
            number(memory.and_then(|m| m.page_faults.as_ref())),
            number(memory.and_then(|m| m.major_page_faults.as_ref())),
        ),
    })
}

/// The room in mounted volumes; one whose file system does not answer is left out, and holds up the rest no longer than that.
async fn volumes(server: &Server) -> Vec<VolumeReading> {
    let look = |claim: MountedClaim| async {
        let room = tokio::task::spawn_blocking(move || {
            let room = filesystem::usage(&claim.path).ok()?;
            Some(VolumeReading { claim, room })
        });
        tokio::time::timeout(VOLUMES, room).await.ok()?.ok()?
    };
    let looks = server.volumes.mounted_claims().into_iter().filter(|claim| !claim.resolved.block).map(look);
    futures::future::join_all(looks).await.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_is_not_counted() {
        let stat = "cpu  10 20 30 1000 2000 1 2 3 4 5\ncpu0 1 1 1 1\nbtime 1700000000\n";
        assert_eq!((busy(stat), field(stat, "btime")), (66, 1_700_000_000));
        assert_eq!((busy(""), field("", "btime")), (0, 0));
    }
}
