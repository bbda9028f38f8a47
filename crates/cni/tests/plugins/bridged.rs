//! The options of `bridge`.

use serde_json::{Value, json};
use trine_cni::Code;
use trine_kernel::testing;

use crate::world::World;

fn bridge(world: &World, own: &Value) -> Value {
    let mut config =
        json!({"type": "bridge", "bridge": "br7", "isGateway": true, "ipam": world.host_local()});
    for (key, value) in own.as_object().unwrap() {
        config[key] = value.clone();
    }
    config
}

#[test]
fn a_bridge_masquerades_and_forgets_it_without_the_namespace() {
    let Some(world) = World::with_pods("a_bridge_masquerades_and_forgets_it_without_the_namespace", 2) else {
        return;
    };
    let config = bridge(&world, &json!({"ipMasq": true, "ipMasqBackend": "nftables"}));
    world.call_for("ADD", 1, &config).unwrap();
    world.call("ADD", &config).unwrap();
    world.call("CHECK", &config).unwrap();
    let tables = world.tables();
    for words in [
        "10.77.0.2",
        "10.77.0.3",
        "ip daddr 10.77.0.0/24 return",
        "ip daddr 224.0.0.0/4 return",
        "masquerade",
    ] {
        assert!(tables.contains(words), "{words} in {tables}");
    }
    let mut blind = config.clone();
    blind["prevResult"] = json!({});
    let env = trine_cni::spec::Env {
        command: "DEL".to_owned(),
        container_id: "c0".to_owned(),
        ifname: "eth0".to_owned(),
        ..Default::default()
    };
    world.call_as(&env, &blind).unwrap();
    let tables = world.tables();
    assert!(!tables.contains("10.77.0.3") && tables.contains("10.77.0.2"), "{tables}");
    world.gc(&config, &[]);
    assert!(!world.tables().contains("table"), "{}", world.tables());
}

#[test]
fn a_port_that_sends_from_anothers_hardware_address_is_not_heard() {
    let test = "a_port_that_sends_from_anothers_hardware_address_is_not_heard";
    let Some(world) = World::with_pods(test, 2) else { return };
    let config = bridge(&world, &json!({"macspoofchk": true}));
    world.call_for("ADD", 1, &config).unwrap();
    world.call("ADD", &config).unwrap();
    world.call("CHECK", &config).unwrap();
    let reached = || world.reaches(0, "10.77.0.2");
    assert!(reached());
    let other = trine_kernel::netlink::LinkChange {
        mac: Some("02:00:00:00:00:99".parse().unwrap()),
        ..Default::default()
    };
    world.pod(0).set_link("eth0", &other).unwrap();
    assert!(!reached());
    world.call("DEL", &config).unwrap();
    assert!(world.tables().contains("guarded"), "the other port's");
    world.gc(&config, &[]);
    assert!(!world.tables().contains("table"));
}

#[test]
fn isolated_ports_reach_the_bridge_but_not_each_other() {
    let Some(world) = World::with_pods("isolated_ports_reach_the_bridge_but_not_each_other", 2) else {
        return;
    };
    let config = bridge(&world, &json!({"portIsolation": true}));
    world.call_for("ADD", 1, &config).unwrap();
    world.call("ADD", &config).unwrap();
    assert!(world.reaches(0, "10.77.0.1"));
    assert!(!world.reaches(0, "10.77.0.2"));
}

#[test]
fn addresses_are_looked_for_on_the_link_if_that_is_asked_for() {
    let Some(world) = World::with_pods("addresses_are_looked_for_on_the_link_if_that_is_asked_for", 2) else {
        return;
    };
    let ipam =
        json!({"type": "static", "addresses": [{"address": "fd00:77::5/64", "gateway": "fd00:77::1"}]});
    let config = bridge(&world, &json!({"enabledad": true, "ipam": ipam}));
    let begin = std::time::Instant::now();
    world.call("ADD", &config).unwrap();
    assert!(begin.elapsed().as_millis() > 200, "it took its time");
    assert_eq!(world.addresses("eth0"), ["fd00:77::5/64"]);
    let twice = world.call_for("ADD", 1, &config).unwrap_err();
    assert!(twice.to_string().contains("somebody else"), "{twice}");
    assert!(world.pod(1).find_link("eth0").unwrap().is_none());
}

#[test]
fn a_containers_end_may_stay_down() {
    let Some(world) = World::new("a_containers_end_may_stay_down") else { return };
    let config = bridge(&world, &json!({"disableContainerInterface": true, "isGateway": false, "ipam": {}}));
    world.call("ADD", &config).unwrap();
    assert!(!world.eth0().up);
    world.call("CHECK", &config).unwrap();
    let both = bridge(&world, &json!({"disableContainerInterface": true}));
    assert_eq!(world.call("ADD", &both).unwrap_err().code, Code::InvalidConfig);
}

#[test]
fn an_address_in_the_way_goes_if_it_may() {
    let Some(world) = World::with_pods("an_address_in_the_way_goes_if_it_may", 2) else { return };
    let of = |subnet: &str, force: bool| {
        let ipam = json!({"type": "host-local", "dataDir": world.data(), "subnet": subnet});
        bridge(&world, &json!({"forceAddress": force, "ipam": ipam}))
    };
    world.call("ADD", &of("10.77.0.0/24", false)).unwrap();
    let error = world.call_for("ADD", 1, &of("10.78.0.0/24", false)).unwrap_err();
    assert!(error.to_string().contains("already has an IP address"), "{error}");
    assert_eq!(world.reservations(), ["10.77.0.2"], "a failed ADD keeps no address");
    world.call_for("ADD", 1, &of("10.78.0.0/24", true)).unwrap();
    let mut route = world.route();
    let index = route.link("br7").unwrap().index;
    let there = route.addresses(Some(index)).unwrap();
    let there: Vec<String> = there.iter().filter(|a| !a.link_scope).map(|a| a.addr.to_string()).collect();
    assert_eq!(there, ["10.78.0.1/24"]);
}

#[test]
fn a_port_has_its_vlans() {
    let test = "a_port_has_its_vlans";
    let Some(world) = World::with_pods(test, 3) else { return };
    for own in [json!({"vlan": 4095}), json!({"vlanTrunk": [{"minID": 9, "maxID": 8}]})] {
        assert_eq!(world.call("ADD", &bridge(&world, &own)).unwrap_err().code, Code::InvalidConfig);
    }
    let config = bridge(&world, &json!({"vlan": 100, "vlanTrunk": [{"minID": 200, "maxID": 210}]}));
    if let Err(error) = world.call_for("ADD", 1, &config) {
        assert_eq!(error.code, Code::NotAvailable, "{error}");
        assert_eq!(world.links(), [""; 0]);
        assert_eq!(world.reservations(), [""; 0]);
        return testing::skip(test, "the kernel has no VLAN filtering on bridges");
    }
    let answer = world.call("ADD", &config).unwrap();
    assert_eq!(answer["interfaces"][3]["name"], "br7.100");
    let reached = || world.reaches(0, "10.77.0.2");
    assert!(reached());
    // The gateway's address is in the VLAN.
    assert!(world.reaches(0, "10.77.0.1"));
    let mut other = config.clone();
    other["vlan"] = json!(300);
    other["isGateway"] = json!(false);
    world.call_for("ADD", 2, &other).unwrap();
    assert!(!world.reaches(2, "10.77.0.2"));
    world.call("DEL", &config).unwrap();
}
