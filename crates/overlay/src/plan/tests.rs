use super::*;
use crate::testing::{address, cidr, link, me, node};

/// What of a plan a row of a table says.
fn seen(plan: &Plan) -> Vec<String> {
    let ways = plan.ways.iter().map(|way| match way.by {
        By::Neighbour { gateway, device } => format!("{} by {gateway} on {device}", way.range),
        By::Tunnel { to, mac } => format!("{} through {to} {mac}", way.range),
    });
    let tunnels = plan.tunnels.iter().map(|t| {
        let addresses: Vec<String> = t.addresses.iter().map(ToString::to_string).collect();
        format!("{} {} mtu {} from {:?} {}", t.name, t.mac, t.mtu, t.vxlan.local, addresses.join(","))
    });
    ways.chain(tunnels).collect()
}

/// eth0 is link 2, its neighbours are 192.0.2.0/24; link 3 leads elsewhere.
fn ground() -> Seen {
    Seen {
        links: vec![link(1, "lo", 65_536), link(2, "eth0", 1500), link(3, "eth1", 9000)],
        addresses: vec![address(1, "127.0.0.1/8"), address(2, "192.0.2.1/24"), address(3, "10.9.0.1/16")],
        routes: vec![
            RouteEntry { device: Some(2), ..RouteEntry::to(cidr("0.0.0.0/0")) },
            RouteEntry { device: Some(3), ..RouteEntry::to(cidr("198.51.100.128/25")) },
        ],
    }
}

#[test]
fn neighbours_are_reached_by_routes_and_others_through_a_tunnel() {
    let nodes = [
        node("far", &["198.51.100.9"], &["10.244.3.0/24"]),
        node("fresh", &["192.0.2.5"], &[]),
        node("greedy", &["192.0.2.7"], &["0.0.0.0/0"]),
        node("me", &["192.0.2.1"], &["10.244.0.0/24"]),
        node("near", &["192.0.2.2"], &["10.244.1.0/24"]),
        node("nowhere", &[], &["10.244.4.0/24"]),
        node("other-family", &["192.0.2.8"], &["fd00::/64"]),
        node("other-link", &["10.9.0.2"], &["10.244.2.0/24"]),
        node("robber", &["192.0.2.9"], &["10.244.0.0/24"]),
        node("twin", &["192.0.2.6"], &["10.244.1.0/24"]),
    ];
    let vxlan = "tr00aabbvx4 02:54:0a:f4:00:00 mtu 1450 from Some(192.0.2.1) 10.244.0.0/32";
    let rows: [(Mode, &[&str]); 3] = [
        (
            Mode::Auto,
            &[
                "10.244.3.0/24 through 198.51.100.9 02:54:0a:f4:03:00",
                "10.244.1.0/24 by 192.0.2.2 on 2",
                // Its answers would not come back over that link.
                "10.244.2.0/24 through 10.9.0.2 02:54:0a:f4:02:00",
                vxlan,
            ],
        ),
        (
            Mode::Vxlan,
            &[
                "10.244.3.0/24 through 198.51.100.9 02:54:0a:f4:03:00",
                "10.244.1.0/24 through 192.0.2.2 02:54:0a:f4:01:00",
                "10.244.2.0/24 through 10.9.0.2 02:54:0a:f4:02:00",
                vxlan,
            ],
        ),
        (Mode::Direct, &["10.244.1.0/24 by 192.0.2.2 on 2"]),
    ];
    for (mode, expected) in rows {
        assert_eq!(seen(&plan(&me(mode), &nodes, &ground())), expected, "{mode}");
    }
}

#[test]
fn an_address_that_is_also_ours_leads_nowhere() {
    let nodes =
        [node("me", &["192.0.2.1"], &["10.244.0.0/24"]), node("n", &["10.9.0.1"], &["10.244.1.0/24"])];
    assert_eq!(plan(&me(Mode::Auto), &nodes, &ground()).ways, []);
}

#[test]
fn a_node_that_is_not_known_yet_has_neighbours_but_no_tunnels() {
    let nodes = [
        node("far", &["198.51.100.9"], &["10.244.3.0/24"]),
        node("near", &["192.0.2.2"], &["10.244.1.0/24"]),
        node("other-link", &["10.9.0.2"], &["10.244.2.0/24"]),
    ];
    let expected = ["10.244.1.0/24 by 192.0.2.2 on 2", "10.244.2.0/24 by 10.9.0.2 on 3"];
    assert_eq!(seen(&plan(&me(Mode::Auto), &nodes, &ground())), expected);
}

