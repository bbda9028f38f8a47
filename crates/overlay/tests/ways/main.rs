//! Real packets between Pods of real nodes, as far as the kernel is concerned.

mod checksums;
mod lab;

use lab::{Lab, Space, Underlay};
use trine_kernel::netlink::{LinkChange, Neighbour, Request, RouteEntry};
use trine_kernel::testing;
use trine_overlay::{Mode, cleanup};

const TUNNEL: &str = "tr00aabbvx4";

fn all_exchange(lab: &Lab) {
    for v6 in [false, true] {
        for from in &lab.nodes {
            for to in lab.nodes.iter().filter(|to| to.name != from.name) {
                let done = from.exchange(to, v6);
                assert_eq!(done, Ok(()), "from {} to {}, IPv6 {v6}", from.name, to.name);
            }
        }
    }
}

fn routes(space: &Space) -> Vec<RouteEntry> {
    let mut route = space.route();
    let all = [false, true].map(|v6| route.routes(v6).expect("routes are listed")).concat();
    all.into_iter().filter(|r| r.priority == Some(0x2000_aabb)).collect()
}

/// Which device each way of node `name` begins with.
fn begins(lab: &Lab, name: &str) -> Vec<String> {
    let space = &lab.node(name).space;
    let links = space.route().links().expect("links are listed");
    let mut ways: Vec<String> = routes(space)
        .iter()
        .map(|r| {
            let device = links.iter().find(|l| Some(l.index) == r.device).map_or("?", |l| l.name.as_str());
            format!("{} {device}", r.dst)
        })
        .collect();
    ways.sort();
    ways
}

#[test]
fn pods_reach_each_other_by_routes_and_through_tunnels_in_both_families() {
    if !testing::root("pods_reach_each_other_by_routes_and_through_tunnels_in_both_families") {
        return;
    }
    let lab = Lab::new(Underlay::V4);
    assert!(lab.node("a").exchange(lab.node("b"), false).is_err(), "nothing leads there yet");
    lab.sync(Mode::Auto);
    let expected = [
        "10.244.1.0/24 tr00aabbvx4",
        "10.244.2.0/24 eth0",
        "fd00:244:0:1::/64 tr00aabbvx4",
        "fd00:244:0:2::/64 tr00aabbvx4",
    ];
    assert_eq!(begins(&lab, "a"), expected, "node c is a neighbour in IPv4 alone");
    all_exchange(&lab);
    // The Pods' links are larger than the tunnels: their own node told them, and nobody cut a packet.
    let spaces = lab.nodes.iter().flat_map(|node| [&node.space, &node.pod]).chain([&lab.router]);
    for (number, space) in spaces.enumerate() {
        assert_eq!((space.counted("FragCreates"), space.counted("ReasmReqds")), (0, 0), "{number}");
    }
}

#[test]
fn nodes_with_addresses_of_the_other_family_have_the_same_ways() {
    if !testing::root("nodes_with_addresses_of_the_other_family_have_the_same_ways") {
        return;
    }
    let lab = Lab::new(Underlay::V6);
    lab.sync(Mode::Auto);
    let expected = [
        "10.244.1.0/24 tr00aabbvx6",
        "10.244.2.0/24 tr00aabbvx6",
        "fd00:244:0:1::/64 tr00aabbvx6",
        "fd00:244:0:2::/64 eth0",
    ];
    assert_eq!(begins(&lab, "a"), expected);
    assert_eq!(lab.node("a").space.link("tr00aabbvx6").mtu, 1430);
    all_exchange(&lab);
}

#[test]
fn every_way_can_be_forced_and_changed_without_a_gap() {
    if !testing::root("every_way_can_be_forced_and_changed_without_a_gap") {
        return;
    }
    let lab = Lab::new(Underlay::V4);
    for mode in [Mode::Vxlan, Mode::Auto, Mode::Vxlan] {
        lab.sync(mode);
        all_exchange(&lab);
    }
    lab.sync(Mode::Direct);
    assert_eq!(begins(&lab, "a"), ["10.244.2.0/24 eth0"]);
    assert!(lab.node("a").space.route().find_link(TUNNEL).unwrap().is_none());
    assert_eq!(lab.node("a").exchange(lab.node("c"), false), Ok(()));
    assert!(lab.node("a").exchange(lab.node("b"), false).is_err());
}

#[test]
fn a_second_pass_changes_nothing_and_a_right_device_is_adopted() {
    if !testing::root("a_second_pass_changes_nothing_and_a_right_device_is_adopted") {
        return;
    }
    let lab = Lab::new(Underlay::V4);
    lab.sync(Mode::Auto);
    for node in &lab.nodes {
        let before = node.space.link(TUNNEL);
        let synced = node.sync(Mode::Auto, &lab.peers());
        assert_eq!((synced.changed, node.space.link(TUNNEL)), (0, before), "{}", node.name);
        assert_eq!(synced.plan.pod_mtu, Some(1450));
    }
}

