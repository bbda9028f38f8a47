//! Short words for the tables of the tests.

use trine_kernel::netlink::{Address, Cidr, Link};

use crate::checksums::Checksums;
use crate::plan::{Me, Mode, Peer};

pub(crate) fn cidr(text: &str) -> Cidr {
    text.parse().unwrap()
}

pub(crate) fn me(mode: Mode) -> Me {
    let cluster = vec![cidr("10.244.0.0/16")];
    Me {
        instance: "00aabb".to_owned(),
        node: "me".to_owned(),
        cluster,
        mode,
        vni: 0x00aabb,
        checksums: Checksums::Auto,
    }
}

pub(crate) fn node(name: &str, addresses: &[&str], ranges: &[&str]) -> Peer {
    Peer {
        name: name.to_owned(),
        addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
        ranges: ranges.iter().map(|r| cidr(r)).collect(),
    }
}

pub(crate) fn address(device: u32, addr: &str) -> Address {
    Address { device, addr: cidr(addr), link_scope: false, tentative: false, duplicate: false }
}

pub(crate) fn link(index: u32, name: &str, mtu: u32) -> Link {
    Link {
        index,
        name: name.to_owned(),
        up: true,
        promiscuous: false,
        running: true,
        mtu,
        mac: None,
        kind: None,
        master: None,
        peer: None,
        peer_netns: None,
        alias: None,
        all_multicast: false,
        transmit_queue: 0,
        macvlan: None,
        vrf_table: None,
        vlan: None,
        vlan_filtering: false,
        vxlan: None,
    }
}
