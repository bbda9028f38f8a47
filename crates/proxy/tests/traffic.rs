//! Real packets through the real table, in namespaces.

mod lab;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use lab::{At, INSTANCE, Lab, tcp, udp};
use serde_json::json;
use trine_kernel::netns::Netns;
use trine_kernel::nft::matches::family;
use trine_kernel::nft::{Batch, Nft, octets};
use trine_kernel::testing::{self, sctp};

const NODE_PORT: u16 = 30080;

fn may_run(test: &str) -> bool {
    testing::root(test) && testing::program(test, "ip")
}

/// Runs `check` in a lab of each family.
fn in_both(test: &str, check: impl Fn(Lab)) {
    if may_run(test) {
        for v6 in [false, true] {
            eprintln!("{test}: {}", if v6 { "IPv6" } else { "IPv4" });
            check(Lab::new(v6));
        }
    }
}

fn node_port(at: &At, policy: &str) -> serde_json::Value {
    json!({
        "type": "NodePort",
        "externalTrafficPolicy": policy,
        "externalIPs": [at.external],
        "ports": [{"name": "web", "port": 80, "protocol": "TCP", "nodePort": NODE_PORT}],
    })
}

/// The caller hears it at once. A datagram of the host's own is refused by the send itself (`EPERM`): the kernel
/// makes no ICMP error for a packet whose route leads to `lo`.
fn refused<T: std::fmt::Debug>(what: std::io::Result<T>) -> bool {
    let at_once = [ErrorKind::ConnectionRefused, ErrorKind::PermissionDenied];
    matches!(&what, Err(error) if at_once.contains(&error.kind())) || {
        eprintln!("not refused: {what:?}");
        false
    }
}

#[test]
fn a_cluster_address_spreads_over_its_endpoints_from_the_host_and_from_a_pod() {
    in_both("a_cluster_address_spreads_over_its_endpoints_from_the_host_and_from_a_pod", |mut lab| {
        lab.serve("a", 8080);
        lab.serve("b", 8080);
        lab.service("web", json!({}));
        lab.endpoints("web", lab::NODE, &["a", "b"]);
        lab.sync();
        for from in [&lab.host, lab.pod("c")] {
            let mut answers: BTreeMap<String, usize> = BTreeMap::new();
            for _ in 0..40 {
                *answers.entry(tcp(from, (lab.at.vip, 80)).expect("an answer")).or_default() += 1;
            }
            assert_eq!(answers.len(), 2, "{answers:?}");
            assert!(answers.values().all(|count| *count >= 5), "{answers:?}");
            udp(from, (lab.at.vip, 53)).expect("an answer");
        }
        assert!(
            tcp(lab.pod("c"), (lab.at.vip, 80))
                .expect("an answer")
                .ends_with(&format!(" {}", lab.address("c"))),
            "the Pod's own address is seen"
        );
        assert!(
            tcp(&lab.host, (lab.at.vip, 80)).expect("an answer").ends_with(&format!(" {}", lab.at.host)),
            "the node's address is seen"
        );
    });
}

#[test]
fn sctp_is_balanced_as_tcp_is() {
    const TEST: &str = "sctp_is_balanced_as_tcp_is";
    if !sctp::there(TEST) {
        return;
    }
    in_both(TEST, |mut lab| {
        for pod in ["a", "b"] {
            let at = SocketAddr::new(lab.address(pod), 8080);
            let listener = lab.pod(pod).run(|| sctp::listen(at)).expect("enters").expect("a socket");
            std::thread::spawn(move || {
                listener.incoming().flatten().for_each(|mut client| drop(client.write_all(pod.as_bytes())));
            });
        }
        lab.service("web", json!({"ports": [{"name": "web", "port": 80, "protocol": "SCTP"}]}));
        lab.endpoints("web", lab::NODE, &["a", "b"]);
        lab.sync();
        let to = SocketAddr::new(lab.at.vip, 80);
        // What gets lost at the beginning is sent again after three seconds (RFC 9260, RTO.Initial).
        let patience = Duration::from_secs(10);
        let ask = |from: &Netns| -> std::io::Result<String> {
            let mut said = [0; 1];
            let talk = || sctp::connect(to, patience)?.read_exact(&mut said);
            from.run(talk).expect("enters").map(|()| String::from_utf8_lossy(&said).into_owned())
        };
        for from in [&lab.host, lab.pod("c")] {
            let answers: BTreeSet<String> = (0..20).map(|_| ask(from).expect("an answer")).collect();
            assert_eq!(answers.len(), 2, "{answers:?}");
        }
        lab.endpoints("web", lab::NODE, &[]);
        lab.sync();
        assert!(ask(lab.pod("c")).is_err());
    });
}