#[test]
fn what_others_break_is_mended() {
    if !testing::root("what_others_break_is_mended") {
        return;
    }
    let lab = Lab::new(Underlay::V4);
    lab.sync(Mode::Auto);
    let (a, b) = (lab.node("a"), lab.node("b"));
    let device = a.space.link(TUNNEL).index;
    let ways = routes(&a.space);
    let through = ways.iter().find(|r| r.device == Some(device) && r.dst.addr.is_ipv4()).unwrap().clone();
    let (end, mac) = (through.gateway.unwrap(), "02:54:0a:f4:01:00".parse().unwrap());
    let other = "02:00:00:00:00:99".parse().unwrap();
    let broken: [(&str, Vec<Request>); 9] = [
        ("it is down", vec![LinkChange { up: Some(false), ..LinkChange::default() }.request(TUNNEL)]),
        (
            "another hardware address",
            vec![LinkChange { mac: Some(other), ..LinkChange::default() }.request(TUNNEL)],
        ),
        ("a small MTU", vec![LinkChange { mtu: Some(1300), ..LinkChange::default() }.request(TUNNEL)]),
        ("no address", vec![Request::del_address(device, "10.244.0.0/32".parse().unwrap())]),
        ("no route", vec![through.del()]),
        ("no neighbour", vec![Request::del_neighbour(device, end)]),
        ("another neighbour", vec![Request::add_neighbour(device, end, other)]),
        ("another node", vec![Request::set_forward(device, mac, "10.1.0.9".parse().unwrap())]),
        ("the device is gone", vec![Request::del_link(TUNNEL)]),
    ];
    for (what, requests) in broken {
        assert_eq!(device, a.space.link(TUNNEL).index, "{what}: nothing before made it anew");
        a.space.route().run(&requests).unwrap_or_else(|e| panic!("{what}: {e}"));
        let synced = a.sync(Mode::Auto, &lab.peers());
        assert!(synced.changed > 0, "{what}");
        assert_eq!(a.sync(Mode::Auto, &lab.peers()).changed, 0, "{what}");
        assert_eq!(a.exchange(b, false), Ok(()), "{what}");
    }
}

#[test]
fn an_entry_of_a_node_that_is_gone_goes_and_one_whose_address_or_range_changes_moves() {
    if !testing::root("an_entry_of_a_node_that_is_gone_goes_and_one_whose_address_or_range_changes_moves") {
        return;
    }
    let mut lab = Lab::new(Underlay::V4);
    lab.sync(Mode::Auto);
    let (a, all) = (lab.node("a"), lab.peers());
    let without_b: Vec<_> = all.iter().filter(|peer| peer.name != "b").cloned().collect();
    a.sync(Mode::Auto, &without_b);
    assert_eq!(begins(&lab, "a"), ["10.244.2.0/24 eth0", "fd00:244:0:2::/64 tr00aabbvx4"]);
    let device = a.space.link(TUNNEL).index;
    assert_eq!(a.space.route().forwards(device).unwrap().len(), 1, "node c's, for IPv6");
    let permanent = |n: &Neighbour| n.permanent;
    assert_eq!(a.space.route().neighbours(device).unwrap().iter().filter(|n| permanent(n)).count(), 1);

    // Node b comes back at another address.
    let b = lab.nodes.iter().position(|node| node.name == "b").unwrap();
    let eth0 = lab.nodes[b].space.link("eth0").index;
    let mut route = lab.nodes[b].space.route();
    let (old, new) = ("10.2.0.2/24".parse().unwrap(), "10.2.0.77/24".parse().unwrap());
    let out = RouteEntry {
        gateway: Some("10.2.0.1".parse().unwrap()),
        device: Some(eth0),
        ..RouteEntry::to("0.0.0.0/0".parse().unwrap())
    };
    route.run(&[Request::del_address(eth0, old), Request::add_address(eth0, new)]).unwrap();
    route.replace_route(&out).unwrap();
    lab.nodes[b].peer.addresses = vec!["10.2.0.77".parse().unwrap()];
    lab.sync(Mode::Auto);
    all_exchange(&lab);

    // It is given another range, and its Pod an address of that.
    let old_ip = lab.nodes[b].pod_ip(false);
    lab.nodes[b].peer.ranges[0] = "10.244.9.0/24".parse().unwrap();
    lab.nodes[b].renumber(old_ip);
    lab.sync(Mode::Auto);
    assert!(begins(&lab, "a").contains(&"10.244.9.0/24 tr00aabbvx4".to_owned()));
    assert!(!begins(&lab, "a").contains(&"10.244.1.0/24 tr00aabbvx4".to_owned()));
    all_exchange(&lab);
}

#[test]
fn hosts_reach_pods_through_a_tunnel_as_an_end_of_it() {
    if !testing::root("hosts_reach_pods_through_a_tunnel_as_an_end_of_it") {
        return;
    }
    let lab = Lab::new(Underlay::V4);
    lab.sync(Mode::Auto);
    let (a, b) = (lab.node("a"), lab.node("b"));
    for (v6, expected) in [(false, "10.244.0.0"), (true, "fd00:244::")] {
        let seen = a.host_is_seen_as(b, v6);
        assert_eq!(seen, Ok(expected.parse().unwrap()), "IPv6 {v6}");
    }
}

#[test]
fn a_name_that_is_taken_is_taken_back_and_nothing_is_left_in_the_end() {
    if !testing::root("a_name_that_is_taken_is_taken_back_and_nothing_is_left_in_the_end") {
        return;
    }
    let lab = Lab::new(Underlay::V4);
    lab::take_name(&lab.node("a").space, TUNNEL);
    lab.sync(Mode::Auto);
    assert_eq!(lab.node("a").exchange(lab.node("b"), false), Ok(()));
    let space = &lab.node("a").space;
    for _ in 0..2 {
        space.0.run(|| cleanup("00aabb")).unwrap().unwrap();
        assert_eq!(routes(space), []);
        assert!(space.route().find_link(TUNNEL).unwrap().is_none());
    }
    assert!(space.route().find_link("eth0").unwrap().is_some());
}
