use super::*;
use crate::netns::{self, Netns};
use crate::testing;

/// Two namespaces with a socket in each, removed at the end.
struct Pair {
    _dir: tempfile::TempDir,
    host: Netns,
    pod: Netns,
}

impl Pair {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let host = Netns::create(&dir.path().join("host")).unwrap();
        let pod = Netns::create(&dir.path().join("pod")).unwrap();
        Self { _dir: dir, host, pod }
    }

    fn sockets(&self) -> (Route, Route) {
        (Route::open_in(&self.host).unwrap(), Route::open_in(&self.pod).unwrap())
    }

    fn veth<'a>(&'a self, name: &'a str, peer: &'a str) -> Veth<'a> {
        use std::os::fd::AsFd;
        Veth {
            name,
            mac: Some(Mac([2, 0, 0, 0, 0, 1])),
            mtu: Some(1400),
            peer: VethPeer { name: peer, netns: Some(self.pod.as_fd()), mac: Some(Mac([2, 0, 0, 0, 0, 2])) },
        }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        let _ = netns::delete(self.host.path());
        let _ = netns::delete(self.pod.path());
    }
}

#[test]
fn a_veth_is_made_across_namespaces_by_one_request() {
    if !testing::root("a_veth_is_made_across_namespaces_by_one_request") {
        return;
    }
    let pair = Pair::new();
    let (mut host, mut pod) = pair.sockets();
    host.add_veth(&pair.veth("tr1", "eth0")).unwrap();
    host.set_link("tr1", &LinkChange { alias: Some("an alias"), ..LinkChange::default() }).unwrap();
    let (near, far) = (host.link("tr1").unwrap(), pod.link("eth0").unwrap());
    assert_eq!((near.mtu, far.mtu), (1400, 1400));
    assert_eq!((near.up, far.up), (true, false));
    assert_eq!((near.mac, far.mac), (Some(Mac([2, 0, 0, 0, 0, 1])), Some(Mac([2, 0, 0, 0, 0, 2]))));
    assert_eq!((near.kind.as_deref(), near.alias.as_deref()), (Some("veth"), Some("an alias")));
    assert_eq!((near.peer, far.peer), (Some(far.index), Some(near.index)));
    assert!(host.add_veth(&pair.veth("tr2", "eth0")).unwrap_err().already_exists());
    assert!(host.find_link("tr2").unwrap().is_none());
    host.del_link("tr1").unwrap();
    host.del_link("tr1").unwrap();
    assert!(pod.find_link("eth0").unwrap().is_none());
    assert_eq!(host.links().unwrap().len(), 1, "the loopback is left");
}

#[test]
fn addresses_routes_and_neighbours_are_what_was_asked_for() {
    if !testing::root("addresses_routes_and_neighbours_are_what_was_asked_for") {
        return;
    }
    let pair = Pair::new();
    let (mut host, mut pod) = pair.sockets();
    host.add_veth(&pair.veth("tr1", "eth0")).unwrap();
    let device = pod.link("eth0").unwrap().index;
    let addr = Cidr::host("10.9.0.5".parse().unwrap());
    let gateway = "169.254.1.1".parse().unwrap();
    let default = RouteEntry {
        gateway: Some(gateway),
        device: Some(device),
        onlink: true,
        mtu: Some(1300),
        ..RouteEntry::to(Cidr::default_route(false))
    };
    let v6 = Cidr::host("fd00::5".parse().unwrap());
    let mac = Mac([2, 0, 0, 0, 0, 1]);
    pod.run(&[
        LinkChange { up: Some(true), ..LinkChange::default() }.request(device),
        Request::add_address(device, addr),
        Request::add_address(device, v6),
        Request::add_neighbour(device, gateway, mac),
        default.add(),
    ])
    .unwrap();
    let addresses = pod.addresses(Some(device)).unwrap();
    assert!(addresses.iter().any(|a| a.addr == addr));
    assert!(addresses.iter().any(|a| a.addr == v6));
    assert!(pod.routes(false).unwrap().contains(&default));
    let neighbour = Neighbour { device, addr: gateway, mac: Some(mac), permanent: true };
    assert!(pod.neighbours(device).unwrap().contains(&neighbour));

    assert!(pod.add_address(device, addr).unwrap_err().already_exists());
    pod.del_route(&default).unwrap();
    pod.del_route(&default).unwrap();
    pod.del_address(device, addr).unwrap();
    pod.del_address(device, addr).unwrap();
    assert!(!pod.routes(false).unwrap().contains(&default));
}

