//! Real packets through the real tables, in namespaces, of both families.

mod lab;

use std::io::{Read, Write};
use std::net::SocketAddr;

use lab::{INSTANCE, Lab, address, heard, says};
use serde_json::{Value, json};
use trine_kernel::nft::held::{self, Held};
use trine_kernel::nft::{Batch, Family, Nft};
use trine_kernel::testing::{self, sctp};

fn may_run(test: &str) -> bool {
    testing::root(test) && testing::program(test, "ip")
}

fn pod(name: &str) -> Value {
    json!({"matchLabels": {"pod": name}})
}

/// From, to, port; whether it is let pass.
type Row<'a> = (&'a str, &'a str, u16, bool);

fn check(lab: &Lab, rows: &[Row<'_>]) {
    for (from, to, port, wanted) in rows {
        for v6 in [false, true] {
            let found = lab.tcp(from, to, v6, *port, *wanted);
            assert_eq!(found, *wanted, "TCP {from} to {to}:{port}, IPv6 {v6}\n{}", ruleset(lab));
        }
    }
}

fn ruleset(lab: &Lab) -> String {
    let listed = lab.host.run(|| std::process::Command::new("nft").args(["list", "ruleset"]).output());
    listed.expect("enters").map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).unwrap_or_default()
}

fn serving() -> Lab {
    let lab = Lab::new();
    for name in ["a", "b", "c", "ext", "host"] {
        for port in [80, 81] {
            lab.serve(name, port);
        }
    }
    lab
}

