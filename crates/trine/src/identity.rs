//! What is chosen once for a data dir and kept: the instance id, the ranges, the node's name. Several Trines may share
//! a machine, so ranges are probed against what the machine already routes.

use std::net::Ipv4Addr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use anyhow::Context;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use trine_kernel::netlink::Cidrs;

use crate::cli::node_args::NetworkArgs;
use crate::families::{IpFamily, Site};
use crate::layout::Layout;

/// Chosen at the first start.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Identity {
    /// Six hex digits, in every global name.
    pub instance: String,
    /// The cluster's Pod range, or one of each family with a comma between them.
    pub pod_cidr: String,
    /// The cluster's Service range, or one of each family.
    pub service_cidr: String,
    /// The node's name.
    pub node: String,
    /// The API server's port, kept so that kubeconfigs stay valid.
    pub api_port: u16,
    /// The Pod range that this node was given last, or one of each family.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_range: Option<String>,
    /// The MTU that its Pods were given last, in bytes, if it is not the kernel's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_mtu: Option<u32>,
    /// Which ways to other nodes may be taken, if somebody said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlay: Option<String>,
    /// Who computes the checksums of what goes through tunnels, if somebody said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tunnel_checksums: Option<String>,
    /// The range of the nodes on this machine, once there are several, or one of each family.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes_cidr: Option<String>,
    /// How many nodes this machine has.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub nodes: u8,
    /// Over how many links they are spread.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub node_links: u8,
}

fn one() -> u8 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
fn is_one(nodes: &u8) -> bool {
    *nodes == 1
}

/// The first port that is tried for the API server.
pub const API_PORT: u16 = 6443;
/// How many ports are tried.
const PORTS: u16 = 200;

impl Identity {
    /// Reads the identity of a data dir, or chooses one and writes it; its ranges are this process's alone.
    ///
    /// # Errors
    /// If the file is unreadable, no free range is left, or another Trine has taken this one's ranges meanwhile.
    pub fn claim(layout: &Layout) -> anyhow::Result<(Self, Vec<Reservation>)> {
        let _alone = alone(layout)?;
        let loaded = Self::load(layout)?;
        if let Some(identity) = loaded.clone().filter(|identity| !identity.pod_cidr.is_empty()) {
            let mut held = Vec::new();
            for range in [&identity.pod_cidr, &identity.service_cidr].into_iter().chain(&identity.nodes_cidr)
            {
                // That of IPv4, of which there are few; the other is drawn out of many.
                let first = range.split(',').next().unwrap_or(range);
                held.push(
                    reserve(first).with_context(|| format!("another Trine on this machine uses {range}"))?,
                );
            }
            return Ok((identity, held));
        }
        let taken = routed(&std::fs::read_to_string("/proc/net/route").unwrap_or_default());
        let pod = choose(&[244, 200, 201, 202, 203, 204, 205, 206, 207, 208], &taken);
        let service = choose(&[96, 97, 98, 99, 100, 101, 102, 103, 104, 105], &taken);
        let (pod_cidr, pods) =
            pod.context("every range that Trine tries for Pods is in use on this machine")?;
        let (service_cidr, services) =
            service.context("every range that Trine tries for Services is in use on this machine")?;
        // A plane of this data dir that needs no ranges may have been here first.
        let own = loaded.map_or_else(|| Self::new(node_name()), Ok)?;
        let identity = Self { pod_cidr, service_cidr, ..own };
        identity.save(layout)?;
        Ok((identity, vec![pods, services]))
    }

    /// The identity of a data dir for a node whose ranges are somebody else's choice, made at its first start. A node does not
    /// change its name.
    ///
    /// # Errors
    /// If the file is unreadable, or it is another node's.
    pub fn of_node(layout: &Layout, name: Option<String>) -> anyhow::Result<Self> {
        let _alone = alone(layout)?;
        if let Some(identity) = Self::load(layout)? {
            let same = name.is_none_or(|name| name == identity.node);
            anyhow::ensure!(same, "{} is node {}'s", layout.root().display(), identity.node);
            return Ok(identity);
        }
        let identity = Self::new(name.unwrap_or_else(node_name))?;
        identity.save(layout)?;
        Ok(identity)
    }

