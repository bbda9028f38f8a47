//! Plugins that make the container's link.

use serde_json::{Value, json};
use trine_cni::Code;
use trine_kernel::netlink::{Mac, MacvlanMode, Route};
use trine_kernel::testing;

use crate::world::{World, up};

#[test]
fn ptp_routes_each_container_by_the_host_and_masquerades_it() {
    let Some(world) = World::with_pods("ptp_routes_each_container_by_the_host_and_masquerades_it", 2) else {
        return;
    };
    let config = json!({"type": "ptp", "mtu": 1400, "ipMasq": true, "ipam": world.host_local()});
    world.call_for("ADD", 1, &config).unwrap();
    let answer = world.call("ADD", &config).unwrap();
    assert_eq!(answer["ips"][0], json!({"interface": 1, "address": "10.77.0.3/24", "gateway": "10.77.0.1"}));
    assert_eq!(answer["interfaces"][1]["name"], "eth0");
    let host_end = answer["interfaces"][0]["name"].as_str().unwrap().to_owned();
    assert_eq!(world.eth0().mtu, 1400);
    assert_eq!(world.addresses("eth0"), ["10.77.0.3/24"]);
    let mut routes = world.routes("eth0");
    routes.sort();
    assert_eq!(routes, ["0.0.0.0/0 via 10.77.0.1", "10.77.0.0/24 via 10.77.0.1", "10.77.0.1/32"]);
    let link = world.route().link(&host_end).unwrap();
    let there = world.route().addresses(Some(link.index)).unwrap();
    assert!(there.iter().any(|a| a.addr.to_string() == "10.77.0.1/32"));
    world.call("CHECK", &config).unwrap();
    assert!(world.reaches(0, "10.77.0.2"));
    let tables = world.tables();
    assert!(tables.contains("masquerade") && tables.contains("10.77.0.3"), "{tables}");

    world.pod(0).del_address(world.eth0().index, "10.77.0.3/24".parse().unwrap()).unwrap();
    assert!(world.call("CHECK", &config).unwrap_err().to_string().contains("10.77.0.3/24 is missing"));
    world.call("DEL", &config).unwrap();
    world.call("DEL", &config).unwrap();
    assert!(world.pod(0).find_link("eth0").unwrap().is_none());
    assert_eq!(world.reservations(), ["10.77.0.2"]);
    assert!(!world.tables().contains("10.77.0.3"));
    world.gc(&config, &[]);
    assert_eq!(world.reservations(), [""; 0]);
    assert!(!world.tables().contains("table"), "{}", world.tables());
    std::thread::sleep(std::time::Duration::from_millis(800));
    assert_eq!(world.links(), [""; 0]);
}

#[test]
fn macvlan_is_above_a_link_of_the_hosts_in_the_mode_that_is_asked_for() {
    let Some(world) = World::new("macvlan_is_above_a_link_of_the_hosts_in_the_mode_that_is_asked_for") else {
        return;
    };
    world.add_device("nic0");
    for (mode, expected) in [
        ("", MacvlanMode::Bridge),
        ("private", MacvlanMode::Private),
        ("vepa", MacvlanMode::Vepa),
        ("passthru", MacvlanMode::Passthru),
    ] {
        let config = json!({"type": "macvlan", "master": "nic0", "mode": mode, "mtu": 1300, "bcqueuelen": 200,
            "ipam": world.host_local()});
        let answer = world.call("ADD", &config).unwrap();
        assert_eq!(answer["ips"][0]["interface"], 0);
        let link = world.eth0();
        assert_eq!((link.macvlan, link.mtu, link.up), (Some(expected), 1300, true));
        assert_eq!(world.addresses("eth0").len(), 1);
        world.call("CHECK", &config).unwrap();
        let mut other = config.clone();
        other["mode"] = json!(if mode == "vepa" { "private" } else { "vepa" });
        assert!(world.call("CHECK", &other).unwrap_err().to_string().contains("mode"));
        world.call("STATUS", &config).unwrap();
        world.call("DEL", &config).unwrap();
        world.call("DEL", &config).unwrap();
        assert!(world.pod(0).find_link("eth0").unwrap().is_none());
        assert_eq!(world.reservations(), [""; 0]);
    }
    let wished = json!({"type": "macvlan", "master": "nic0", "runtimeConfig": {"mac": "02:11:22:33:44:55"}});
    world.call("ADD", &wished).unwrap();
    assert_eq!(world.eth0().mac, Some(Mac([2, 0x11, 0x22, 0x33, 0x44, 0x55])));
    let again = world.call("ADD", &wished).unwrap_err();
    assert_eq!(again.code, Code::InvalidEnvironment, "{again}");
    assert_eq!(world.links(), ["nic0"], "nothing is left of the second try");
}

