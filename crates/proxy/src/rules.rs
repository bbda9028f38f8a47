//! The table of one family: what is fixed in it, and how the plan's elements are written. Pure.
//!
//! ```text
//! prerouting ─┬─ own Pods ──▶ from-pods ────┐  finds the front, sets the connection's mark to its target
//!             └─ others ───▶ from-outside ─┤
//! output ─────────────────▶ from-host ────┴▶ pick ─┬─(count)──▶ n<count> ──(target, slot)──▶ dnat
//!                                                 └─(sticky target)──▶ s<seconds>x<count> ──(list, client)──▶ dnat
//! postrouting: masquerade what must come back through this node
//! ```
//! The mark is the connection's, not the packet's, so routing rules on marks are not disturbed.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use trine_kernel::netlink::Cidr;
use trine_kernel::nft::matches::{
    MASQUERADE, STATE_NEW, STATUS_DNAT, address, behind, ct_bit, destination, family, in_range, local,
    mark_masquerade, masked, source, unreachable_port,
};
use trine_kernel::nft::{
    Batch, Chain, ChainKind, CmpOp, CtKey, Element, Expr, Field, Hook, MetaKey, NatKind, Reg, RejectKind,
    Rule, Set, SetFlags, Verdict, concat, octets,
};

use crate::config::Ranges;
use crate::plan::{Action, COUNT_BITS, From, Front, Key, Value};

/// Clients that are remembered at most, over all Services whose clients stay.
const CLIENTS: u32 = 1 << 20;
const TCP: u8 = 6;

fn chain_of(count: u16) -> String {
    format!("n{count}")
}

fn sticky_chain(seconds: u32, count: u16) -> String {
    format!("s{seconds}x{count}")
}

fn from_range(range: Cidr) -> Vec<Expr> {
    in_range(source(range.addr.is_ipv6(), Reg(0)), range, CmpOp::Eq)
}

fn to_range(range: Cidr, op: CmpOp) -> Vec<Expr> {
    in_range(destination(range.addr.is_ipv6(), Reg(0)), range, op)
}

fn loopback(v6: bool) -> Cidr {
    if v6 {
        Cidr::host(Ipv6Addr::LOCALHOST.into())
    } else {
        Cidr { addr: IpAddr::from([127, 0, 0, 0]), len: 8 }
    }
}

fn multicast(v6: bool) -> Cidr {
    let addr = if v6 { IpAddr::from([0xff00, 0, 0, 0, 0, 0, 0, 0]) } else { IpAddr::from([224, 0, 0, 0]) };
    Cidr { addr, len: if v6 { 8 } else { 4 } }
}

fn address_key(v6: bool) -> Vec<Expr> {
    let proto = behind(v6, Reg(0));
    let port = Reg(proto.0 + 1);
    vec![destination(v6, Reg(0)), Expr::Meta(MetaKey::L4Proto, proto), Expr::destination_port(port)]
}

fn port_key() -> Vec<Expr> {
    vec![Expr::Meta(MetaKey::L4Proto, Reg(0)), Expr::destination_port(Reg(1))]
}

fn then(mut exprs: Vec<Expr>, more: impl IntoIterator<Item = Expr>) -> Rule {
    exprs.extend(more);
    Rule::new(exprs)
}

fn goto(chain: &str) -> Expr {
    Expr::Verdict(Verdict::Goto(chain.to_owned()))
}

/// Finds a front, keeps its target in the connection's mark, and goes on to an endpoint.
fn find(key: Vec<Expr>, map: &str, masquerade: bool) -> Vec<Expr> {
    let mut exprs = key;
    exprs.push(Expr::Map { map: map.to_owned(), key: Reg(0), to: Reg(0) });
    exprs.push(Expr::CtMarkSet(Reg(0)));
    if masquerade {
        exprs.extend(mark_masquerade());
    }
    exprs.push(goto("pick"));
    exprs
}