    /// A fresh instance for a node, in a cluster whose ranges are not known yet.
    ///
    /// # Errors
    /// If there are no random numbers.
    pub fn new(node: String) -> anyhow::Result<Self> {
        let mut bytes = [0u8; 3];
        getrandom::fill(&mut bytes).map_err(|e| anyhow::anyhow!("no random numbers: {e}"))?;
        Ok(Self {
            instance: hex::encode(bytes),
            pod_cidr: String::new(),
            service_cidr: String::new(),
            node,
            api_port: API_PORT,
            node_range: None,
            node_mtu: None,
            overlay: None,
            tunnel_checksums: None,
            nodes_cidr: None,
            nodes: 1,
            node_links: 1,
        })
    }

    /// Sets how many nodes this machine has, and over how many links they are spread; for several, chooses their range if there is
    /// none yet.
    ///
    /// # Errors
    /// If no range is left, or the file cannot be written.
    pub fn set_nodes(
        &mut self,
        layout: &Layout,
        nodes: u8,
        links: u8,
    ) -> anyhow::Result<Option<Reservation>> {
        let mut held = None;
        if nodes > 1 && self.nodes_cidr.is_none() {
            let taken = routed(&std::fs::read_to_string("/proc/net/route").unwrap_or_default());
            let (range, reserved) = choose(&[222, 223, 224, 225, 226, 227, 228, 229, 230, 231], &taken)
                .context("every range that Trine tries for nodes is in use on this machine")?;
            let pods: Cidrs = self.pod_cidr.parse().context("the Pod range")?;
            let site = pods.family(true).and_then(Site::of);
            let range = site.map_or(range.clone(), |site| format!("{range},{}", site.nodes()));
            (self.nodes_cidr, held) = (Some(range), Some(reserved));
        }
        (self.nodes, self.node_links) = (nodes, links);
        self.save(layout)?;
        Ok(held)
    }

    /// Keeps which addresses there are and how other nodes are to be reached, as far as somebody says it now.
    ///
    /// # Errors
    /// If the cluster was made with other families, or the file cannot be written.
    pub fn set_network(&mut self, layout: &Layout, told: &NetworkArgs) -> anyhow::Result<()> {
        if let Some(family) = told.ip_family {
            self.set_family(layout, family)?;
        }
        let before = (self.overlay.clone(), self.tunnel_checksums.clone());
        let mode = told.overlay.map(|mode| mode.to_string()).or(before.0.clone());
        let checksums = told.tunnel_checksums.map(|told| told.to_string()).or(before.1.clone());
        if (&mode, &checksums) == (&before.0, &before.1) {
            return Ok(());
        }
        (self.overlay, self.tunnel_checksums) = (mode, checksums);
        self.save(layout)
    }

    /// Chooses the ranges of IPv6, before the first start.
    fn set_family(&mut self, layout: &Layout, family: IpFamily) -> anyhow::Result<()> {
        let pods: Cidrs = self.pod_cidr.parse().context("the Pod range")?;
        let now = IpFamily::of(&pods);
        if now == family {
            return Ok(());
        }
        anyhow::ensure!(
            family == IpFamily::Dual && !layout.kubeconfig().exists(),
            "this cluster was made with --ip-family {now}, which nodes and Services keep: `trine down --purge` begins anew"
        );
        let mut number = [0; 5];
        getrandom::fill(&mut number).map_err(|e| anyhow::anyhow!("no random numbers: {e}"))?;
        let site = Site::new(number);
        self.pod_cidr = format!("{},{}", self.pod_cidr, site.pods());
        self.service_cidr = format!("{},{}", self.service_cidr, site.services());
        self.save(layout)
    }

    /// The identity of a data dir, if it has one.
    ///
    /// # Errors
    /// If the file is there and broken.
    pub fn load(layout: &Layout) -> anyhow::Result<Option<Self>> {
        match std::fs::read(layout.identity()) {
            Ok(bytes) => {
                let path = layout.identity();
                Ok(Some(
                    serde_json::from_slice(&bytes)
                        .with_context(|| format!("{} is broken", path.display()))?,
                ))
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e).with_context(|| format!("cannot read {}", layout.identity().display())),
        }
    }

