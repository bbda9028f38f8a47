//! Plugins that are chained behind the one that made the link.

use serde_json::{Value, json};
use trine_cni::Code;
use trine_cni::spec::Env;
use trine_kernel::testing;

use crate::world::World;

fn below(world: &World) -> (Value, Value) {
    let config = json!({"type": "bridge", "bridge": "br7", "isGateway": true, "ipam": world.host_local()});
    let answer = world.call("ADD", &config).unwrap();
    (config, answer)
}

#[test]
fn tuning_sets_a_link_and_gives_it_back_what_it_had() {
    let Some(world) = World::new("tuning_sets_a_link_and_gives_it_back_what_it_had") else { return };
    let (_, answer) = below(&world);
    let before = world.eth0();
    let config = json!({"type": "tuning", "dataDir": world.data().join("tuning"), "mtu": 1300, "promisc": true,
        "allmulti": true, "txQLen": 77, "mac": "02:00:00:00:00:42",
        "sysctl": {"net.ipv4.conf.IFNAME.arp_filter": "1", "net.core.somaxconn": "500"}});
    let config = World::chained(&config, &answer);
    let tuned = world.call("ADD", &config).unwrap();
    assert_eq!(tuned["interfaces"][2]["mac"], "02:00:00:00:00:42");
    assert_eq!(tuned["interfaces"][2]["mtu"], 1300);
    let link = world.eth0();
    assert_eq!((link.mtu, link.promiscuous, link.all_multicast, link.transmit_queue), (1300, true, true, 77));
    let sysctl = |key: &str| world.pods[0].run(|| trine_kernel::sysctl::read(key)).unwrap().unwrap();
    assert_eq!(
        (sysctl("net/ipv4/conf/eth0/arp_filter").as_str(), sysctl("net/core/somaxconn").as_str()),
        ("1", "500")
    );
    world.call("CHECK", &config).unwrap();
    let mut other = config.clone();
    other["mtu"] = json!(1200);
    assert!(world.call("CHECK", &other).unwrap_err().to_string().contains("MTU"));
    world.call("DEL", &config).unwrap();
    world.call("DEL", &config).unwrap();
    let after = world.eth0();
    assert_eq!(
        (after.mtu, after.promiscuous, after.all_multicast, after.transmit_queue, after.mac),
        (before.mtu, false, false, before.transmit_queue, before.mac)
    );
}

