//! Tables for the ports of the host.

use serde_json::{Value, json};
use trine_kernel::nft::Side;

use super::*;
use crate::plugins::owner;
use crate::spec::AttachmentId;

fn ports(value: Value) -> Vec<Port> {
    serde_json::from_value(value).unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn id(container: &str) -> AttachmentId {
    AttachmentId { container_id: container.to_owned(), ifname: "eth0".to_owned() }
}

fn mapping(host: &str, port: u16, target: &str) -> Mapping {
    Mapping { host: ip(host), proto: UDP, port, target: ip(target), target_port: 53 }
}

#[test]
fn a_port_is_of_the_families_that_the_container_and_its_address_have() {
    let both = [ip("10.0.0.5"), ip("10.0.0.6"), ip("fd00::5")];
    let rows: [(Value, &[IpAddr], &[&str]); 6] = [
        (json!({}), &both, &["0.0.0.0>10.0.0.5", "::>fd00::5"]),
        (json!({"hostIP": "127.0.0.1"}), &both, &["127.0.0.1>10.0.0.5"]),
        (json!({"hostIP": "::"}), &both, &["::>fd00::5"]),
        (json!({"hostIP": "::1"}), &both, &[]),
        (json!({"hostIP": "192.0.2.1"}), &both[2..], &[]),
        (json!({"hostIP": "0.0.0.0"}), &both[..1], &["0.0.0.0>10.0.0.5"]),
    ];
    for (mut port, ips, expected) in rows {
        port["hostPort"] = json!(8080);
        port["containerPort"] = json!(80);
        let all = mappings(&ports(json!([port])), ips).unwrap();
        let said: Vec<String> = all.iter().map(|m| format!("{}>{}", m.host, m.target)).collect();
        assert_eq!(said, expected, "{port}");
        for mapping in all {
            assert_eq!(Mapping::read(&mapping.key(), &mapping.value()), Some(mapping));
        }
    }
}

#[test]
fn what_is_no_port_is_refused_and_of_two_alike_the_last_counts() {
    for (port, words) in [
        (json!({"hostPort": 0, "containerPort": 80}), "host port number: 0"),
        (json!({"hostPort": 80, "containerPort": 70000}), "container port number: 70000"),
        (json!({"hostPort": 80, "containerPort": 80, "protocol": "icmp"}), "icmp"),
        (json!({"hostPort": 80, "containerPort": 80, "hostIP": "here"}), "here"),
    ] {
        let error = mappings(&ports(json!([port])), &[ip("10.0.0.5")]).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
    let twice = json!([{"hostPort": 80, "containerPort": 1}, {"hostPort": 80, "containerPort": 2, "protocol": "TCP"},
        {"hostPort": 80, "containerPort": 3, "protocol": "udp"}]);
    let all = mappings(&ports(twice), &[ip("10.0.0.5")]).unwrap();
    assert_eq!(all.iter().map(|m| m.target_port).collect::<Vec<_>>(), [2, 3]);
}

/// The table after a change.
fn after(mut present: Present, change: Change) -> Present {
    match change {
        Change::Nothing => present,
        Change::Everything => Present::default(),
        Change::Some { keys, devices, added, new_devices } => {
            for key in keys {
                assert!(present.mappings.iter().any(|m| m.key() == key), "what goes was there");
                present.mappings.retain(|m| m.key() != key);
                present.owners.retain(|(other, _)| *other != key);
            }
            present.devices.retain(|pair| !devices.0.contains(pair));
            for (mapping, owner) in added {
                assert!(!present.leads(&mapping), "what comes was not there");
                present.owners.push((mapping.key(), owner));
                present.mappings.push(mapping);
            }
            present.devices.extend(new_devices.0);
            present
        }
    }
}

#[test]
fn a_port_is_its_newest_owners_and_goes_with_it_alone() {
    let (one, two) = (Owner::new("n", &id("one")), Owner::new("n", &id("two")));
    let first = add(&Present::default(), one, &[mapping("0.0.0.0", 53, "10.0.0.1")], Some(7));
    let present = after(Present::default(), first);
    let second = add(
        &present,
        two,
        &[mapping("0.0.0.0", 53, "10.0.0.2"), mapping("0.0.0.0", 54, "10.0.0.2")],
        Some(7),
    );
    let Change::Some { new_devices, .. } = &second else { panic!("{second:?}") };
    assert!(new_devices.1.is_empty(), "the device is known already");
    let present = after(present, second);
    assert!(present.leads(&mapping("0.0.0.0", 53, "10.0.0.2")) && present.mappings.len() == 2);
    // The first owner's end does not touch what has become another's.
    let (change, gone) = remove(&present, |owner| *owner == one);
    assert!(gone.is_empty());
    let Change::Some { devices, .. } = &change else { panic!("{change:?}") };
    assert_eq!(*devices, (vec![(one, 7)], Vec::new()), "the second one still needs the device");
    let present = after(present, change);
    assert_eq!(remove(&present, |owner| *owner == one).0, Change::Nothing, "again");
    let (change, gone) = remove(&present, |owner| *owner == two);
    assert_eq!((change, gone.len()), (Change::Everything, 2));
}

#[test]
fn owners_know_their_network() {
    let one = Owner::new("n", &id("one"));
    assert!(one.is_of(owner::network("n")) && !one.is_of(owner::network("m")));
    assert_ne!(one, Owner::new("n", &id("two")));
    assert_ne!(one, Owner::new("m", &id("one")));
}

#[test]
fn datagrams_connections_are_forgotten_only_if_they_met_another_host() {
    let side = |source: &str, destination: &str, destination_port| Side {
        source: ip(source),
        destination: ip(destination),
        source_port: 4000,
        destination_port,
    };
    let back = |source: &str, source_port| Side { source_port, ..side(source, "192.0.2.9", 4000) };
    let flow = |original, reply| Flow { proto: UDP, original, reply };
    let wanted = mapping("0.0.0.0", 5353, "10.0.0.5");
    let locals = [ip("192.0.2.1")];
    let rows = [
        (
            "before it was there",
            flow(side("192.0.2.9", "192.0.2.1", 5353), back("192.0.2.1", 5353)),
            true,
            false,
        ),
        ("by loopback", flow(side("127.0.0.1", "127.0.0.1", 5353), back("127.0.0.1", 5353)), true, false),
        ("another port", flow(side("192.0.2.9", "192.0.2.1", 53), back("192.0.2.1", 53)), false, false),
        (
            "another host",
            flow(side("10.0.0.7", "198.51.100.1", 5353), back("198.51.100.1", 5353)),
            false,
            false,
        ),
        ("led here", flow(side("192.0.2.9", "192.0.2.1", 5353), back("10.0.0.5", 53)), false, true),
    ];
    for (name, flow, old, led) in rows {
        assert_eq!(is_old(&flow, &[wanted], &locals), old, "{name}");
        assert_eq!(led_to(&flow, &wanted), led, "{name}");
        assert!(!is_old(&Flow { proto: 6, ..flow }, &[wanted], &locals), "{name}");
    }
}
