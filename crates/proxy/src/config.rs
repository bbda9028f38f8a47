//! Settings.

use std::net::IpAddr;
use std::path::PathBuf;

use trine_kernel::netlink::{Cidr, Cidrs};

/// What the proxy of one node must know.
#[derive(Clone, Debug)]
pub struct Config {
    /// The node's name; endpoints on it are "local".
    pub node_name: String,
    /// The instance id of six hex digits; it names the table (`trine-<instance>`) and marks the routes.
    pub instance: String,
    /// The cluster's ranges, of each family once.
    pub ranges: Vec<Ranges>,
    /// The node's own addresses; the first of a family is the source of its packets to Services.
    pub node_ips: Vec<IpAddr>,
    /// The network namespace to work in; none is the one of the calling thread.
    pub netns: Option<PathBuf>,
}

/// The ranges of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranges {
    /// The Pod addresses of the whole cluster.
    pub pods: Cidr,
    /// The Pod addresses of this node; none on a cluster of one node, where they are the same.
    pub node_pods: Option<Cidr>,
    /// The virtual addresses of Services.
    pub services: Cidr,
    /// The addresses of nodes on this machine, which leave it by this node's address. None on a machine of one node.
    pub neighbours: Option<Cidr>,
}

impl Ranges {
    /// Pairs the ranges of Pods with those of Services and of neighbours, by family.
    #[must_use]
    pub fn pairs(pods: &Cidrs, services: &Cidrs, neighbours: Option<&Cidrs>) -> Vec<Self> {
        let pair = |pods: Cidr| {
            let services = services.family(pods.is_v6())?;
            let neighbours = neighbours.and_then(|ranges| ranges.family(pods.is_v6()));
            Some(Self { pods, node_pods: None, services, neighbours })
        };
        pods.iter().filter_map(pair).collect()
    }

    /// The Pod addresses of this node.
    #[must_use]
    pub fn own_pods(&self) -> Cidr {
        self.node_pods.unwrap_or(self.pods)
    }

    /// Whether they are IPv6.
    #[must_use]
    pub fn v6(&self) -> bool {
        self.pods.is_v6()
    }
}

impl Config {
    /// The same for a node whose Pods are given these ranges.
    #[must_use]
    pub fn with_node_pods(mut self, given: Option<&Cidrs>) -> Self {
        for ranges in &mut self.ranges {
            ranges.node_pods = given.and_then(|given| given.family(ranges.v6()));
        }
        self
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