#[test]
fn tuning_forgets_by_gc_what_its_own_network_kept() {
    let Some(world) = World::new("tuning_forgets_by_gc_what_its_own_network_kept") else { return };
    let (_, answer) = below(&world);
    let dir = world.data().join("tuning");
    let config = World::chained(&json!({"type": "tuning", "dataDir": dir, "mtu": 1300}), &answer);
    world.call("ADD", &config).unwrap();
    std::fs::write(dir.join("another_eth0.json"), r#"{"mtu": 9}"#).unwrap();
    let files = || std::fs::read_dir(&dir).unwrap().count();
    world.gc(&config, &[0]);
    assert_eq!(files(), 2);
    let mut other = config.clone();
    other["name"] = json!("other");
    world.gc(&other, &[]);
    assert_eq!(files(), 2, "another network's");
    world.gc(&config, &[]);
    assert_eq!(files(), 1, "the reference's stays: nobody knows whose it is");
}

#[test]
fn packets_leave_by_the_link_that_has_their_source() {
    let Some(world) = World::new("packets_leave_by_the_link_that_has_their_source") else { return };
    let (_, answer) = below(&world);
    let config = World::chained(&json!({"type": "sbr"}), &answer);
    world.call("ADD", &config).unwrap();
    let rules = |world: &World| {
        let rules = world.pod(0).rules(false).unwrap();
        let from = rules.iter().filter_map(|r| Some(format!("{} {}", r.source?, r.table)));
        from.collect::<Vec<_>>()
    };
    assert_eq!(rules(&world), ["10.77.0.2/32 100"]);
    assert_eq!(world.routes("eth0"), [""; 0], "they are in another table");
    let table: Vec<_> = world.pod(0).routes(false).unwrap().into_iter().filter(|r| r.table == 100).collect();
    assert_eq!(table.len(), 2, "{table:?}");
    let way = World::run_in(&world.pods[0], "ip", &["route", "get", "10.9.9.9", "from", "10.77.0.2"]);
    assert!(way.contains("via 10.77.0.1") && way.contains("table 100"), "{way}");
    world.call("CHECK", &config).unwrap();
    world.call("DEL", &config).unwrap();
    world.call("DEL", &config).unwrap();
    assert_eq!(rules(&world), [""; 0]);
    assert!(world.call("CHECK", &config).is_err());
    let own = World::chained(&json!({"type": "sbr", "table": 4242}), &answer);
    world.call("ADD", &own).unwrap();
    assert_eq!(rules(&world), ["10.77.0.2/32 4242"]);
    world.call("DEL", &own).unwrap();
    assert_eq!(rules(&world), [""; 0]);
}

#[test]
fn bandwidth_slows_down_both_ways_and_leaves_no_queue() {
    let Some(world) = World::new("bandwidth_slows_down_both_ways_and_leaves_no_queue") else { return };
    let (_, answer) = below(&world);
    let limits = json!({"ingressRate": 8_000_000, "ingressBurst": 80_000, "egressRate": 16_000_000, "egressBurst": 80_000});
    let config = json!({"type": "bandwidth", "runtimeConfig": {"bandwidth": limits}});
    let config = World::chained(&config, &answer);
    let slow = world.call("ADD", &config).unwrap();
    let ifb = slow["interfaces"][3]["name"].as_str().unwrap().to_owned();
    let end = slow["interfaces"][1]["name"].as_str().unwrap().to_owned();
    let mut route = world.route();
    let of = |route: &mut trine_kernel::netlink::Route, name: &str| {
        let index = route.link(name).unwrap().index;
        route.token_bucket(index).unwrap().unwrap()
    };
    assert_eq!((of(&mut route, &end).rate, of(&mut route, &ifb).rate), (1_000_000, 2_000_000));
    assert_eq!(of(&mut route, &end).limit, 25_000 + 10_000);
    world.call("CHECK", &config).unwrap();
    let mut other = config.clone();
    other["runtimeConfig"]["bandwidth"]["egressRate"] = json!(24_000_000);
    assert!(world.call("CHECK", &other).is_err());
    // It still passes frames, both ways.
    assert!(world.reaches(0, "10.77.0.1"));
    let passed = world.run("tc", &["-s", "qdisc", "show", "dev", &ifb]);
    assert!(passed.contains("tbf") && !passed.contains("Sent 0 bytes"), "{passed}");
    world.call("DEL", &config).unwrap();
    world.call("DEL", &config).unwrap();
    assert!(route.find_link(&ifb).unwrap().is_none());

    route.del_link(&end).unwrap();
    let (_, answer) = {
        let env = Env {
            command: "DEL".to_owned(),
            container_id: "c0".to_owned(),
            ifname: "eth0".to_owned(),
            ..Env::default()
        };
        let own = json!({"type": "bridge", "bridge": "br7", "isGateway": true, "ipam": world.host_local()});
        world.call_as(&env, &own).unwrap();
        below(&world)
    };
    let config = World::chained(&config, &answer);
    world.call("ADD", &config).unwrap();
    world.gc(&config, &[0]);
    assert!(route.find_link(&ifb).unwrap().is_some());
    world.gc(&config, &[]);
    assert!(route.find_link(&ifb).unwrap().is_none());
}

#[test]
fn bandwidth_refuses_what_is_half_said() {
    let Some(world) = World::new("bandwidth_refuses_what_is_half_said") else { return };
    let (_, answer) = below(&world);
    for own in [json!({"ingressRate": 8000}), json!({"egressBurst": 8000})] {
        let mut config = World::chained(&own, &answer);
        config["type"] = json!("bandwidth");
        assert_eq!(world.call("ADD", &config).unwrap_err().code, Code::InvalidConfig, "{own}");
    }
    let nothing = World::chained(&json!({"type": "bandwidth"}), &answer);
    assert_eq!(world.call("ADD", &nothing).unwrap(), answer, "nothing is limited");
}

#[test]
fn bridges_with_a_policy_do_not_reach_each_other() {
    let Some(world) = World::with_pods("bridges_with_a_policy_do_not_reach_each_other", 2) else { return };
    let bridge = |n: usize| {
        let ipam = json!({"type": "host-local", "dataDir": world.data(), "subnet": format!("10.8{n}.0.0/24"),
            "routes": [{"dst": "0.0.0.0/0"}]});
        json!({"type": "bridge", "name": format!("net{n}"), "bridge": format!("br{n}"), "isGateway": true, "ipam": ipam})
    };
    let answers: Vec<Value> = (0..2).map(|n| world.call_for("ADD", n, &bridge(n)).unwrap()).collect();
    let ping = |to: &str| world.reaches(0, to);
    assert!(ping("10.81.0.2"));
    let wall = |n: usize, policy: &str| {
        let own = json!({"type": "firewall", "name": format!("net{n}"), "ingressPolicy": policy});
        World::chained(&own, &answers[n])
    };
    world.call_for("ADD", 0, &wall(0, "same-bridge")).unwrap();
    assert!(ping("10.81.0.2"), "only one of them has a policy");
    world.call_for("ADD", 1, &wall(1, "isolated")).unwrap();
    assert!(!ping("10.81.0.2"));
    assert!(ping("10.80.0.1"), "the host is not another bridge");
    world.call_for("CHECK", 0, &wall(0, "same-bridge")).unwrap();
    assert!(world.call_for("CHECK", 0, &wall(0, "isolated")).is_err());
    assert_eq!(world.call_for("ADD", 0, &wall(0, "odd")).unwrap_err().code, Code::InvalidConfig);
    world.call_for("DEL", 0, &wall(0, "same-bridge")).unwrap();
    world.call_for("DEL", 0, &wall(0, "same-bridge")).unwrap();
    assert!(ping("10.81.0.2"));
    let mut gc = wall(1, "isolated");
    gc["cni.dev/valid-attachments"] = json!([]);
    world.call("GC", &gc).unwrap();
    assert!(!world.tables().contains("table"), "{}", world.tables());
    world.call("STATUS", &wall(0, "open")).unwrap();
    world.run(
        "nft",
        &["add table ip x; add chain ip x f { type filter hook forward priority 0; policy drop; }"],
    );
    assert_eq!(world.call("STATUS", &wall(0, "open")).unwrap_err().code, Code::LimitedConnectivity);
}

#[test]
fn a_link_joins_a_vrf_of_the_container() {
    let test = "a_link_joins_a_vrf_of_the_container";
    let Some(world) = World::new(test) else { return };
    let (_, answer) = below(&world);
    let none = World::chained(&json!({"type": "vrf"}), &answer);
    assert_eq!(world.call("ADD", &none).unwrap_err().code, Code::InvalidConfig);
    let config = World::chained(&json!({"type": "vrf", "vrfname": "blue", "table": 77}), &answer);
    if let Err(error) = world.call("ADD", &config) {
        assert_eq!(error.code, Code::NotAvailable, "{error}");
        world.call("DEL", &config).unwrap();
        return testing::skip(test, "the kernel has no VRF");
    }
    let vrf = world.pod(0).link("blue").unwrap();
    assert_eq!((vrf.vrf_table, world.eth0().master), (Some(77), Some(vrf.index)));
    assert_eq!(world.addresses("eth0"), ["10.77.0.2/24"]);
    world.call("CHECK", &config).unwrap();
    let other = World::chained(&json!({"type": "vrf", "vrfname": "blue", "table": 78}), &answer);
    assert_eq!(world.call("ADD", &other).unwrap_err().code, Code::InvalidConfig);
    world.call("DEL", &config).unwrap();
    world.call("DEL", &config).unwrap();
    assert!(world.pod(0).find_link("blue").unwrap().is_none());
    assert_eq!(world.eth0().master, None);
}