#[test]
fn a_client_stays_with_its_endpoint_until_that_goes_or_its_time_has_passed() {
    in_both("a_client_stays_with_its_endpoint_until_that_goes_or_its_time_has_passed", |mut lab| {
        lab.serve("a", 8080);
        lab.serve("b", 8080);
        let sticky = |seconds: u32| json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": seconds}}});
        lab.service("web", sticky(60));
        lab.endpoints("web", lab::NODE, &["a", "b"]);
        lab.sync();
        let answers = |lab: &Lab, from: &str, tries: usize| -> BTreeSet<String> {
            let from = if from == "host" { &lab.host } else { lab.pod(from) };
            (0..tries).map(|_| tcp(from, (lab.at.vip, 80)).expect("an answer")[..1].to_owned()).collect()
        };
        for from in ["c", "host"] {
            assert_eq!(answers(&lab, from, 30).len(), 1, "{from} stays");
        }
        let had = answers(&lab, "c", 1).pop_first().expect("an endpoint");
        let left = if had == "a" { "b" } else { "a" };
        lab.endpoints("web", lab::NODE, &[left]);
        lab.sync();
        assert_eq!(answers(&lab, "c", 5), BTreeSet::from([left.to_owned()]), "its endpoint went");
        lab.endpoints("web", lab::NODE, &["a", "b"]);
        lab.sync();
        assert_eq!(answers(&lab, "c", 30), BTreeSet::from([left.to_owned()]), "it stays where it went");
        lab.service("web", json!({}));
        lab.sync();
        assert_eq!(answers(&lab, "c", 40).len(), 2, "nobody stays any more");
        lab.service("web", sticky(1));
        lab.sync();
        let after_a_while: BTreeSet<String> = (0..12)
            .flat_map(|_| {
                std::thread::sleep(std::time::Duration::from_millis(1100));
                answers(&lab, "c", 1)
            })
            .collect();
        assert_eq!(after_a_while.len(), 2, "a second later it is a new client");
    });
}

#[test]
fn without_endpoints_and_without_a_service_the_caller_is_refused_at_once() {
    in_both("without_endpoints_and_without_a_service_the_caller_is_refused_at_once", |mut lab| {
        lab.service("web", node_port(&lab.at, "Cluster"));
        lab.endpoints("web", lab::NODE, &[]);
        lab.sync();
        for from in [&lab.host, lab.pod("c")] {
            assert!(refused(tcp(from, (lab.at.vip, 80))));
            assert!(refused(udp(from, (lab.at.vip, 53))));
            assert!(refused(tcp(from, (lab.at.unassigned, 80))));
            assert!(refused(tcp(from, (lab.at.host, NODE_PORT))));
            assert!(refused(tcp(from, (lab.at.external, 80))), "an external address without endpoints");
        }
        assert!(refused(tcp(&lab.ext, (lab.at.host, NODE_PORT))));
    });
}

#[test]
fn a_pod_reaches_itself_through_its_own_service() {
    in_both("a_pod_reaches_itself_through_its_own_service", |mut lab| {
        lab.serve("a", 8080);
        lab.service("web", json!({}));
        lab.endpoints("web", lab::NODE, &["a"]);
        lab.sync();
        let said = tcp(lab.pod("a"), (lab.at.vip, 80)).expect("an answer");
        assert!(said.starts_with("a ") && !said.ends_with(&format!(" {}", lab.address("a"))), "{said}");
        udp(lab.pod("a"), (lab.at.vip, 53)).expect("an answer");
    });
}

#[test]
fn a_node_port_is_open_to_outsiders_to_pods_and_to_the_host() {
    in_both("a_node_port_is_open_to_outsiders_to_pods_and_to_the_host", |mut lab| {
        lab.serve("a", 8080);
        lab.service("web", node_port(&lab.at, "Cluster"));
        lab.endpoints("web", lab::NODE, &["a"]);
        lab.sync();
        lab::ip(&lab.ext, &format!("route add {} via {}", lab.at.external, lab.at.host));
        for from in [&lab.ext, &lab.host, lab.pod("a"), lab.pod("b")] {
            for to in [(lab.at.host, NODE_PORT), (lab.at.external, 80)] {
                let said = tcp(from, to).expect("an answer");
                assert!(said.starts_with("a ") && !said.ends_with(&format!(" {}", lab.at.ext)), "{said}");
            }
        }
    });
}