#[test]
fn macvlan_refuses_what_its_master_cannot_carry() {
    let Some(world) = World::new("macvlan_refuses_what_its_master_cannot_carry") else { return };
    world.add_device("nic0");
    for (own, words) in [
        (json!({"master": "nic0", "mode": "odd"}), "mode"),
        (json!({"master": "nic0", "mtu": 9000}), "MTU"),
        (json!({"master": "nic0", "mtu": -1}), "MTU"),
        (json!({"master": "nosuch"}), "nosuch"),
        (json!({}), "default route"),
    ] {
        let mut config = own.clone();
        config["type"] = json!("macvlan");
        let error = world.call("ADD", &config).unwrap_err();
        assert_eq!(error.code, Code::InvalidConfig, "{own}: {error}");
        assert!(error.to_string().contains(words), "{own}: {error}");
        assert!(world.pod(0).find_link("eth0").unwrap().is_none());
    }
}

#[test]
fn a_macvlan_may_be_above_a_link_of_the_container() {
    let Some(world) = World::new("a_macvlan_may_be_above_a_link_of_the_container") else { return };
    use trine_kernel::netlink::{NewKind, NewLink};
    let below = NewLink {
        name: "nic0",
        kind: NewKind::Ifb,
        parent: None,
        netns: None,
        mac: None,
        mtu: None,
        up: true,
    };
    world.pod(0).run(&[below.request()]).unwrap();
    let config = json!({"type": "macvlan", "master": "nic0", "linkInContainer": true});
    world.call("ADD", &config).unwrap();
    assert_eq!(world.eth0().macvlan, Some(MacvlanMode::Bridge));
    world.call("CHECK", &config).unwrap();
    world.call("DEL", &config).unwrap();
    assert!(world.pod(0).find_link("nic0").unwrap().is_some());
}

#[test]
fn a_device_of_the_hosts_goes_in_and_comes_back_under_its_name() {
    let Some(world) = World::new("a_device_of_the_hosts_goes_in_and_comes_back_under_its_name") else {
        return;
    };
    let device = world.add_device("nic7");
    let config = json!({"type": "host-device", "device": "nic7", "ipam": world.host_local()});
    let answer = world.call("ADD", &config).unwrap();
    assert_eq!(answer["interfaces"][0]["mac"], device.mac.unwrap().to_string());
    let inside = world.eth0();
    assert_eq!((inside.alias.as_deref(), inside.up), (Some("nic7"), true));
    assert_eq!(world.links(), [""; 0]);
    assert_eq!(world.addresses("eth0"), ["10.77.0.2/24"]);
    world.call("CHECK", &config).unwrap();
    assert_eq!(world.call("ADD", &config).unwrap_err().code, Code::InvalidConfig, "it is away");
    world.call("DEL", &config).unwrap();
    world.call("DEL", &config).unwrap();
    let back = world.route().link("nic7").unwrap();
    assert_eq!((back.mac, back.up, back.alias.as_deref()), (device.mac, false, None));
    assert_eq!(world.reservations(), [""; 0]);

    // By its hardware address, into a container whose link is there: it stays where it was.
    world.route().set_link("nic7", &up()).unwrap();
    let by_mac = json!({"type": "host-device", "hwaddr": device.mac.unwrap().to_string()});
    world.call("ADD", &by_mac).unwrap();
    let other = world.add_device("nic8");
    let taken = json!({"type": "host-device", "device": "nic8"});
    assert_eq!(world.call("ADD", &taken).unwrap_err().code, Code::InvalidEnvironment);
    let stayed = world.route().link("nic8").unwrap();
    assert_eq!((stayed.index, stayed.up, stayed.alias.as_deref()), (other.index, true, None));

    // It came back by itself under another name.
    let eth0 = world.eth0();
    world
        .pod(0)
        .set_link(&eth0, &trine_kernel::netlink::LinkChange { up: Some(false), ..Default::default() })
        .unwrap();
    let path = world.host.path().to_owned();
    let host = trine_kernel::netns::Netns::open(&path).unwrap();
    use std::os::fd::AsFd;
    let away = trine_kernel::netlink::LinkChange {
        netns: Some(host.as_fd()),
        name: Some("dev9"),
        ..Default::default()
    };
    world.pod(0).set_link(&eth0, &away).unwrap();
    world.gc(&config, &[]);
    assert!(world.route().find_link("nic7").unwrap().is_some(), "GC gives it its name again");
    assert!(world.route().find_link("dev9").unwrap().is_none());
}