#[test]
fn routes_that_refuse_and_routes_of_other_tables_are_kept_apart() {
    if !testing::root("routes_that_refuse_and_routes_of_other_tables_are_kept_apart") {
        return;
    }
    let pair = Pair::new();
    let (mut host, _) = pair.sockets();
    host.set_link("lo", &LinkChange { up: Some(true), ..LinkChange::default() }).unwrap();
    let lo = host.link("lo").unwrap().index;
    let unreachable =
        RouteEntry { kind: RouteKind::Unreachable, ..RouteEntry::to("10.8.0.0/16".parse().unwrap()) };
    let blackhole = RouteEntry {
        kind: RouteKind::Blackhole,
        table: 1000,
        priority: Some(7),
        ..RouteEntry::to("10.8.0.0/16".parse().unwrap())
    };
    let on_lo = RouteEntry {
        device: Some(lo),
        scope: Scope::Link,
        ..RouteEntry::to("10.96.0.0/12".parse().unwrap())
    };
    for route in [&unreachable, &blackhole, &on_lo, &unreachable] {
        host.replace_route(route).unwrap();
    }
    let routes = host.routes(false).unwrap();
    for route in [&unreachable, &blackhole, &on_lo] {
        assert_eq!(routes.iter().filter(|r| *r == route).count(), 1, "{route} in {routes:?}");
    }
}

#[test]
fn a_bridge_takes_ports_and_lets_them_hairpin() {
    if !testing::root("a_bridge_takes_ports_and_lets_them_hairpin") {
        return;
    }
    let pair = Pair::new();
    let (mut host, _) = pair.sockets();
    let mac = Mac([2, 0, 0, 0, 0, 9]);
    host.run(&[Request::add_bridge("br0", Some(mac), Some(1450))]).unwrap();
    host.add_veth(&pair.veth("tr1", "eth0")).unwrap();
    let bridge = host.link("br0").unwrap();
    assert_eq!((bridge.kind.as_deref(), bridge.mtu, bridge.mac), (Some("bridge"), 1450, Some(mac)));
    host.set_link("tr1", &LinkChange { master: Some(bridge.index), ..LinkChange::default() }).unwrap();
    host.run(&[Request::hairpin("tr1", true)]).unwrap();
    assert_eq!(host.link("tr1").unwrap().master, Some(bridge.index));
    let hairpin = pair
        .host
        .run(|| std::process::Command::new("ip").args(["-d", "link", "show", "tr1"]).output())
        .unwrap();
    if let Ok(output) = hairpin {
        assert!(String::from_utf8_lossy(&output.stdout).contains("hairpin on"));
    }
    host.set_link("br0", &LinkChange { promiscuous: Some(true), ..LinkChange::default() }).unwrap();
    assert!(host.link("br0").unwrap().promiscuous);
}

#[test]
fn an_error_names_the_object_and_the_kernels_words() {
    if !testing::root("an_error_names_the_object_and_the_kernels_words") {
        return;
    }
    let pair = Pair::new();
    let (mut host, _) = pair.sockets();
    let route = RouteEntry {
        gateway: Some("10.1.1.1".parse().unwrap()),
        ..RouteEntry::to("10.2.0.0/16".parse().unwrap())
    };
    let error = host.replace_route(&route).unwrap_err();
    assert_eq!(
        error.to_string(),
        "netlink: cannot set route to 10.2.0.0/16 via 10.1.1.1 (Nexthop has invalid gateway)"
    );
    assert!(host.link("none").unwrap_err().not_found());
}

#[test]
fn hardware_addresses_parse_and_print() {
    let mac: Mac = "0A:58:0a-01-02-ff".parse().unwrap();
    assert_eq!(mac.to_string(), "0a:58:0a:01:02:ff");
    for text in ["", "0a:58:0a:01:02", "0a:58:0a:01:02:ff:00", "zz:58:0a:01:02:ff", "a:58:0a:01:02:ff"] {
        assert!(text.parse::<Mac>().is_err(), "{text}");
    }
}

const TUNNEL: Vxlan = Vxlan {
    vni: 0x00ab_cdef,
    port: 8472,
    local: Some(std::net::IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1))),
    v6: false,
    learning: false,
};

fn tunnel(name: &str, vxlan: Vxlan) -> Request {
    let mac = Some(Mac([2, 0, 0, 0, 0, 7]));
    let kind = NewKind::Vxlan(vxlan);
    NewLink { name, kind, parent: None, netns: None, mac, mtu: Some(1450), up: true }.request()
}