fn refuse(key: Vec<Expr>, map: &str) -> Vec<Expr> {
    let mut exprs = key;
    exprs.push(Expr::VerdictMap { map: map.to_owned(), key: Reg(0) });
    exprs
}

fn sets(v6: bool) -> Vec<Set> {
    let ip = address(v6);
    let address = [ip, Field::Proto, Field::Port];
    let port = [Field::Proto, Field::Port];
    vec![
        Set::map("services", &address, &[Field::Mark]),
        Set::map("services-outside", &address, &[Field::Mark]),
        Set::map("ports", &port, &[Field::Mark]),
        Set::map("ports-outside", &port, &[Field::Mark]),
        Set::map("endpoints", &[Field::Mark, Field::Mark], &[ip, Field::Port]),
        Set::vmap("by-count", &[Field::Mark]),
        Set::vmap("sticky", &[Field::Mark]),
        Set::new("members", &[Field::Mark, ip, Field::Port]),
        Set {
            flags: SetFlags { dynamic: true, timeout: true, ..SetFlags::default() },
            size: Some(CLIENTS),
            ..Set::map("affinity", &[Field::Mark, ip], &[ip, Field::Port])
        },
        Set::vmap("refuse", &address),
        Set::vmap("refuse-outside", &address),
        Set::vmap("refuse-ports", &port),
        Set::vmap("refuse-ports-outside", &port),
        Set::new("own", &[ip]),
        Set::new("hairpin", &[ip, ip]),
    ]
}

fn chains(v6: bool) -> Vec<Chain> {
    let base = Chain::base;
    let mut chains: Vec<Chain> = ["reject", "pick", "from-pods", "from-outside", "from-host", "cross"]
        .into_iter()
        .map(Chain::regular)
        .collect();
    chains.extend([
        base("refuse-in", ChainKind::Filter, Hook::Prerouting, -110),
        base("refuse-out", ChainKind::Filter, Hook::Output, -110),
        base("prerouting", ChainKind::Nat, Hook::Prerouting, -100),
        base("output", ChainKind::Nat, Hook::Output, -100),
        base("guard-forward", ChainKind::Filter, Hook::Forward, 0),
        base("guard-output", ChainKind::Filter, Hook::Output, 0),
        base("postrouting", ChainKind::Nat, Hook::Postrouting, 100),
    ]);
    if v6 {
        chains.push(base("guard-input", ChainKind::Filter, Hook::Input, 0));
    }
    chains
}

/// Packets to a port of this host. In IPv6 the Service range is the host's own, too ([`crate::ranges`]).
fn to_host(ranges: &Ranges) -> Vec<Expr> {
    let mut exprs = local(false, CmpOp::Eq);
    if ranges.v6() {
        exprs.extend(to_range(ranges.services, CmpOp::Ne));
    }
    exprs
}

fn filter_rules(ranges: &Ranges) -> Vec<(&'static str, Rule)> {
    let back = || Expr::Verdict(Verdict::Return);
    let old = || then(ct_bit(CtKey::State, STATE_NEW, false), [back()]);
    let to_host = |map| then(to_host(ranges), refuse(port_key(), map));
    let by_address = |map| Rule::new(refuse(address_key(ranges.v6()), map));
    let untranslated = || {
        then(to_range(ranges.services, CmpOp::Eq), [goto("reject")]).comment("no such Service or endpoint")
    };
    let tcp = vec![Expr::Meta(MetaKey::L4Proto, Reg(0)), Expr::Cmp(CmpOp::Eq, Reg(0), vec![TCP])];
    let mut rules = vec![
        ("reject", then(tcp, [Expr::Reject(RejectKind::TcpReset)])),
        ("reject", Rule::new([unreachable_port(ranges.v6())])),
        ("refuse-in", old()),
        ("refuse-in", by_address("refuse")),
        ("refuse-in", to_host("refuse-ports")),
        ("refuse-in", then(from_range(ranges.own_pods()), [back()])),
        ("refuse-in", then(local(true, CmpOp::Eq), [back()])),
        ("refuse-in", by_address("refuse-outside")),
        ("refuse-in", to_host("refuse-ports-outside")),
        ("refuse-out", old()),
        ("refuse-out", by_address("refuse")),
        ("refuse-out", to_host("refuse-ports")),
        ("guard-forward", untranslated()),
        ("guard-output", untranslated()),
    ];
    if ranges.v6() {
        rules.push(("guard-input", untranslated()));
    }
    rules
}

