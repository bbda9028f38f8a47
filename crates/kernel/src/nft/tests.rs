//! The encoder against the kernel, and against `nft` as a second reader.

use std::process::Command;

use super::*;
use crate::testing;

const TABLE: &str = "trine-test";

/// A network namespace of its own: this thread's, gone with the thread.
fn in_own_namespace<T: Send>(body: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        scope
            .spawn(|| {
                let own = rustix::thread::UnshareFlags::NEWNET;
                // SAFETY: only the network namespace of this thread changes, which nothing else relies on.
                #[allow(unsafe_code)]
                unsafe { rustix::thread::unshare_unsafe(own) }.expect("a namespace of its own");
                body()
            })
            .join()
            .expect("the test's thread")
    })
}

fn nft(args: &[&str]) -> String {
    let output = Command::new("nft").args(args).output().expect("nft runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

fn key(address: [u8; 4], proto: u8, port: u16) -> Vec<u8> {
    concat(&[&address, &[proto], &port.to_be_bytes()])
}

fn sample(batch: &mut Batch) {
    batch.replace_table(TABLE);
    batch.add_set(TABLE, &Set::map("vips", &[Field::Ipv4, Field::Proto, Field::Port], &[Field::Mark]));
    batch.add_set(TABLE, &Set::map("eps", &[Field::Mark, Field::Mark], &[Field::Ipv4, Field::Port]));
    batch.add_set(TABLE, &Set::vmap("dispatch", &[Field::Mark]));
    batch.add_set(
        TABLE,
        &Set {
            flags: SetFlags { interval: true, ..SetFlags::default() },
            ..Set::new("pods", &[Field::Ipv4])
        },
    );
    batch.add_set(
        TABLE,
        &Set {
            flags: SetFlags { timeout: true, dynamic: true, interval: false },
            timeout: Some(std::time::Duration::from_secs(60)),
            ..Set::new("seen", &[Field::Ipv4])
        },
    );
    batch.add_chain(TABLE, &Chain::base("prerouting", ChainKind::Nat, Hook::Prerouting, -100));
    batch.add_chain(TABLE, &Chain::base("postrouting", ChainKind::Nat, Hook::Postrouting, 100));
    batch.add_chain(TABLE, &Chain::base("filter", ChainKind::Filter, Hook::Forward, 0));
    batch.add_chain(TABLE, &Chain::base("routes", ChainKind::Route, Hook::Output, 0));
    batch.add_chain(TABLE, &Chain::regular("n2"));
    batch.add_elements(
        TABLE,
        "dispatch",
        &[Element::verdict(concat(&[&2u32.to_ne_bytes()]), Verdict::Goto("n2".into()))],
    );
    batch.add_elements(TABLE, "pods", &Element::interval([10, 244, 0, 0].into(), 16));
    let value = 0x7002u32.to_ne_bytes().to_vec();
    batch.add_elements(TABLE, "vips", &[Element::value(key([10, 96, 0, 1], 6, 80), value)]);
}

fn load_key() -> [Expr; 3] {
    [Expr::destination(Reg(0)), Expr::Meta(MetaKey::L4Proto, Reg(1)), Expr::destination_port(Reg(2))]
}

fn ct_mark(to: Reg) -> Expr {
    Expr::Ct { key: CtKey::Mark, direction: None, to }
}

fn sample_rules(batch: &mut Batch) {
    let mut find = load_key().to_vec();
    find.push(Expr::Map { map: "vips".into(), key: Reg(0), to: Reg(4) });
    find.push(Expr::CtMarkSet(Reg(4)));
    batch.add_rule(TABLE, "prerouting", &Rule::new(find).comment("services"));
    let pick = [
        ct_mark(Reg(0)),
        Expr::Bitwise { from: Reg(0), to: Reg(0), mask: 0xfffu32.to_ne_bytes().to_vec(), xor: vec![0; 4] },
        Expr::VerdictMap { map: "dispatch".into(), key: Reg(0) },
    ];
    batch.add_rule(TABLE, "prerouting", &Rule::new(pick));
    let translate = [
        ct_mark(Reg(0)),
        Expr::Random { modulus: 2, to: Reg(1) },
        Expr::Map { map: "eps".into(), key: Reg(0), to: Reg(8) },
        Expr::Nat { kind: NatKind::Destination, family: Family::Ip, address: Reg(8), port: Some(Reg(9)) },
    ];
    batch.add_rule(TABLE, "n2", &Rule::new(translate));
    let mark = 0x0800_0000u32.to_ne_bytes().to_vec();
    batch.add_rule(
        TABLE,
        "postrouting",
        &Rule::new([
            Expr::Meta(MetaKey::Mark, Reg(0)),
            Expr::Bitwise { from: Reg(0), to: Reg(0), mask: mark.clone(), xor: vec![0; 4] },
            Expr::Cmp(CmpOp::Eq, Reg(0), mark),
            Expr::Counter,
            Expr::Masquerade,
        ]),
    );
    batch.add_rule(
        TABLE,
        "filter",
        &Rule::new([
            Expr::source(Reg(0)),
            Expr::InSet { set: "pods".into(), key: Reg(0), absent: true },
            Expr::Ct { key: CtKey::State, direction: None, to: Reg(1) },
            Expr::Bitwise { from: Reg(1), to: Reg(1), mask: 8u32.to_ne_bytes().to_vec(), xor: vec![0; 4] },
            Expr::Cmp(CmpOp::Ne, Reg(1), vec![0; 4]),
            Expr::Fib { source: false, result: FibResult::AddrType, to: Reg(2) },
            Expr::Cmp(CmpOp::Eq, Reg(2), 2u32.to_ne_bytes().to_vec()),
            Expr::Limit { rate: 10, burst: 5 },
            Expr::Update { set: "seen".into(), key: Reg(0), data: None, timeout: None },
            Expr::Reject(RejectKind::Icmp(3)),
        ]),
    );
    batch.add_rule(
        TABLE,
        "filter",
        &Rule::new([
            Expr::Meta(MetaKey::L4Proto, Reg(0)),
            Expr::Cmp(CmpOp::Eq, Reg(0), vec![6]),
            Expr::Reject(RejectKind::TcpReset),
        ]),
    );
}

#[test]
fn what_is_written_reads_back_the_same() {
    if !testing::root("what_is_written_reads_back_the_same") {
        return;
    }
    in_own_namespace(|| {
        let mut nft = Nft::open().expect("socket");
        let mut batch = Batch::new(Family::Ip);
        sample(&mut batch);
        sample_rules(&mut batch);
        nft.commit(batch).expect("the sample is taken");
        assert_eq!(nft.tables(Family::Ip).expect("tables"), [TABLE]);
        let names: Vec<_> =
            nft.chains(Family::Ip, TABLE).expect("chains").into_iter().map(|c| c.name).collect();
        assert_eq!(names, ["prerouting", "postrouting", "filter", "routes", "n2"]);
        let sets = nft.sets(Family::Ip, TABLE).expect("sets");
        assert_eq!(sets[0].key_type, type_id(&[Field::Ipv4, Field::Proto, Field::Port]));
        assert_eq!(sets[0].data_type, Some(type_id(&[Field::Mark])));
        let verdicts = nft.elements(Family::Ip, TABLE, "dispatch").expect("elements");
        assert_eq!(verdicts, [Element::verdict(2u32.to_ne_bytes().to_vec(), Verdict::Goto("n2".into()))]);
        let mut batch = Batch::new(Family::Ip);
        batch.delete_table(TABLE);
        nft.commit(batch).expect("deleted");
        assert!(nft.tables(Family::Ip).expect("tables").is_empty());
    });
}

#[test]
fn nft_reads_what_was_written() {
    const NAME: &str = "nft_reads_what_was_written";
    if !testing::root(NAME) || !testing::program(NAME, "nft") {
        return;
    }
    let listing = in_own_namespace(|| {
        let mut socket = Nft::open().expect("socket");
        let mut batch = Batch::new(Family::Ip);
        sample(&mut batch);
        sample_rules(&mut batch);
        socket.commit(batch).expect("the sample is taken");
        nft(&["list", "ruleset"])
    });
    for wanted in [
        "table ip trine-test {",
        "type ipv4_addr . inet_proto . inet_service : mark",
        "10.96.0.1 . tcp . 80 : 0x00007002",
        "elements = { 10.244.0.0/16 }",
        "type nat hook prerouting priority dstnat; policy accept;",
        "type route hook output priority filter; policy accept;",
        "0x00000002 : goto n2",
        "comment \"services\"",
        "ct mark set ip daddr . meta l4proto . th dport map @vips",
        "ct mark & 0x00000fff vmap @dispatch",
        "dnat ip to ct mark . numgen random mod 2 map @eps",
        "masquerade fully-random",
        "ip saddr != @pods ct state new fib daddr type local limit rate 10/second",
        "update @seen { ip saddr } reject",
        "reject with tcp reset",
    ] {
        assert!(listing.contains(wanted), "{wanted:?} is not in\n{listing}");
    }
}

#[test]
fn a_refused_operation_is_named_and_nothing_is_applied() {
    if !testing::root("a_refused_operation_is_named_and_nothing_is_applied") {
        return;
    }
    in_own_namespace(|| {
        let mut nft = Nft::open().expect("socket");
        let mut batch = Batch::new(Family::Ip);
        batch.add_table(TABLE);
        batch.delete_chain(TABLE, "missing");
        let error = nft.commit(batch).expect_err("there is no such chain");
        assert!(error.is_absent(), "{error:?}");
        assert!(error.to_string().contains("delete chain trine-test missing"), "{error}");
        assert!(nft.tables(Family::Ip).expect("tables").is_empty());
        let mut batch = Batch::new(Family::Ip);
        batch.add_table(TABLE);
        nft.commit(batch).expect("the socket is as good as new");
    });
}

#[test]
fn many_elements_go_in_one_transaction() {
    if !testing::root("many_elements_go_in_one_transaction") {
        return;
    }
    in_own_namespace(|| {
        let mut nft = Nft::open().expect("socket");
        let mut batch = Batch::new(Family::Ip);
        batch.replace_table(TABLE);
        batch.add_set(TABLE, &Set::map("eps", &[Field::Mark, Field::Mark], &[Field::Ipv4, Field::Port]));
        let element = |n: u32| {
            let value = concat(&[&[10, 0, 0, 1], &80u16.to_be_bytes()]);
            Element::value(concat(&[&n.to_ne_bytes(), &0u32.to_ne_bytes()]), value)
        };
        let elements: Vec<_> = (0..20_000).map(element).collect();
        batch.add_elements(TABLE, "eps", &elements);
        nft.commit(batch).expect("all are taken");
        assert_eq!(nft.elements(Family::Ip, TABLE, "eps").expect("elements").len(), 20_000);
        let mut batch = Batch::new(Family::Ip);
        batch.delete_elements(TABLE, "eps", &elements[..10_000]);
        nft.commit(batch).expect("half of them go");
        assert_eq!(nft.elements(Family::Ip, TABLE, "eps").expect("elements").len(), 10_000);
    });
}

#[test]
fn keys_are_padded_field_by_field() {
    assert_eq!(key([10, 0, 0, 1], 6, 80), [10, 0, 0, 1, 6, 0, 0, 0, 0, 80, 0, 0]);
    assert_eq!(concat(&[&80u16.to_be_bytes()]), [0, 80]);
    assert_eq!(type_len(&[Field::Ipv4, Field::Proto, Field::Port]), 12);
    assert_eq!(type_len(&[Field::Port]), 2);
}

#[test]
fn a_prefix_up_to_the_last_address_has_no_end() {
    assert_eq!(Element::interval([224, 0, 0, 0].into(), 3).len(), 1);
    assert_eq!(Element::interval([10, 1, 2, 3].into(), 16)[0].key, [10, 1, 0, 0]);
    assert_eq!(Element::interval([10, 1, 2, 3].into(), 16)[1].key, [10, 2, 0, 0]);
}

#[test]
fn a_link_is_held_only_where_an_engine_lets_it_go_and_is_told_with_its_pod() {
    if !testing::root("a_link_is_held_only_where_an_engine_lets_it_go_and_is_told_with_its_pod") {
        return;
    }
    in_own_namespace(|| {
        let link = held::Held {
            link: "tr0a0b0cabcdefg".to_owned(),
            pod_uid: "7f6d0a52-8f3c-4a4e-9d53-0d6b8f1d7a11".to_owned(),
            addresses: vec![
                "10.244.0.5".parse().unwrap(),
                "fd00:1111:2222:3333:4444:5555:6666:7777".parse().unwrap(),
            ],
        };
        assert!(!held::hold("0a0b0c", &link).unwrap(), "nobody would let it go");
        let mut nft = Nft::open().unwrap();
        assert_eq!(nft.held("0a0b0c").unwrap(), []);
        let bell = held::listen("0a0b0c").unwrap();
        for _ in 0..2 {
            nft.prepare_held("0a0b0c").unwrap();
            assert!(held::hold("0a0b0c", &link).unwrap());
        }
        held::ring("0a0b0c");
        assert_eq!(bell.recv(&mut [0; 8]).unwrap(), 1);
        nft.prepare_held("0a0b0c").unwrap();
        assert_eq!(nft.held("0a0b0c").unwrap(), std::slice::from_ref(&link));
        for _ in 0..2 {
            nft.let_go("0a0b0c", &link.link).unwrap();
        }
        assert_eq!(nft.held("0a0b0c").unwrap(), []);
    });
}

#[test]
fn ranges_of_both_families_are_taken_up_to_the_last_address() {
    if !testing::root("ranges_of_both_families_are_taken_up_to_the_last_address") {
        return;
    }
    in_own_namespace(|| {
        let flags = SetFlags { interval: true, ..SetFlags::default() };
        for (family, field, bytes) in [(Family::Ip, Field::Ipv4, 4), (Family::Ip6, Field::Ipv6, 16)] {
            let mut batch = Batch::new(family);
            batch.add_table(TABLE);
            batch.add_set(TABLE, &Set { flags, ..Set::new("ranges", &[field]) });
            let mut elements = Element::range(vec![1; bytes], Some(vec![2; bytes]));
            elements.extend(Element::range(vec![200; bytes], None));
            batch.add_elements(TABLE, "ranges", &elements);
            let mut nft = Nft::open().unwrap();
            nft.commit(batch).unwrap();
            let ends = nft.elements(family, TABLE, "ranges").unwrap();
            assert_eq!(ends.iter().filter(|e| e.closes_range).count(), 1, "{ends:?}");
        }
    });
}