#[test]
fn a_host_device_is_named_in_one_of_four_ways() {
    let Some(world) = World::new("a_host_device_is_named_in_one_of_four_ways") else { return };
    for own in [
        json!({}),
        json!({"device": "nosuch"}),
        json!({"hwaddr": "02:99:99:99:99:99"}),
        json!({"hwaddr": "odd"}),
        json!({"kernelpath": "/etc"}),
        json!({"kernelpath": "/sys/devices/../../etc"}),
        json!({"pciBusID": "0000:99:99.9"}),
        json!({"pciBusID": "../../x"}),
        json!({"runtimeConfig": {"deviceID": "nosuch"}}),
    ] {
        let mut config = own.clone();
        config["type"] = json!("host-device");
        assert_eq!(world.call("ADD", &config).unwrap_err().code, Code::InvalidConfig, "{own}");
    }
}

#[test]
fn tap_is_a_device_with_an_owner_and_may_join_a_bridge() {
    let Some(world) = World::new("tap_is_a_device_with_an_owner_and_may_join_a_bridge") else { return };
    if !std::path::Path::new("/dev/net/tun").exists() {
        return testing::skip("tap_is_a_device_with_an_owner_and_may_join_a_bridge", "needs /dev/net/tun");
    }
    world.pod(0).run(&[trine_kernel::netlink::Request::add_bridge("br0", None, None)]).unwrap();
    let config = json!({"type": "tap", "multiQueue": true, "mtu": 1400, "mac": "02:00:00:00:00:07", "owner": 1234,
        "group": 5678, "bridge": "br0", "ipam": world.host_local()});
    let answer = world.call("ADD", &config).unwrap();
    assert_eq!(answer["interfaces"][0]["mac"], "02:00:00:00:00:07");
    let link = world.eth0();
    assert_eq!((link.kind.as_deref(), link.mtu), (Some("tun"), 1400));
    assert_eq!(link.master, Some(world.pod(0).link("br0").unwrap().index));
    let said = World::run_in(&world.pods[0], "ip", &["-d", "link", "show", "eth0"]);
    for words in ["type tap", "multi_queue", "user 1234", "group 5678", "persist on"] {
        assert!(said.contains(words), "{words} in {said}");
    }
    world.call("CHECK", &config).unwrap();
    assert_eq!(world.call("ADD", &config).unwrap_err().code, Code::InvalidEnvironment);
    assert!(world.pod(0).find_link("eth0").unwrap().is_some(), "the first one stays");
    world.call("DEL", &config).unwrap();
    world.call("DEL", &config).unwrap();
    assert!(world.pod(0).find_link("eth0").unwrap().is_none());
    let odd = json!({"type": "tap", "selinuxContext": "system_u:x:y"});
    assert_eq!(world.call("ADD", &odd).unwrap_err().code, Code::UnsupportedField);
    let none = json!({"type": "tap", "bridge": "nosuch"});
    assert_eq!(world.call("ADD", &none).unwrap_err().code, Code::InvalidConfig);
    assert!(world.pod(0).find_link("eth0").unwrap().is_none());
}

#[test]
fn vlan_is_one_of_a_link_of_the_hosts() {
    let test = "vlan_is_one_of_a_link_of_the_hosts";
    let Some(world) = World::new(test) else { return };
    world.add_device("nic0");
    for id in [json!(-1), json!(4095)] {
        let config = json!({"type": "vlan", "master": "nic0", "vlanId": id});
        assert_eq!(world.call("ADD", &config).unwrap_err().code, Code::InvalidConfig);
    }
    let config =
        json!({"type": "vlan", "master": "nic0", "vlanId": 100, "mtu": 1400, "ipam": world.host_local()});
    let answer = world.call("ADD", &config);
    if let Err(error) = &answer {
        assert_eq!(error.code, Code::NotAvailable, "{error}");
        assert_eq!(world.links(), ["nic0"]);
        return testing::skip(test, "the kernel has no 802.1Q");
    }
    let link = world.eth0();
    assert_eq!((link.vlan, link.mtu, link.up), (Some(100), 1400, true));
    world.call("CHECK", &config).unwrap();
    let mut other = config.clone();
    other["vlanId"] = json!(101);
    assert!(world.call("CHECK", &other).is_err());
    world.call("DEL", &config).unwrap();
    world.call("DEL", &config).unwrap();
    assert_eq!(world.reservations(), [""; 0]);
}

#[test]
fn links_of_another_kind_are_not_taken_away() {
    let Some(world) = World::new("links_of_another_kind_are_not_taken_away") else { return };
    let bridge = trine_kernel::netlink::Request::add_bridge("eth0", None, None);
    world.pod(0).run(&[bridge]).unwrap();
    for kind in ["macvlan", "vlan", "tap", "host-device", "ptp", "bridge"] {
        let config: Value = json!({"type": kind, "device": "x"});
        world.call("DEL", &config).unwrap();
        let mut pod: Route = world.pod(0);
        assert!(pod.find_link("eth0").unwrap().is_some(), "{kind}");
    }
}
