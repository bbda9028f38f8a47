//! The families of addresses: which ones a cluster has, and a node's address of each.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::str::FromStr;

use anyhow::Context;
use trine_kernel::netlink::{Cidr, Cidrs};

/// The addresses of Pods and Services.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IpFamily {
    /// IPv4 alone.
    Ipv4,
    /// IPv4, and IPv6 beside it.
    Dual,
}

impl IpFamily {
    /// Those of ranges.
    #[must_use]
    pub fn of(ranges: &Cidrs) -> Self {
        if ranges.family(true).is_some() { Self::Dual } else { Self::Ipv4 }
    }
}

impl fmt::Display for IpFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ipv4 => "ipv4",
            Self::Dual => "dual",
        })
    }
}

impl FromStr for IpFamily {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "ipv4" => Ok(Self::Ipv4),
            "dual" => Ok(Self::Dual),
            _ => Err(format!("{text:?} is neither ipv4 nor dual")),
        }
    }
}

/// Prefix length of all addresses of a site (RFC 4193), and of one link's.
const SITE: u8 = 48;
const LINK: u8 = 64;
/// The links of a site: virtual addresses, the nodes on this machine, and from this on one for each node's Pods.
const SERVICES: u16 = 0;
const NODES: u16 = 1;
const PODS: u16 = 0x100;
/// How long the ranges of Services and of all Pods are: 65,536 Services, 256 nodes.
const SERVICES_LEN: u8 = 112;
const PODS_LEN: u8 = 56;

/// The private IPv6 addresses of one cluster; of its own, since they are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Site(Ipv6Addr);

impl Site {
    /// The site with this number.
    #[must_use]
    pub fn new(number: [u8; 5]) -> Self {
        let [a, b, c, d, e] = number;
        Self([0xfd, a, b, c, d, e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0].into())
    }

    /// The site that a range is of.
    #[must_use]
    pub fn of(range: Cidr) -> Option<Self> {
        let IpAddr::V6(address) = range.addr else { return None };
        Some(Self(Ipv6Addr::from_bits(address.to_bits() >> (128 - SITE) << (128 - SITE))))
    }

    fn link(self, number: u16, len: u8) -> Cidr {
        let bits = self.0.to_bits() | (u128::from(number) << (128 - u32::from(LINK)));
        Cidr { addr: Ipv6Addr::from_bits(bits).into(), len }
    }

    /// The virtual addresses of Services.
    #[must_use]
    pub fn services(self) -> Cidr {
        self.link(SERVICES, SERVICES_LEN)
    }

    /// The addresses of the nodes on this machine.
    #[must_use]
    pub fn nodes(self) -> Cidr {
        self.link(NODES, LINK)
    }

    /// The addresses of all Pods.
    #[must_use]
    pub fn pods(self) -> Cidr {
        self.link(PODS, PODS_LEN)
    }
}

/// A node's addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeIps {
    /// By which the API server and the other nodes reach it.
    pub primary: IpAddr,
    /// One of the other family.
    pub other: Option<IpAddr>,
}

impl NodeIps {
    /// Those that somebody says, or this machine's if nobody does.
    ///
    /// # Errors
    /// If two of one family are said, or the machine has no address but loopback.
    pub fn told(ips: &[IpAddr]) -> anyhow::Result<Self> {
        match ips {
            [] => Self::of_machine(),
            [primary] => Ok(Self { primary: *primary, other: None }),
            [primary, other] if primary.is_ipv4() != other.is_ipv4() => {
                Ok(Self { primary: *primary, other: Some(*other) })
            }
            _ => anyhow::bail!("--node-ip takes one address, or one of each family"),
        }
    }

    /// Those by which this machine is reached. No packet is sent.
    ///
    /// # Errors
    /// If the machine has no IPv4 address but loopback.
    pub fn of_machine() -> anyhow::Result<Self> {
        Ok(Self { primary: machine_ip()?, other: routed(true) })
    }

    /// Without that of a family that the cluster does not have.
    #[must_use]
    pub fn within(self, cluster: &Cidrs) -> Self {
        Self { other: self.other.filter(|ip| cluster.family(ip.is_ipv6()).is_some()), ..self }
    }

    /// All, the primary one first.
    #[must_use]
    pub fn all(self) -> Vec<IpAddr> {
        std::iter::once(self.primary).chain(self.other).collect()
    }
}

impl From<Cidrs> for NodeIps {
    fn from(own: Cidrs) -> Self {
        let primary = own.primary();
        Self { primary: primary.addr, other: own.family(!primary.is_v6()).map(|other| other.addr) }
    }
}

/// The address by which this machine is reached, and so its Pods' way to the API server. No packet is sent.
///
/// # Errors
/// If the machine has no address but loopback.
pub fn machine_ip() -> anyhow::Result<IpAddr> {
    if let Some(address) = routed(false) {
        return Ok(address);
    }
    let mut route = trine_kernel::netlink::Route::open()?;
    let interfaces = route.addresses(None).context("cannot list this machine's addresses")?;
    let usable = |ip: &IpAddr| matches!(ip, IpAddr::V4(a) if !a.is_loopback() && !a.is_link_local());
    interfaces
        .into_iter()
        .map(|a| a.addr.addr)
        .find(usable)
        .context("this machine has no address but loopback: Pods could not reach the API server")
}

/// The source of packets that leave the machine: connecting a UDP socket only looks a route up.
fn routed(v6: bool) -> Option<IpAddr> {
    let (any, outside): (IpAddr, _) = match v6 {
        false => (Ipv4Addr::UNSPECIFIED.into(), "198.51.100.1:9"),
        true => (Ipv6Addr::UNSPECIFIED.into(), "[2001:db8::1]:9"),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(outside).ok()?;
    let address = socket.local_addr().ok()?.ip();
    let own_link = matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
    (!address.is_loopback() && !own_link).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sites_ranges_do_not_overlap_and_lead_back_to_it() {
        let site = Site::new([1, 2, 3, 4, 5]);
        assert_eq!(site.services().to_string(), "fd01:203:405::/112");
        assert_eq!(site.nodes().to_string(), "fd01:203:405:1::/64");
        assert_eq!(site.pods().to_string(), "fd01:203:405:100::/56");
        assert_eq!(Site::of(site.pods()), Some(site));
        assert_eq!(Site::of("10.244.0.0/16".parse().unwrap()), None);
    }

    #[test]
    fn a_node_has_one_address_or_one_of_each_family() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let both = NodeIps::told(&[ip("192.0.2.1"), ip("2001:db8::1")]).unwrap();
        assert_eq!(both.all(), [ip("192.0.2.1"), ip("2001:db8::1")]);
        let single: Cidrs = "10.244.0.0/16".parse().unwrap();
        assert_eq!(both.within(&single).all(), [ip("192.0.2.1")]);
        let dual: Cidrs = "10.244.0.0/16,fd00:1::/56".parse().unwrap();
        assert_eq!(both.within(&dual), both);
        assert!(NodeIps::told(&[ip("192.0.2.1"), ip("192.0.2.2")]).is_err());
    }
}