#[test]
fn with_the_local_policy_outsiders_keep_their_address_and_get_local_endpoints_only() {
    in_both("with_the_local_policy_outsiders_keep_their_address_and_get_local_endpoints_only", |mut lab| {
        lab.serve("a", 8080);
        lab.serve("b", 8080);
        lab.service("web", node_port(&lab.at, "Local"));
        lab.endpoints("web", lab::NODE, &["a"]);
        lab.endpoints("web", "n2", &["b"]);
        lab.sync();
        for _ in 0..8 {
            assert_eq!(
                tcp(&lab.ext, (lab.at.host, NODE_PORT)).expect("an answer"),
                format!("a {}", lab.at.ext)
            );
        }
        lab.endpoints("web", lab::NODE, &[]);
        lab.sync();
        let error = tcp(&lab.ext, (lab.at.host, NODE_PORT)).expect_err("no local endpoint");
        assert!(matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock), "{error}");
        assert!(tcp(lab.pod("c"), (lab.at.host, NODE_PORT)).expect("Pods go anywhere").starts_with("b "));
        assert!(tcp(&lab.host, (lab.at.host, NODE_PORT)).expect("so does the host").starts_with("b "));
    });
}

#[test]
fn a_removed_endpoint_gets_nothing_more_and_a_deleted_service_refuses() {
    in_both("a_removed_endpoint_gets_nothing_more_and_a_deleted_service_refuses", |mut lab| {
        lab.serve("a", 8080);
        lab.serve("b", 8080);
        lab.service("web", json!({}));
        lab.endpoints("web", lab::NODE, &["a", "b"]);
        lab.sync();
        lab.endpoints("web", lab::NODE, &["b"]);
        lab.sync();
        for _ in 0..12 {
            assert!(tcp(lab.pod("c"), (lab.at.vip, 80)).expect("an answer").starts_with("b "));
        }
        lab.engine.model.set_service(trine_proxy::model::ServiceKey::new("default", "web"), None);
        lab.sync();
        assert!(refused(tcp(lab.pod("c"), (lab.at.vip, 80))));
        assert!(refused(tcp(&lab.host, (lab.at.vip, 80))));
        lab.service("web", json!({}));
        lab.sync();
        assert!(tcp(&lab.host, (lab.at.vip, 80)).expect("it is back").starts_with("b "));
    });
}

#[test]
fn nothing_for_a_pod_or_a_virtual_address_leaves_by_the_uplink() {
    in_both("nothing_for_a_pod_or_a_virtual_address_leaves_by_the_uplink", |mut lab| {
        lab.serve("a", 8080);
        lab.service("web", json!({}));
        lab.endpoints("web", lab::NODE, &["a"]);
        lab.sync();
        lab.watch_uplink();
        for from in [&lab.host, lab.pod("b")] {
            for to in [lab.at.vip, lab.at.unassigned, lab.at.stranger] {
                for port in [80, 81] {
                    let _ = tcp(from, (to, port));
                    let _ = udp(from, (to, port));
                }
            }
            let ping = |to: IpAddr| {
                std::process::Command::new("ping").args(["-c1", "-W1", &to.to_string()]).output()
            };
            let _ = from.run(|| ping(lab.at.unassigned).and_then(|_| ping(lab.at.stranger)));
            let _ = udp(from, (lab.at.ext, 9));
        }
        let seen = lab.seen_on_uplink();
        let guarded = [lab.at.vip, lab.at.stranger].map(|ip| octets(ip)[0]);
        assert!(seen.contains(&octets(lab.at.ext)), "the watch works: {seen:?}");
        assert!(seen.iter().all(|to| !guarded.contains(&to[0])), "{seen:?}");
    });
}

#[test]
fn a_pod_reaches_the_world_under_the_nodes_address() {
    in_both("a_pod_reaches_the_world_under_the_nodes_address", |lab| {
        let listener =
            lab.ext.run(|| std::net::TcpListener::bind((lab.at.ext, 7000))).expect("enters").expect("tcp");
        let server = std::thread::spawn(move || listener.accept().map(|(_, peer)| peer.ip()));
        assert!((0..10).any(|_| tcp(lab.pod("a"), (lab.at.ext, 7000)).is_ok()), "the world is out of reach");
        assert_eq!(server.join().expect("the server").expect("a connection"), lab.at.host);
    });
}

