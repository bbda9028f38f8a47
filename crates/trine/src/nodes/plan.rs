//! Names and addresses of the nodes on this machine. They follow from the data dir's identity, so there is no list that could
//! be lost.

use std::net::IpAddr;

use trine_kernel::netlink::{Cidr, Cidrs};

use crate::identity::Identity;

/// How many nodes a machine may have: their numbers are two hex digits of a link's name, and each takes a Pod range.
const MOST: u8 = 250;
/// Over how many links they may be spread: each number is one digit of a bridge's name.
pub const MOST_LINKS: u8 = 8;
/// The prefix length of one link of several.
const LINK_PREFIX: u8 = 24;

/// A further node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The node's name and its machine's host name.
    pub name: String,
    /// Its address, with the prefix length of its bridge's; one of each family.
    pub address: Cidrs,
    /// The bridge that it is on.
    pub bridge: String,
    /// The host's address there.
    pub gateway: Cidrs,
    /// The host's end of its link.
    pub link: String,
}

/// How many nodes there are to be: as many as last time unless told otherwise. Nodes do not vanish with a smaller number:
/// they may hold volumes.
///
/// # Errors
/// If the number is too large or too small.
pub fn count(last: u8, wanted: Option<u8>) -> anyhow::Result<u8> {
    let count = wanted.unwrap_or(last);
    anyhow::ensure!((1..=MOST).contains(&count), "--nodes takes 1 to {MOST}");
    anyhow::ensure!(
        count >= last,
        "this cluster has {last} nodes, whose volumes would be lost with --nodes {count}: `trine down --purge` begins anew"
    );
    Ok(count)
}

/// Over how many links nodes are to be spread: as many as last time unless told otherwise.
///
/// # Errors
/// If the number is too large or too small.
pub fn links(last: u8, wanted: Option<u8>) -> anyhow::Result<u8> {
    let links = wanted.unwrap_or(last);
    anyhow::ensure!((1..=MOST_LINKS).contains(&links), "--node-links takes 1 to {MOST_LINKS}");
    Ok(links)
}

/// The bridge that is the link of this number.
#[must_use]
pub fn bridge(identity: &Identity, link: u8) -> String {
    format!("tr{}b{link}", identity.instance)
}

/// The bridges with the host's addresses on them; none, if this machine has one node.
#[must_use]
pub fn bridges(identity: &Identity) -> Vec<(String, Cidrs)> {
    let Some(range) = &range(identity) else { return Vec::new() };
    let links = 0..identity.node_links;
    links.map(|link| (bridge(identity, link), address(identity, range, link, 1))).collect()
}

/// The nodes' range, if this machine has several; one of each family.
#[must_use]
pub fn range(identity: &Identity) -> Option<Cidrs> {
    identity.nodes_cidr.as_ref().filter(|_| identity.nodes > 1)?.parse().ok()
}

/// The address of node `number` on a link, in the nodes' range; the host's is 1. A single link has all of the range.
fn address(identity: &Identity, ranges: &Cidrs, link: u8, number: u8) -> Cidrs {
    let offset = (u32::from(link) << 8) + u32::from(number);
    let whole = identity.node_links == 1;
    ranges.map(|range| {
        let addr = match range.network().addr {
            IpAddr::V4(v4) => IpAddr::from((u32::from(v4) + offset).to_be_bytes()),
            IpAddr::V6(v6) => IpAddr::from((u128::from(v6) + u128::from(offset)).to_be_bytes()),
        };
        Cidr { addr, len: if whole { range.len } else { Cidr::host(addr).len - 32 + LINK_PREFIX } }
    })
}

/// The further nodes; the first node is the host's own.
#[must_use]
pub fn members(identity: &Identity) -> Vec<Member> {
    let Some(range) = &range(identity) else { return Vec::new() };
    let member = |number: u8| {
        let link = (number - 1) % identity.node_links;
        Member {
            name: format!("{}-{number}", identity.node),
            address: address(identity, range, link, number),
            bridge: bridge(identity, link),
            gateway: address(identity, range, link, 1),
            link: format!("tr{}{number:02x}", identity.instance),
        }
    };
    (2..=identity.nodes).map(member).collect()
}