fn destination_rules(ranges: &Ranges) -> Vec<(&'static str, Rule)> {
    let v6 = ranges.v6();
    let to_host = |map, masquerade| then(to_host(ranges), find(port_key(), map, masquerade));
    let by_address = |map, masquerade| Rule::new(find(address_key(v6), map, masquerade));
    let not_loopback = to_range(loopback(v6), CmpOp::Ne);
    let host_port = then(not_loopback, to_host("ports", true).exprs);
    let count = (1u32 << COUNT_BITS) - 1;
    vec![
        ("prerouting", then(from_range(ranges.own_pods()), [goto("from-pods")])),
        ("prerouting", Rule::new([goto("from-outside")])),
        ("output", Rule::new([goto("from-host")])),
        ("from-pods", by_address("services", false)),
        ("from-pods", to_host("ports", true)),
        ("from-outside", by_address("services-outside", false)),
        ("from-outside", to_host("ports-outside", false)),
        ("from-outside", by_address("services", true)),
        ("from-outside", to_host("ports", true)),
        ("from-host", by_address("services", true)),
        ("from-host", host_port),
        (
            "pick",
            Rule::new([
                Expr::Ct { key: CtKey::Mark, direction: None, to: Reg(0) },
                masked(Reg(0), &(!MASQUERADE).to_ne_bytes()),
                Expr::VerdictMap { map: "sticky".to_owned(), key: Reg(0) },
            ]),
        ),
        (
            "pick",
            Rule::new([
                Expr::Ct { key: CtKey::Mark, direction: None, to: Reg(0) },
                masked(Reg(0), &count.to_ne_bytes()),
                Expr::VerdictMap { map: "by-count".to_owned(), key: Reg(0) },
            ]),
        ),
    ]
}

fn source_rules(ranges: &Ranges) -> Vec<(&'static str, Rule)> {
    let v6 = ranges.v6();
    let pair = Expr::InSet { set: "hairpin".to_owned(), key: Reg(0), absent: false };
    let own = Expr::InSet { set: "own".to_owned(), key: Reg(0), absent: false };
    let mut crosses = ct_bit(CtKey::Mark, MASQUERADE, true);
    crosses.extend(ct_bit(CtKey::Status, STATUS_DNAT, true));
    let mut near = local(true, CmpOp::Eq);
    near.extend(in_range(source(v6, Reg(0)), loopback(v6), CmpOp::Ne));
    near.extend([destination(v6, Reg(0)), own, Expr::Verdict(Verdict::Return)]);
    let leaves = |from: Cidr| {
        let within = [Some(ranges.pods), Some(multicast(v6)), ranges.neighbours].into_iter().flatten();
        from_range(from)
            .into_iter()
            .chain(within.flat_map(|range| to_range(range, CmpOp::Ne)))
            .collect::<Vec<_>>()
    };
    let mut rules = vec![
        ("postrouting", then(crosses, [goto("cross")]).comment("must come back through this node")),
        (
            "postrouting",
            Rule::new([source(v6, Reg(0)), destination(v6, behind(v6, Reg(0))), pair, Expr::Masquerade])
                .comment("a Pod through its own Service"),
        ),
        (
            "postrouting",
            then(leaves(ranges.own_pods()), [Expr::Masquerade]).comment("from a Pod to outside the cluster"),
        ),
        ("cross", Rule::new(near).comment("from the host to a Pod of its own")),
        ("cross", Rule::new([Expr::Masquerade])),
    ];
    if let Some(neighbours) = ranges.neighbours {
        let rule = then(leaves(neighbours), [Expr::Masquerade]);
        rules.push(("postrouting", rule.comment("from a node behind this one to outside the cluster")));
    }
    rules
}