#[test]
fn a_node_behind_this_one_reaches_the_world_under_its_address_and_the_others_under_its_own() {
    in_both(
        "a_node_behind_this_one_reaches_the_world_under_its_address_and_the_others_under_its_own",
        |lab| {
            // What the lab calls Pods are nodes here.
            let mut config = lab::config(&lab.host, lab.at.host.is_ipv6());
            config.ranges[0].neighbours = Some(config.ranges[0].pods);
            let elsewhere = if config.ranges[0].v6() { "fd00:250::/64" } else { "10.250.0.0/16" };
            config.ranges[0].pods = elsewhere.parse().expect("a range");
            trine_proxy::Engine::new(config).expect("an engine").sync().expect("the table is loaded");
            let listener = lab
                .ext
                .run(|| std::net::TcpListener::bind((lab.at.ext, 7000)))
                .expect("enters")
                .expect("tcp");
            let server = std::thread::spawn(move || listener.accept().map(|(_, peer)| peer.ip()));
            assert!(
                (0..10).any(|_| tcp(lab.pod("a"), (lab.at.ext, 7000)).is_ok()),
                "the world is out of reach"
            );
            assert_eq!(server.join().expect("the server").expect("a connection"), lab.at.host);
            lab.serve("b", 8080);
            let said = tcp(lab.pod("a"), (lab.address("b"), 8080)).expect("b answers");
            assert_eq!(said, format!("b {}", lab.address("a")));
        },
    );
}

#[test]
fn rules_outlive_the_engine_come_back_when_flushed_and_are_cleaned_up() {
    in_both("rules_outlive_the_engine_come_back_when_flushed_and_are_cleaned_up", |mut lab| {
        lab.serve("a", 8080);
        lab.service("web", json!({}));
        lab.endpoints("web", lab::NODE, &["a"]);
        lab.sync();
        let (table, v6) = (format!("trine-{INSTANCE}"), lab.at.host.is_ipv6());
        let mut nft = Nft::open_in(&lab.host).expect("socket");
        let mut batch = Batch::new(family(v6));
        batch.delete_table(&table);
        nft.commit(batch).expect("somebody flushes");
        assert!(tcp(lab.pod("b"), (lab.at.vip, 80)).is_err());
        assert!(lab.engine.verify().expect("looked at"), "it was gone");
        tcp(lab.pod("b"), (lab.at.vip, 80)).expect("it is back");
        assert!(!lab.engine.verify().expect("looked at"), "it is there");
        let config = lab::config(&lab.host, lab.at.host.is_ipv6());
        lab.engine = trine_proxy::Engine::new(config).expect("another engine");
        tcp(lab.pod("b"), (lab.at.vip, 80)).expect("the rules are as the first left them");
        let path = lab.host.path().to_owned();
        for _ in 0..2 {
            trine_proxy::cleanup(INSTANCE, Some(&path)).expect("absent is success");
        }
        assert!(nft.tables(family(v6)).expect("tables").is_empty());
        let routes =
            trine_kernel::netlink::Route::open_in(&lab.host).expect("socket").routes(v6).expect("routes");
        assert!(routes.iter().all(|r| r.protocol != trine_kernel::netlink::TRINE_PROTOCOL), "{routes:?}");
    });
}

#[test]
fn an_old_nft_can_list_the_table() {
    const NAME: &str = "an_old_nft_can_list_the_table";
    if !may_run(NAME) || !testing::program(NAME, "nft") {
        return;
    }
    let mut lab = Lab::new(false);
    lab.service("web", node_port(&lab.at, "Local"));
    lab.endpoints("web", lab::NODE, &["a", "b"]);
    lab.sync();
    let output = lab.host.run(|| std::process::Command::new("nft").args(["list", "ruleset"]).output());
    let output = output.expect("enters").expect("nft runs");
    let listing = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for wanted in [
        "10.96.0.10 . tcp . 80 : 0x00001002",
        "dnat ip to ct mark & 0x7fffffff . numgen random mod 2 map @endpoints",
        "ct mark & 0x00000fff vmap @by-count",
        "0x00001002 . 0x00000000 : 10.244.0.2 . 8080",
        "ip daddr 10.96.0.0/16 goto reject comment \"no such Service or endpoint\"",
    ] {
        assert!(listing.contains(wanted), "{wanted:?} is not in\n{listing}");
    }
}