#[test]
fn a_vxlan_link_is_what_was_asked_for_and_sends_each_address_where_it_is_told() {
    if !testing::root("a_vxlan_link_is_what_was_asked_for_and_sends_each_address_where_it_is_told") {
        return;
    }
    let pair = Pair::new();
    let (mut host, _) = pair.sockets();
    let v6 = Vxlan { local: Some("2001:db8::1".parse().unwrap()), v6: true, ..TUNNEL };
    let anywhere = Vxlan { local: None, vni: 1, learning: true, ..TUNNEL };
    let anywhere_6 = Vxlan { local: None, vni: 2, v6: true, ..TUNNEL };
    for (name, vxlan, known) in [
        ("vx4", TUNNEL, TUNNEL),
        ("vx6", v6, v6),
        ("vx", anywhere, anywhere),
        // The kernel does not tell it.
        ("vxany6", anywhere_6, Vxlan { v6: false, ..anywhere_6 }),
    ] {
        host.run(&[tunnel(name, vxlan)]).unwrap();
        let link = host.link(name).unwrap();
        assert_eq!(
            (link.kind.as_deref(), link.vxlan, link.mtu),
            (Some("vxlan"), Some(known), 1450),
            "{name}"
        );
        let mac = Mac([2, 0, 0, 0, 0, 8]);
        let ends: [std::net::IpAddr; 2] = if vxlan.v6 {
            ["2001:db8::2".parse().unwrap(), "2001:db8::3".parse().unwrap()]
        } else {
            ["192.0.2.2".parse().unwrap(), "192.0.2.3".parse().unwrap()]
        };
        for to in ends {
            host.run(&[Request::set_forward(link.index, mac, to)]).unwrap();
            let forward = Forward { device: link.index, mac, to, permanent: true };
            assert_eq!(host.forwards(link.index).unwrap(), [forward], "{name}");
        }
        host.run(&[Request::del_forward(link.index, mac), Request::del_forward(link.index, mac).or_absent()])
            .unwrap();
        assert_eq!(host.forwards(link.index).unwrap(), [], "{name}");
    }
}

#[test]
fn who_computes_checksums_is_read_and_set() {
    if !testing::root("who_computes_checksums_is_read_and_set") {
        return;
    }
    let pair = Pair::new();
    pair.sockets().0.run(&[tunnel("vx4", TUNNEL)]).unwrap();
    let seen = pair.host.run(|| {
        let mut seen = vec![crate::offload::sent_checksums("vx4").unwrap()];
        for on in [false, true] {
            crate::offload::leave_sent_checksums("vx4", on).unwrap();
            seen.push(crate::offload::sent_checksums("vx4").unwrap());
        }
        assert!(crate::offload::sent_checksums("none").is_err());
        seen
    });
    assert_eq!(seen.unwrap(), [true, false, true]);
}

#[test]
fn what_changes_is_told_until_somebody_says_stop() {
    if !testing::root("what_changes_is_told_until_somebody_says_stop") {
        return;
    }
    let pair = Pair::new();
    let (mut host, _) = pair.sockets();
    let mut monitor = Monitor::open_in(&pair.host).unwrap();
    let (ours, stop) = std::os::unix::net::UnixStream::pair().unwrap();
    host.run(&[tunnel("vx4", TUNNEL)]).unwrap();
    let device = host.link("vx4").unwrap().index;
    let (addr, mac) = ("10.9.0.0/24".parse().unwrap(), Mac([2, 0, 0, 0, 0, 8]));
    let route = RouteEntry { device: Some(device), priority: Some(7), ..RouteEntry::to(addr) };
    host.run(&[
        Request::add_address(device, "10.9.0.1/32".parse().unwrap()),
        Request::set_forward(device, mac, "192.0.2.2".parse().unwrap()),
        Request::add_neighbour(device, "10.9.0.2".parse().unwrap(), mac),
        route.add(),
        route.del(),
        Request::del_forward(device, mac),
        Request::del_link(device),
    ])
    .unwrap();
    let mut told = Vec::new();
    let name = "vx4".to_owned();
    while !told.contains(&Event::LinkGone { device, name: name.clone() }) {
        told.extend(monitor.wait(&stop).unwrap().expect("nobody said stop"));
    }
    let gone = RouteEntry { priority: Some(7), ..route.clone() };
    for event in [
        Event::Link { device, name },
        Event::Address { device, link_local: false },
        Event::Neighbour { device, gone: false },
        Event::Neighbour { device, gone: true },
    ] {
        assert!(told.contains(&event), "{event:?} in {told:?}");
    }
    let about = |event: &Event| match event {
        Event::Route(r) | Event::RouteGone(r) => r.dst == gone.dst && r.priority == gone.priority,
        _ => false,
    };
    let routes: Vec<_> = told.iter().filter(|event| about(event)).collect();
    assert!(matches!(routes[..], [Event::Route(_), Event::RouteGone(_)]), "{routes:?}");
    drop(ours);
    assert_eq!(monitor.wait(&stop).unwrap(), None);
}