#[test]
fn policies_let_pass_what_they_say_and_nothing_else() {
    if !may_run("policies_let_pass_what_they_say_and_nothing_else") {
        return;
    }
    let mut lab = serving();
    check(
        &lab,
        &[("b", "a", 80, true), ("c", "a", 80, true), ("ext", "a", 80, true), ("a", "ext", 80, true)],
    );
    let table: [(&str, Value, &[Row<'_>]); 9] = [
        (
            "nobody may come in, but the node itself and its own Pod; answers may",
            json!({"podSelector": pod("a"), "policyTypes": ["Ingress"]}),
            &[
                ("b", "a", 80, false),
                ("ext", "a", 80, false),
                ("a", "b", 80, true),
                ("host", "a", 80, true),
                ("b", "c", 80, true),
                ("a", "a", 80, true),
            ],
        ),
        (
            "nobody may go out, but to the node itself",
            json!({"podSelector": {}, "policyTypes": ["Egress"]}),
            &[
                ("a", "b", 80, false),
                ("a", "ext", 80, false),
                ("a", "host", 80, true),
                ("c", "a", 80, true),
                ("c", "b", 80, true),
            ],
        ),
        (
            "an empty rule is everybody",
            json!({"podSelector": pod("a"), "ingress": [{}]}),
            &[("b", "a", 80, true), ("ext", "a", 80, true)],
        ),
        (
            "a Pod of the same namespace, at one port",
            json!({"podSelector": pod("a"), "ingress": [{"from": [{"podSelector": pod("b")}], "ports": [{"port": 80}]}]}),
            &[("b", "a", 80, true), ("b", "a", 81, false), ("c", "a", 80, false), ("ext", "a", 80, false)],
        ),
        (
            "a namespace, and a Pod within it",
            json!({"podSelector": pod("a"), "ingress": [{"from": [{"namespaceSelector": {"matchLabels": {"ns": "y"}}, "podSelector": pod("c")}]}]}),
            &[("b", "a", 80, false), ("c", "a", 80, true), ("c", "a", 81, true)],
        ),
        (
            "a block without what is excepted",
            json!({"podSelector": pod("a"), "egress": [{"to": [{"ipBlock": {"cidr": "10.244.0.0/24", "except": ["10.244.0.4/32"]}}, {"ipBlock": {"cidr": "fd00:244::/64", "except": ["fd00:244::4/128"]}}]}], "policyTypes": ["Egress"]}),
            &[("a", "b", 80, true), ("a", "c", 80, false), ("a", "ext", 80, false), ("ext", "a", 80, true)],
        ),
        (
            "a named port of the one who is reached, and a range",
            json!({"podSelector": pod("a"), "egress": [{"ports": [{"port": "web"}]}, {"to": [{"podSelector": pod("b")}], "ports": [{"port": 81, "endPort": 90}]}], "policyTypes": ["Egress"]}),
            &[
                ("a", "b", 80, true),
                ("a", "c", 80, true),
                ("a", "c", 81, false),
                ("a", "b", 81, true),
                ("a", "ext", 80, false),
            ],
        ),
        (
            "a named port of the isolated Pod, and several numbers",
            json!({"podSelector": {}, "ingress": [{"ports": [{"port": "web"}]}, {"from": [{"podSelector": pod("a")}], "ports": [{"port": 81}, {"port": 82}]}]}),
            &[("c", "a", 80, true), ("c", "a", 81, false), ("a", "b", 81, true), ("b", "a", 81, false)],
        ),
        (
            "ports of another protocol open nothing",
            json!({"podSelector": pod("a"), "ingress": [{"ports": [{"port": 80, "protocol": "SCTP"}, {"port": 81, "protocol": "UDP"}]}]}),
            &[("b", "a", 80, false), ("b", "a", 81, false)],
        ),
    ];
    for (what, spec, rows) in table {
        eprintln!("{what}");
        lab.policy("p", Some(spec));
        check(&lab, rows);
    }
    lab.policy("p", None);
    check(&lab, &[("b", "a", 80, true), ("a", "ext", 80, true)]);
    let mut nft = Nft::open_in(&lab.host).expect("socket");
    for family in [Family::Ip, Family::Ip6] {
        assert_eq!(nft.tables(family).expect("tables"), Vec::<String>::new(), "no policy costs nothing");
    }
}

#[test]
fn sctp_is_judged_by_its_own_rules() {
    const TEST: &str = "sctp_is_judged_by_its_own_rules";
    if !sctp::there(TEST) || !may_run(TEST) {
        return;
    }
    let mut lab = Lab::new();
    let any = |port| SocketAddr::new(std::net::Ipv6Addr::UNSPECIFIED.into(), port);
    for port in [80, 81] {
        let listener = lab.netns("a").run(|| sctp::listen(any(port))).expect("enters").expect("a socket");
        std::thread::spawn(move || {
            listener.incoming().flatten().for_each(|mut client| drop(client.write_all(b"a")));
        });
    }
    let heard = |lab: &Lab, from: &str, port: u16, v6: bool, wanted: bool| {
        let to = SocketAddr::new(address("a", v6), port);
        let talk = || sctp::connect(to, lab::patience(wanted))?.read_exact(&mut [0; 1]);
        lab.netns(from).run(talk).expect("enters").is_ok()
    };
    let ingress = |protocol: &str| {
        let from = json!([{"podSelector": pod("b")}]);
        let ports = json!([{"protocol": protocol, "port": 80}]);
        json!({"podSelector": pod("a"), "policyTypes": ["Ingress"], "ingress": [{"from": from, "ports": ports}]})
    };
    for (policy, passes) in
        [(None, [true; 3]), (Some("SCTP"), [true, false, false]), (Some("TCP"), [false; 3])]
    {
        lab.policy("p", policy.map(ingress));
        for ((from, port), wanted) in [("b", 80), ("b", 81), ("c", 80)].into_iter().zip(passes) {
            for v6 in [false, true] {
                assert_eq!(
                    heard(&lab, from, port, v6, wanted),
                    wanted,
                    "{policy:?}: {from} to {port}, IPv6 {v6}"
                );
            }
        }
    }
}

#[test]
fn what_several_policies_allow_adds_up_and_pods_that_change_are_judged_by_what_they_are() {
    if !may_run("what_several_policies_allow_adds_up_and_pods_that_change_are_judged_by_what_they_are") {
        return;
    }
    let mut lab = serving();
    lab.policy("none", Some(json!({"podSelector": {}})));
    lab.policy(
        "b",
        Some(json!({"podSelector": pod("a"), "ingress": [{"from": [{"podSelector": pod("b")}]}]})),
    );
    let y = json!({"namespaceSelector": {"matchLabels": {"ns": "y"}}});
    lab.policy("y", Some(json!({"podSelector": pod("a"), "ingress": [{"from": [y]}]})));
    check(
        &lab,
        &[("b", "a", 80, true), ("c", "a", 80, true), ("ext", "a", 80, false), ("a", "b", 80, false)],
    );
    lab.engine.model.set_namespace("y", Some([("ns".to_owned(), "z".to_owned())].into()));
    lab.pod("b", |pod| drop(pod.labels.insert("pod".to_owned(), "other".to_owned())));
    lab.turn();
    check(&lab, &[("b", "a", 80, false), ("c", "a", 80, false)]);
    lab.engine.model.set_namespace("y", Some([("ns".to_owned(), "y".to_owned())].into()));
    lab.pod("b", |_| {});
    // Its address is nobody's any more: who has it next is not what it was.
    lab.pod("c", |pod| pod.ended = true);
    lab.turn();
    check(&lab, &[("b", "a", 80, true), ("c", "a", 80, false)]);
    // A Pod of another node is isolated there.
    lab.pod("a", |pod| pod.node = Some("n2".to_owned()));
    lab.turn();
    check(&lab, &[("ext", "a", 80, true)]);
    lab.pod("a", |pod| pod.host_network = true);
    lab.turn();
    check(&lab, &[("ext", "a", 80, true)]);
}

#[test]
fn connections_are_judged_anew_when_a_policy_changes() {
    if !may_run("connections_are_judged_anew_when_a_policy_changes") {
        return;
    }
    let mut lab = serving();
    for v6 in [false, true] {
        let mut inside = lab.connect("b", "a", v6, 80, true).expect("connects");
        let mut outside = lab.connect("a", "ext", v6, 80, true).expect("connects");
        assert!(says(&mut inside, true), "nothing is isolated");
        assert!(says(&mut outside, true), "nothing is isolated");
        let datagrams = lab.datagrams("b", "a", v6, 80);
        assert!(heard(&datagrams, true));
        let spec = json!({"podSelector": pod("a"), "ingress": [{"from": [{"podSelector": pod("b")}]}]});
        lab.policy("p", Some(spec));
        assert!(says(&mut inside, true), "it is allowed");
        assert!(heard(&datagrams, true));
        lab.policy(
            "p",
            Some(json!({"podSelector": pod("a"), "ingress": [{"from": [{"podSelector": pod("c")}]}]})),
        );
        assert!(!says(&mut inside, false), "it is not allowed any more");
        assert!(!heard(&datagrams, false));
        assert!(says(&mut outside, true), "nobody judges what goes out");
        lab.policy("p", Some(json!({"podSelector": pod("a"), "policyTypes": ["Egress"]})));
        assert!(!says(&mut outside, false), "now somebody does");
        lab.policy("p", None);
        assert!(heard(&datagrams, true));
    }
}

/// The server goes on sending to a client that asked once: its answers keep the connection alive, whoever is let ask again.
#[test]
fn a_stream_of_datagrams_ends_when_its_beginning_is_not_allowed_any_more() {
    if !may_run("a_stream_of_datagrams_ends_when_its_beginning_is_not_allowed_any_more") {
        return;
    }
    let mut lab = Lab::new();
    let server =
        lab.netns("ext").run(|| std::net::UdpSocket::bind("0.0.0.0:90")).expect("enters").expect("udp");
    let client = lab.datagrams("a", "ext", false, 90);
    client.send(b"?").expect("sent");
    let (_, from) = server.recv_from(&mut [0; 8]).expect("asked");
    let streams = |wanted| {
        client.set_read_timeout(Some(lab::patience(wanted))).expect("a time");
        server.send_to(b"!", from).and_then(|_| client.recv(&mut [0; 8])).is_ok()
    };
    assert!(streams(true));
    lab.policy("p", Some(json!({"podSelector": pod("a"), "policyTypes": ["Ingress", "Egress"]})));
    assert!(!streams(false));
}

#[test]
fn a_held_pod_passes_nothing_until_its_policies_are_in_force() {
    if !may_run("a_held_pod_passes_nothing_until_its_policies_are_in_force") {
        return;
    }
    let mut lab = serving();
    lab.policy(
        "p",
        Some(json!({"podSelector": pod("a"), "ingress": [{"from": [{"podSelector": pod("b")}]}]})),
    );
    lab.engine.model.set_pod(&("x".into(), "a".into()), None);
    lab.turn();
    let held = Held {
        link: "va".to_owned(),
        pod_uid: "uid-a".to_owned(),
        addresses: vec![address("a", false), address("a", true)],
    };
    assert!(lab.host.run(|| held::hold(INSTANCE, &held)).expect("enters").expect("held"));
    let turn = lab.engine.turn();
    assert_eq!((turn.freed, turn.waiting), (vec![], vec![held.clone()]), "nobody knows the Pod");
    check(
        &lab,
        &[("b", "a", 80, false), ("c", "a", 80, false), ("a", "b", 80, false), ("host", "a", 80, true)],
    );
    // The API server knows it, but not its address yet.
    lab.pod("a", |pod| pod.addresses.clear());
    let turn = lab.engine.turn();
    assert_eq!((turn.freed, turn.waiting), (vec![held.clone()], vec![]));
    check(&lab, &[("b", "a", 80, true), ("c", "a", 80, false), ("a", "b", 80, true)]);
    // Another engine finds what is held; without policies there is nothing to wait for.
    lab.host.run(|| held::hold(INSTANCE, &held)).expect("enters").expect("held");
    lab.engine = trine_policy::Engine::open(lab::config(&lab.host)).expect("another engine");
    check(&lab, &[("b", "a", 80, false)]);
    assert_eq!(lab.engine.turn().freed, std::slice::from_ref(&held));
    check(&lab, &[("c", "a", 80, true)]);
    // A link that is gone is not waited for.
    let gone = Held { link: "vz".to_owned(), ..held };
    lab.host.run(|| held::hold(INSTANCE, &gone)).expect("enters").expect("held");
    assert!(!lab.engine.verify().expect("looked at"));
    assert_eq!(Nft::open_in(&lab.host).expect("socket").held(INSTANCE).expect("listed"), []);
}

#[test]
fn tables_outlive_the_engine_come_back_when_flushed_and_are_cleaned_up() {
    if !may_run("tables_outlive_the_engine_come_back_when_flushed_and_are_cleaned_up") {
        return;
    }
    let mut lab = serving();
    lab.policy("p", Some(json!({"podSelector": pod("a")})));
    let mut nft = Nft::open_in(&lab.host).expect("socket");
    for (family, table) in [(Family::Ip, "policy"), (Family::Inet, "held")] {
        let mut batch = Batch::new(family);
        batch.delete_table(&format!("trine-{INSTANCE}-{table}"));
        nft.commit(batch).expect("somebody flushes");
    }
    assert!(lab.tcp("b", "a", false, 80, true));
    assert!(lab.engine.verify().expect("looked at"), "they were gone");
    lab.turn();
    check(&lab, &[("b", "a", 80, false)]);
    assert!(!lab.engine.verify().expect("looked at"), "they are there");
    lab.engine = trine_policy::Engine::open(lab::config(&lab.host)).expect("another engine");
    check(&lab, &[("b", "a", 80, false)]);
    for _ in 0..2 {
        trine_policy::cleanup(INSTANCE, Some(lab.host.path())).expect("absent is success");
    }
    for family in [Family::Ip, Family::Ip6, Family::Inet] {
        assert_eq!(nft.tables(family).expect("tables"), Vec::<String>::new());
    }
}

#[test]
fn each_rule_counts_and_says_whose_it_is() {
    const NAME: &str = "each_rule_counts_and_says_whose_it_is";
    if !may_run(NAME) || !testing::program(NAME, "nft") {
        return;
    }
    let mut lab = serving();
    lab.policy(
        "p",
        Some(json!({"podSelector": pod("a"), "ingress": [{"from": [{"podSelector": pod("b")}]}]})),
    );
    check(&lab, &[("b", "a", 80, true), ("c", "a", 80, false)]);
    let listing = ruleset(&lab);
    for wanted in ["comment \"x/p ingress[0]\"", "comment \"no policy allows it\""] {
        let line = listing.lines().find(|line| line.contains(wanted)).expect("in the listing");
        assert!(!line.contains("packets 0 "), "{line}");
    }
}