/// Writes the fixed part of the table, in place of whatever is there under its name.
pub fn write_fixed(batch: &mut Batch, table: &str, ranges: &Ranges) {
    batch.replace_table(table);
    sets(ranges.v6()).iter().for_each(|set| batch.add_set(table, set));
    chains(ranges.v6()).iter().for_each(|chain| batch.add_chain(table, chain));
    let rules = filter_rules(ranges).into_iter().chain(destination_rules(ranges)).chain(source_rules(ranges));
    rules.for_each(|(chain, rule)| batch.add_rule(table, chain, &rule));
}

/// To the endpoint whose address begins at this register.
fn to_endpoint(v6: bool, at: Reg) -> Expr {
    Expr::Nat { kind: NatKind::Destination, family: family(v6), address: at, port: Some(behind(v6, at)) }
}

fn add_count(batch: &mut Batch, table: &str, v6: bool, count: u16) {
    let chain = chain_of(count);
    batch.add_chain(table, &Chain::regular(&chain));
    let rule = Rule::new([
        Expr::Ct { key: CtKey::Mark, direction: None, to: Reg(0) },
        masked(Reg(0), &(!MASQUERADE).to_ne_bytes()),
        Expr::Random { modulus: u32::from(count), to: Reg(1) },
        Expr::Map { map: "endpoints".to_owned(), key: Reg(0), to: Reg(0) },
        to_endpoint(v6, Reg(0)),
    ]);
    batch.add_rule(table, &chain, &rule);
    let key = u32::from(count).to_ne_bytes().to_vec();
    batch.add_elements(table, "by-count", &[Element::verdict(key, Verdict::Goto(chain))]);
}

/// A client of this list goes to the endpoint that it has, if that is still one, and counts as just seen; else its endpoint is
/// forgotten, and a new one is drawn and remembered. When too many clients are remembered, new ones are not.
fn add_sticky(batch: &mut Batch, table: &str, v6: bool, seconds: u32, count: u16) {
    let chain = sticky_chain(seconds, count);
    batch.add_chain(table, &Chain::regular(&chain));
    let list = !(MASQUERADE | ((1 << COUNT_BITS) - 1));
    let timeout = Some(Duration::from_secs(seconds.into()));
    // The list's number at 2 and the client at 3; behind it the number again, and the endpoint.
    let again = behind(v6, Reg(3));
    let endpoint = Reg(again.0 + 1);
    let client = || {
        let number =
            |to| [Expr::Ct { key: CtKey::Mark, direction: None, to }, masked(to, &list.to_ne_bytes())];
        let [a, b] = number(Reg(2));
        let [c, d] = number(again);
        [a, b, source(v6, Reg(3)), c, d]
    };
    let known = || Expr::Map { map: "affinity".to_owned(), key: Reg(2), to: endpoint };
    let remember = || Expr::Update { set: "affinity".to_owned(), key: Reg(2), data: Some(endpoint), timeout };
    let go = || to_endpoint(v6, endpoint);
    let member = Expr::InSet { set: "members".to_owned(), key: again, absent: false };
    let stay = client().into_iter().chain([known(), member, remember(), go()]);
    let forget = Expr::Forget { set: "affinity".to_owned(), key: Reg(2), data: Some(endpoint) };
    let draw = [
        Expr::Ct { key: CtKey::Mark, direction: None, to: Reg(0) },
        masked(Reg(0), &(!MASQUERADE).to_ne_bytes()),
        Expr::Random { modulus: u32::from(count), to: Reg(1) },
        Expr::Map { map: "endpoints".to_owned(), key: Reg(0), to: endpoint },
        remember(),
        go(),
    ];
    batch.add_rule(table, &chain, &Rule::new(stay));
    batch.add_rule(table, &chain, &Rule::new(client().into_iter().chain([known(), forget])));
    batch.add_rule(table, &chain, &Rule::new(client().into_iter().chain(draw)));
    batch.add_rule(table, &chain, &Rule::new([goto(&chain_of(count))]));
}