#[test]
fn both_families_go_through_the_tunnel_that_both_ends_have() {
    let mut me = me(Mode::Auto);
    me.cluster.push(cidr("fd00:244::/56"));
    let ranges = |number: &str| vec![format!("10.244.{number}.0/24"), format!("fd00:244:0:{number}::/64")];
    let dual = |name: &str, addresses: &[&str], number: &str| {
        let ranges = ranges(number);
        node(name, addresses, &ranges.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let nodes = [
        dual("both", &["2001:db8::9", "198.51.100.9"], "1"),
        dual("me", &["192.0.2.1", "2001:db8:1::1"], "0"),
        dual("near", &["192.0.2.2"], "2"),
        dual("new", &["2001:db8::7"], "3"),
    ];
    let mut there = ground();
    there.addresses.push(address(2, "2001:db8:1::1/64"));
    let addresses = "10.244.0.0/32,fd00:244::/128";
    let expected = [
        "10.244.1.0/24 through 198.51.100.9 02:54:0a:f4:01:00".to_owned(),
        "fd00:244:0:1::/64 through 198.51.100.9 02:54:0a:f4:01:00".to_owned(),
        "10.244.2.0/24 by 192.0.2.2 on 2".to_owned(),
        // A neighbour, but not in this family.
        "fd00:244:0:2::/64 through 192.0.2.2 02:54:0a:f4:02:00".to_owned(),
        "10.244.3.0/24 through 2001:db8::7 02:54:0a:f4:03:00".to_owned(),
        "fd00:244:0:3::/64 through 2001:db8::7 02:54:0a:f4:03:00".to_owned(),
        format!("tr00aabbvx4 02:54:0a:f4:00:00 mtu 1450 from Some(192.0.2.1) {addresses}"),
        format!("tr00aabbvx6 02:54:0a:f4:00:00 mtu 1430 from Some(2001:db8:1::1) {addresses}"),
    ];
    assert_eq!(seen(&plan(&me, &nodes, &there)), expected);
}

#[test]
fn pods_get_the_mtu_that_every_way_has() {
    let own = node("me", &["192.0.2.1"], &["10.244.0.0/24"]);
    let near = node("near", &["192.0.2.2"], &["10.244.1.0/24"]);
    let far = node("far", &["198.51.100.9"], &["10.244.3.0/24"]);
    let jumbo = node("jumbo", &["198.51.100.200"], &["10.244.4.0/24"]);
    let with = |mtu: u32, path: Option<u32>| {
        let mut there = ground();
        there.links[1].mtu = mtu;
        there.routes[0].mtu = path;
        there
    };
    let rows = [
        ("alone", vec![&own], with(1500, None), None),
        ("alone in a cloud", vec![&own], with(1460, None), Some(1460)),
        ("with a neighbour", vec![&own, &near], with(9000, None), Some(9000)),
        ("through a tunnel", vec![&own, &near, &far], with(1500, None), Some(1450)),
        ("through one that stays full", vec![&own, &far], with(1550, None), None),
        ("by another link", vec![&own, &jumbo], with(9000, None), Some(8950)),
        ("by a narrow path", vec![&own, &far], with(9000, Some(1400)), Some(1350)),
    ];
    let mut on_lo = ground();
    on_lo.addresses[1] = address(1, "192.0.2.1/32");
    let rows = rows.into_iter().chain([("alone with its address on lo", vec![&own], on_lo, None)]);
    for (name, nodes, there, expected) in rows {
        let nodes: Vec<Peer> = nodes.into_iter().cloned().collect();
        assert_eq!(plan(&me(Mode::Auto), &nodes, &there).pod_mtu, expected, "{name}");
    }
}

#[test]
fn what_a_tunnel_has_itself_is_no_ground() {
    let nodes =
        [node("me", &["192.0.2.1"], &["10.244.0.0/24"]), node("n", &["10.244.9.9"], &["10.244.1.0/24"])];
    let mut there = ground();
    there.links.push(link(9, "tr00aabbvx4", 1450));
    there.addresses.push(address(9, "10.244.0.0/16"));
    there.routes.push(RouteEntry { device: Some(9), ..RouteEntry::to(cidr("10.244.9.0/24")) });
    let plan = plan(&me(Mode::Auto), &nodes, &there);
    assert_eq!(plan.tunnels[0].mtu, 1450, "of eth0");
    assert!(matches!(plan.ways[0].by, By::Tunnel { .. }));
}

#[test]
fn modes_are_read_as_they_are_written() {
    for mode in [Mode::Auto, Mode::Vxlan, Mode::Direct] {
        assert_eq!(mode.to_string().parse(), Ok(mode));
    }
    assert_eq!("ipip".parse::<Mode>().unwrap_err().to_string(), "\"ipip\" is none of auto, vxlan, direct");
}