    /// Writes it, atomically.
    ///
    /// # Errors
    /// What the file system says.
    pub fn save(&self, layout: &Layout) -> anyhow::Result<()> {
        std::fs::create_dir_all(layout.root())
            .with_context(|| format!("cannot make the data dir {}", layout.root().display()))?;
        let fresh = layout.identity().with_extension("new");
        std::fs::write(&fresh, serde_json::to_vec_pretty(self)?)?;
        std::fs::rename(&fresh, layout.identity())?;
        Ok(())
    }
}

/// Holds other processes of the data dir off its identity, while this one looks whether there is one.
fn alone(layout: &Layout) -> anyhow::Result<std::fs::File> {
    std::fs::create_dir_all(layout.run())
        .with_context(|| format!("cannot make the data dir {}", layout.root().display()))?;
    let path = layout.run().join("lock-identity");
    let file = std::fs::OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
    flock(&file, FlockOperation::LockExclusive)?;
    Ok(file)
}

/// Something of which a network namespace has one, held by this process until it ends, however it ends. Two Trines that
/// start at the same moment do not choose the same.
pub struct Reservation {
    _listener: UnixListener,
}

/// Takes `what`, unless another process holds it. An abstract socket leaves no file behind.
fn reserve(what: &str) -> Option<Reservation> {
    let name = SocketAddr::from_abstract_name(format!("trine/{what}")).ok()?;
    let listener = UnixListener::bind_addr(&name).ok()?;
    Some(Reservation { _listener: listener })
}

/// The first port from `first` upward that nobody listens on or is about to.
///
/// # Errors
/// If none of the next [`PORTS`] is free.
pub fn free_port(first: u16) -> anyhow::Result<(u16, Reservation)> {
    (first..first.saturating_add(PORTS))
        .find_map(|port| {
            let held = reserve(&format!("port {port}"))?;
            std::net::TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok().then_some((port, held))
        })
        .with_context(|| format!("no free port from {first} to {}", first + PORTS))
}

/// This machine's name, as a node may have it.
pub fn node_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let clean: String = name
        .trim()
        .to_lowercase()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '-' || c == '.' { c } else { '-' })
        .collect();
    let clean = clean.trim_matches(['-', '.']);
    if clean.is_empty() { "trine".to_owned() } else { clean.to_owned() }
}

/// The /16 of each route in the text of `/proc/net/route` that has one, as its first two bytes. The default route
/// does not count.
fn routed(table: &str) -> Vec<(u8, u8)> {
    let rows = table.lines().skip(1).filter_map(|line| {
        let mut fields = line.split_whitespace();
        let destination = u32::from_str_radix(fields.nth(1)?, 16).ok()?;
        let mask = u32::from_str_radix(fields.nth(5)?, 16).ok()?;
        let [a, b, ..] = destination.to_le_bytes();
        (mask != 0).then_some((a, b))
    });
    rows.collect()
}

fn choose(seconds: &[u8], taken: &[(u8, u8)]) -> Option<(String, Reservation)> {
    let free = seconds.iter().filter(|second| !taken.contains(&(10, **second)));
    free.map(|second| format!("10.{second}.0.0/16"))
        .find_map(|range| reserve(&range).map(|held| (range, held)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_of_one_data_dir_have_one_identity_whichever_is_first() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path()).unwrap();
        let first = Identity::of_node(&layout, Some("n1".to_owned())).unwrap();
        let (with_ranges, _held) = Identity::claim(&layout).unwrap();
        assert_eq!((&with_ranges.instance, &with_ranges.node), (&first.instance, &first.node));
        assert!(!with_ranges.pod_cidr.is_empty());
        assert_eq!(Identity::of_node(&layout, None).unwrap().pod_cidr, with_ranges.pod_cidr);
        assert!(Identity::of_node(&layout, Some("n2".to_owned())).is_err());
    }

    #[test]
    fn a_range_that_the_machine_routes_is_not_chosen() {
        let table = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\n\
                     eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
                     tr0\t0000F40A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n";
        let taken = routed(table);
        assert_eq!(taken, [(10, 244)]);
        let (range, held) = choose(&[244, 251], &taken).unwrap();
        assert_eq!(range, "10.251.0.0/16");
        assert!(choose(&[244], &taken).is_none());
        assert!(choose(&[251], &taken).is_none(), "another process would get it too");
        drop(held);
        assert!(choose(&[251], &taken).is_some());
    }
}