fn front_key(front: &Front) -> Vec<u8> {
    let port = front.port.to_be_bytes();
    match front.address {
        Some(address) => concat(&[&octets(address), &[front.proto as u8], &port]),
        None => concat(&[&[front.proto as u8], &port]),
    }
}

fn set_of(key: &Key) -> &'static str {
    match key {
        Key::Front(From::Anywhere, front) if front.address.is_some() => "services",
        Key::Front(From::Outside, front) if front.address.is_some() => "services-outside",
        Key::Front(From::Anywhere, _) => "ports",
        Key::Front(From::Outside, _) => "ports-outside",
        Key::Refuse(From::Anywhere, front) if front.address.is_some() => "refuse",
        Key::Refuse(From::Outside, front) if front.address.is_some() => "refuse-outside",
        Key::Refuse(From::Anywhere, _) => "refuse-ports",
        Key::Refuse(From::Outside, _) => "refuse-ports-outside",
        Key::Endpoint(..) => "endpoints",
        Key::Own(_) => "own",
        Key::Sticky(_) => "sticky",
        Key::Member(..) => "members",
    }
}

fn element(key: &Key, value: &Value) -> Element {
    let bytes = match key {
        Key::Front(_, front) | Key::Refuse(_, front) => front_key(front),
        Key::Endpoint(target, slot) => concat(&[&target.to_ne_bytes(), &u32::from(*slot).to_ne_bytes()]),
        Key::Own(address) => octets(*address),
        Key::Sticky(target) => target.to_ne_bytes().to_vec(),
        Key::Member(list, address, port) => {
            concat(&[&(list << COUNT_BITS).to_ne_bytes(), &octets(*address), &port.to_be_bytes()])
        }
    };
    match value {
        Value::Target(target) => Element::value(bytes, target.to_ne_bytes().to_vec()),
        Value::Endpoint(address, port) => {
            Element::value(bytes, concat(&[&octets(*address), &port.to_be_bytes()]))
        }
        Value::Reject => Element::verdict(bytes, Verdict::Goto("reject".to_owned())),
        Value::Drop => Element::verdict(bytes, Verdict::Drop),
        Value::Present => Element::key(bytes),
        Value::Stay(seconds, count) => Element::verdict(bytes, Verdict::Goto(sticky_chain(*seconds, *count))),
    }
}

/// Writes changes: chains first, then what goes, then what comes.
pub fn write_actions(batch: &mut Batch, table: &str, v6: bool, actions: &[Action]) {
    let mut removed: BTreeMap<&str, Vec<Element>> = BTreeMap::new();
    let mut added: BTreeMap<&str, Vec<Element>> = BTreeMap::new();
    for action in actions {
        let (sets, key, value) = match action {
            Action::AddCount(count) => {
                add_count(batch, table, v6, *count);
                continue;
            }
            Action::AddSticky(seconds, count) => {
                add_sticky(batch, table, v6, *seconds, *count);
                continue;
            }
            Action::Remove(key, value) => (&mut removed, key, value),
            Action::Add(key, value) => (&mut added, key, value),
        };
        sets.entry(set_of(key)).or_default().push(element(key, value));
        if let Key::Own(address) = key {
            let pair = concat(&[&octets(*address), &octets(*address)]);
            sets.entry("hairpin").or_default().push(Element::key(pair));
        }
    }
    removed.iter().for_each(|(set, elements)| batch.delete_elements(table, set, elements));
    added.iter().for_each(|(set, elements)| batch.add_elements(table, set, elements));
}