/// For people: `node a`, or `nodes a a-2 a-3`.
#[must_use]
pub fn words(identity: &Identity) -> String {
    let names: Vec<String> =
        std::iter::once(identity.node.clone()).chain(members(identity).into_iter().map(|m| m.name)).collect();
    format!("{} {}", if names.len() == 1 { "node" } else { "nodes" }, names.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_follow_from_the_identity() {
        let mut identity = Identity::new("vm".to_owned()).unwrap();
        identity.instance = "00aabb".to_owned();
        assert!(members(&identity).is_empty());
        assert_eq!(words(&identity), "node vm");
        identity.nodes_cidr = Some("10.222.0.0/16".to_owned());
        assert!(members(&identity).is_empty(), "one node, though there were several");
        identity.nodes = 3;
        let all = members(&identity);
        assert_eq!(all.len(), 2);
        assert_eq!(
            all[0],
            Member {
                name: "vm-2".to_owned(),
                address: "10.222.0.2/16".parse().unwrap(),
                bridge: "tr00aabbb0".to_owned(),
                gateway: "10.222.0.1/16".parse().unwrap(),
                link: "tr00aabb02".to_owned()
            }
        );
        assert_eq!(words(&identity), "nodes vm vm-2 vm-3");
    }

    #[test]
    fn nodes_on_several_links_are_neighbours_of_those_on_theirs() {
        let mut identity = Identity::new("vm".to_owned()).unwrap();
        identity.instance = "00aabb".to_owned();
        identity.nodes_cidr = Some("10.222.0.0/16".to_owned());
        (identity.nodes, identity.node_links) = (3, 2);
        let at = |(name, address): (String, Cidrs)| format!("{name} {address}");
        let bridges: Vec<String> = bridges(&identity).into_iter().map(at).collect();
        assert_eq!(bridges, ["tr00aabbb0 10.222.0.1/24", "tr00aabbb1 10.222.1.1/24"]);
        let members = members(&identity).into_iter();
        let seen: Vec<String> =
            members.map(|m| format!("{} {} {} {}", m.name, m.address, m.bridge, m.gateway)).collect();
        assert_eq!(
            seen,
            ["vm-2 10.222.1.2/24 tr00aabbb1 10.222.1.1/24", "vm-3 10.222.0.3/24 tr00aabbb0 10.222.0.1/24"]
        );
        assert_eq!(links(2, None).unwrap(), 2);
        assert!(links(1, Some(0)).is_err() && links(1, Some(MOST_LINKS + 1)).is_err());
    }

    #[test]
    fn nodes_have_an_address_of_each_family() {
        let mut identity = Identity::new("vm".to_owned()).unwrap();
        identity.nodes_cidr = Some("10.222.0.0/16,fd00:1:2:1::/64".to_owned());
        identity.nodes = 2;
        assert_eq!(members(&identity)[0].address.to_string(), "10.222.0.2/16,fd00:1:2:1::2/64");
        identity.node_links = 2;
        assert_eq!(members(&identity)[0].address.to_string(), "10.222.1.2/24,fd00:1:2:1::102/120");
        assert_eq!(members(&identity)[0].gateway.to_string(), "10.222.1.1/24,fd00:1:2:1::101/120");
    }

    #[test]
    fn the_number_of_nodes_stays_or_grows() {
        for (last, wanted, count_is) in [(1, None, Some(1)), (2, None, Some(2)), (1, Some(3), Some(3))] {
            assert_eq!(count(last, wanted).ok(), count_is);
        }
        for (last, wanted) in [(1, Some(0)), (2, Some(1)), (1, Some(251))] {
            assert!(count(last, wanted).is_err(), "{last} {wanted:?}");
        }
    }
}
