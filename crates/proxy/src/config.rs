//! Settings.

use std::net::IpAddr;
use std::path::PathBuf;

use trine_kernel::netlink::Cidr;

/// What the proxy of one node must know.
#[derive(Clone, Debug)]
pub struct Config {
    /// The node's name; endpoints on it are "local".
    pub node_name: String,
    /// The instance id of six hex digits; it names the table (`trine-<instance>`) and marks the routes.
    pub instance: String,
    /// The Pod addresses of the whole cluster.
    pub pod_cidr: Cidr,
    /// The Pod addresses of this node; none on a cluster of one node, where they are the same.
    pub node_pod_cidr: Option<Cidr>,
    /// The virtual addresses of Services.
    pub service_cidr: Cidr,
    /// The node's own addresses; the first is the source of its packets to Services.
    pub node_ips: Vec<IpAddr>,
    /// The addresses of nodes on this machine, which leave it by this node's address. None on a machine of one node.
    pub neighbours: Option<Cidr>,
    /// The network namespace to work in; none is the one of the calling thread.
    pub netns: Option<PathBuf>,
}

impl Config {
    /// The Pod addresses of this node.
    #[must_use]
    pub fn own_pods(&self) -> Cidr {
        self.node_pod_cidr.unwrap_or(self.pod_cidr)
    }

    /// The nftables table's name.
    #[must_use]
    pub fn table(&self) -> String {
        table_name(&self.instance)
    }
}

/// The nftables table's name for an instance.
pub(crate) fn table_name(instance: &str) -> String {
    format!("trine-{instance}")
}
