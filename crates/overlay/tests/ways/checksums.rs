//! A tunnel over hardware that computes no checksums of packets within datagrams.

use std::net::IpAddr;
use std::process::Command;

use trine_kernel::offload::sent_checksums;
use trine_kernel::testing;
use trine_overlay::checksums::{Verdict, trial};
use trine_overlay::{Checksums, Mode};

use crate::lab::{Lab, Space, Underlay};
use crate::{TUNNEL, all_exchange};

/// Where the checksum of a TCP packet in a tunnel is, in bits behind the outer IP header: UDP, VXLAN, Ethernet, IP, and 16 bytes.
const CHECKSUM: u32 = 8 * (8 + 8 + 14 + 20 + 16);
/// The length of a TCP header that asks for a connection, with the options that Linux sends.
const SYN: u32 = 40;
const TCP: u32 = 6;

/// What Linux leaves in a checksum that somebody else is to compute: the sum of the addresses, the protocol and the length.
fn left_open(from: IpAddr, to: IpAddr) -> u32 {
    let halves = |ip: IpAddr| match ip {
        IpAddr::V4(v4) => (v4.to_bits() >> 16) + (v4.to_bits() & 0xffff),
        IpAddr::V6(_) => panic!("IPv4 alone"),
    };
    let sum = halves(from) + halves(to) + TCP + SYN;
    (sum >> 16) + (sum & 0xffff)
}

fn nft(space: &Space, words: &str) {
    let output = space.0.run(|| Command::new("nft").args(words.split(' ')).output()).expect("the namespace");
    let output = output.expect("nft runs");
    assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
}

fn tried(space: &Space, end: &str) -> (Verdict, bool) {
    let ends = [end.parse().expect("an address")];
    let both = space.0.run(|| (trial(TUNNEL, &ends), sent_checksums(TUNNEL))).expect("the namespace");
    (both.0.expect("a trial"), both.1.expect("a state"))
}

#[test]
fn a_tunnel_computes_its_checksums_itself_if_nobody_else_does() {
    const TEST: &str = "a_tunnel_computes_its_checksums_itself_if_nobody_else_does";
    if !testing::root(TEST) || !testing::program(TEST, "nft") {
        return;
    }
    let lab = Lab::new(Underlay::V4);
    lab.sync(Mode::Auto);
    let a = &lab.node("a").space;
    assert_eq!(tried(a, "10.244.1.0"), (Verdict::Good, true), "a refusal is an answer");
    assert_eq!(tried(a, "10.244.77.0"), (Verdict::Unknown, true), "nobody is there");

    // The router drops what the hardware of node a would have sent.
    let open = left_open("10.244.0.0".parse().unwrap(), "10.244.1.0".parse().unwrap());
    nft(&lab.router, "add table inet wire");
    nft(&lab.router, "add chain inet wire bad { type filter hook forward priority 0 ; }");
    nft(&lab.router, &format!("add rule inet wire bad udp dport 8472 @th,{CHECKSUM},16 {open} drop"));
    assert_eq!(tried(a, "10.244.1.0"), (Verdict::Bad, false));
    assert_eq!(tried(a, "10.244.1.0"), (Verdict::Bad, false), "it is not tried again");
    all_exchange(&lab);
    let node = lab.node("a");
    assert_eq!(node.sync(Mode::Auto, &lab.peers()).changed, 0);
    assert!(!a.0.run(|| sent_checksums(TUNNEL)).unwrap().unwrap(), "it stays so");
}

#[test]
fn who_computes_checksums_can_be_told() {
    if !testing::root("who_computes_checksums_can_be_told") {
        return;
    }
    let lab = Lab::new(Underlay::V4);
    let (node, peers) = (lab.node("a"), lab.peers());
    for (checksums, left) in [(Checksums::Software, false), (Checksums::Offload, true)] {
        let me = trine_overlay::Me { checksums, ..node.me(Mode::Auto) };
        let pass = || node.space.0.run(|| trine_overlay::sync(&me, &peers)).unwrap().unwrap().changed;
        assert!(pass() > 0);
        assert_eq!(pass(), 0);
        assert_eq!(node.space.0.run(|| sent_checksums(TUNNEL)).unwrap().unwrap(), left, "{checksums}");
    }
}
