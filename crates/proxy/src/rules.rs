//! The table: what is fixed in it, and how the plan's elements are written. Pure; IPv4.
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
use std::net::IpAddr;
use std::time::Duration;

use trine_kernel::netlink::Cidr;
use trine_kernel::nft::matches::{
    MASQUERADE, STATE_NEW, STATUS_DNAT, ct_bit, local, mark_masquerade, masked,
};
use trine_kernel::nft::{
    Batch, Chain, ChainKind, CmpOp, CtKey, Element, Expr, Family, Field, Hook, MetaKey, NatKind, Reg,
    RejectKind, Rule, Set, SetFlags, Verdict, concat, octets,
};

use crate::config::Config;
use crate::plan::{Action, COUNT_BITS, From, Front, Key, Value};

/// Clients that are remembered at most, over all Services whose clients stay.
const CLIENTS: u32 = 1 << 20;
/// ICMP port unreachable.
const PORT_UNREACHABLE: u8 = 3;
const TCP: u8 = 6;

fn chain_of(count: u16) -> String {
    format!("n{count}")
}

fn sticky_chain(seconds: u32, count: u16) -> String {
    format!("s{seconds}x{count}")
}

/// Goes on if the IPv4 address in register 0 is in the range (or is not).
fn in_range(load: Expr, range: Cidr, op: CmpOp) -> Vec<Expr> {
    let IpAddr::V4(network) = range.network().addr else { return Vec::new() };
    let mask = u32::MAX.checked_shl(32 - u32::from(range.len)).unwrap_or(0);
    vec![load, masked(Reg(0), &mask.to_be_bytes()), Expr::Cmp(op, Reg(0), network.octets().to_vec())]
}

fn from_range(range: Cidr) -> Vec<Expr> {
    in_range(Expr::source(Reg(0)), range, CmpOp::Eq)
}

fn to_range(range: Cidr, op: CmpOp) -> Vec<Expr> {
    in_range(Expr::destination(Reg(0)), range, op)
}

fn loopback() -> Cidr {
    Cidr { addr: IpAddr::from([127, 0, 0, 0]), len: 8 }
}

fn multicast() -> Cidr {
    Cidr { addr: IpAddr::from([224, 0, 0, 0]), len: 4 }
}

fn address_key() -> Vec<Expr> {
    vec![Expr::destination(Reg(0)), Expr::Meta(MetaKey::L4Proto, Reg(1)), Expr::destination_port(Reg(2))]
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

fn sets() -> Vec<Set> {
    let address = [Field::Ipv4, Field::Proto, Field::Port];
    let port = [Field::Proto, Field::Port];
    vec![
        Set::map("services", &address, &[Field::Mark]),
        Set::map("services-outside", &address, &[Field::Mark]),
        Set::map("ports", &port, &[Field::Mark]),
        Set::map("ports-outside", &port, &[Field::Mark]),
        Set::map("endpoints", &[Field::Mark, Field::Mark], &[Field::Ipv4, Field::Port]),
        Set::vmap("by-count", &[Field::Mark]),
        Set::vmap("sticky", &[Field::Mark]),
        Set::new("members", &[Field::Mark, Field::Ipv4, Field::Port]),
        Set {
            flags: SetFlags { dynamic: true, timeout: true, ..SetFlags::default() },
            size: Some(CLIENTS),
            ..Set::map("affinity", &[Field::Mark, Field::Ipv4], &[Field::Ipv4, Field::Port])
        },
        Set::vmap("refuse", &address),
        Set::vmap("refuse-outside", &address),
        Set::vmap("refuse-ports", &port),
        Set::vmap("refuse-ports-outside", &port),
        Set::new("own", &[Field::Ipv4]),
        Set::new("hairpin", &[Field::Ipv4, Field::Ipv4]),
    ]
}

fn chains() -> Vec<Chain> {
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
    chains
}

fn filter_rules(config: &Config) -> Vec<(&'static str, Rule)> {
    let back = || Expr::Verdict(Verdict::Return);
    let old = || then(ct_bit(CtKey::State, STATE_NEW, false), [back()]);
    let to_host = |map| then(local(false, CmpOp::Eq), refuse(port_key(), map));
    let untranslated = || {
        then(to_range(config.service_cidr, CmpOp::Eq), [goto("reject")])
            .comment("no such Service or endpoint")
    };
    let tcp = vec![Expr::Meta(MetaKey::L4Proto, Reg(0)), Expr::Cmp(CmpOp::Eq, Reg(0), vec![TCP])];
    vec![
        ("reject", then(tcp, [Expr::Reject(RejectKind::TcpReset)])),
        ("reject", Rule::new([Expr::Reject(RejectKind::Icmp(PORT_UNREACHABLE))])),
        ("refuse-in", old()),
        ("refuse-in", Rule::new(refuse(address_key(), "refuse"))),
        ("refuse-in", to_host("refuse-ports")),
        ("refuse-in", then(from_range(config.own_pods()), [back()])),
        ("refuse-in", then(local(true, CmpOp::Eq), [back()])),
        ("refuse-in", Rule::new(refuse(address_key(), "refuse-outside"))),
        ("refuse-in", to_host("refuse-ports-outside")),
        ("refuse-out", old()),
        ("refuse-out", Rule::new(refuse(address_key(), "refuse"))),
        ("refuse-out", to_host("refuse-ports")),
        ("guard-forward", untranslated()),
        ("guard-output", untranslated()),
    ]
}

fn destination_rules(config: &Config) -> Vec<(&'static str, Rule)> {
    let to_host = |map, masquerade| then(local(false, CmpOp::Eq), find(port_key(), map, masquerade));
    let by_address = |map, masquerade| Rule::new(find(address_key(), map, masquerade));
    let not_loopback = to_range(loopback(), CmpOp::Ne);
    let host_port = then(not_loopback, to_host("ports", true).exprs);
    let count = (1u32 << COUNT_BITS) - 1;
    vec![
        ("prerouting", then(from_range(config.own_pods()), [goto("from-pods")])),
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

fn source_rules(config: &Config) -> Vec<(&'static str, Rule)> {
    let pair = Expr::InSet { set: "hairpin".to_owned(), key: Reg(0), absent: false };
    let own = Expr::InSet { set: "own".to_owned(), key: Reg(0), absent: false };
    let mut crosses = ct_bit(CtKey::Mark, MASQUERADE, true);
    crosses.extend(ct_bit(CtKey::Status, STATUS_DNAT, true));
    let mut near = local(true, CmpOp::Eq);
    near.extend(in_range(Expr::source(Reg(0)), loopback(), CmpOp::Ne));
    near.extend([Expr::destination(Reg(0)), own, Expr::Verdict(Verdict::Return)]);
    let leaves = |from: Cidr| {
        let within = [Some(config.pod_cidr), Some(multicast()), config.neighbours].into_iter().flatten();
        from_range(from)
            .into_iter()
            .chain(within.flat_map(|range| to_range(range, CmpOp::Ne)))
            .collect::<Vec<_>>()
    };
    let mut rules = vec![
        ("postrouting", then(crosses, [goto("cross")]).comment("must come back through this node")),
        (
            "postrouting",
            Rule::new([Expr::source(Reg(0)), Expr::destination(Reg(1)), pair, Expr::Masquerade])
                .comment("a Pod through its own Service"),
        ),
        (
            "postrouting",
            then(leaves(config.own_pods()), [Expr::Masquerade]).comment("from a Pod to outside the cluster"),
        ),
        ("cross", Rule::new(near).comment("from the host to a Pod of its own")),
        ("cross", Rule::new([Expr::Masquerade])),
    ];
    if let Some(neighbours) = config.neighbours {
        let rule = then(leaves(neighbours), [Expr::Masquerade]);
        rules.push(("postrouting", rule.comment("from a node behind this one to outside the cluster")));
    }
    rules
}

/// Writes the fixed part of the table, in place of whatever is there under its name.
pub fn write_fixed(batch: &mut Batch, config: &Config) {
    let table = config.table();
    batch.replace_table(&table);
    sets().iter().for_each(|set| batch.add_set(&table, set));
    chains().iter().for_each(|chain| batch.add_chain(&table, chain));
    let rules = filter_rules(config).into_iter().chain(destination_rules(config)).chain(source_rules(config));
    rules.for_each(|(chain, rule)| batch.add_rule(&table, chain, &rule));
}

fn add_count(batch: &mut Batch, table: &str, count: u16) {
    let chain = chain_of(count);
    batch.add_chain(table, &Chain::regular(&chain));
    let rule = Rule::new([
        Expr::Ct { key: CtKey::Mark, direction: None, to: Reg(0) },
        masked(Reg(0), &(!MASQUERADE).to_ne_bytes()),
        Expr::Random { modulus: u32::from(count), to: Reg(1) },
        Expr::Map { map: "endpoints".to_owned(), key: Reg(0), to: Reg(0) },
        Expr::Nat { kind: NatKind::Destination, family: Family::Ip, address: Reg(0), port: Some(Reg(1)) },
    ]);
    batch.add_rule(table, &chain, &rule);
    let key = u32::from(count).to_ne_bytes().to_vec();
    batch.add_elements(table, "by-count", &[Element::verdict(key, Verdict::Goto(chain))]);
}

/// A client of this list goes to the endpoint that it has, if that is still one, and counts as just seen; else its endpoint is
/// forgotten, and a new one is drawn and remembered. When too many clients are remembered, new ones are not.
fn add_sticky(batch: &mut Batch, table: &str, seconds: u32, count: u16) {
    let chain = sticky_chain(seconds, count);
    batch.add_chain(table, &Chain::regular(&chain));
    let list = !(MASQUERADE | ((1 << COUNT_BITS) - 1));
    let timeout = Some(Duration::from_secs(seconds.into()));
    // The list's number at 2 and the client at 3; the number again at 4 and the endpoint at 5 and 6.
    let client = || {
        let number =
            |to| [Expr::Ct { key: CtKey::Mark, direction: None, to }, masked(to, &list.to_ne_bytes())];
        let [a, b] = number(Reg(2));
        let [c, d] = number(Reg(4));
        [a, b, Expr::source(Reg(3)), c, d]
    };
    let known = || Expr::Map { map: "affinity".to_owned(), key: Reg(2), to: Reg(5) };
    let remember = || Expr::Update { set: "affinity".to_owned(), key: Reg(2), data: Some(Reg(5)), timeout };
    let go =
        || Expr::Nat { kind: NatKind::Destination, family: Family::Ip, address: Reg(5), port: Some(Reg(6)) };
    let member = Expr::InSet { set: "members".to_owned(), key: Reg(4), absent: false };
    let stay = client().into_iter().chain([known(), member, remember(), go()]);
    let forget = Expr::Forget { set: "affinity".to_owned(), key: Reg(2), data: Some(Reg(5)) };
    let draw = [
        Expr::Ct { key: CtKey::Mark, direction: None, to: Reg(0) },
        masked(Reg(0), &(!MASQUERADE).to_ne_bytes()),
        Expr::Random { modulus: u32::from(count), to: Reg(1) },
        Expr::Map { map: "endpoints".to_owned(), key: Reg(0), to: Reg(5) },
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
pub fn write_actions(batch: &mut Batch, table: &str, actions: &[Action]) {
    let mut removed: BTreeMap<&str, Vec<Element>> = BTreeMap::new();
    let mut added: BTreeMap<&str, Vec<Element>> = BTreeMap::new();
    for action in actions {
        let (sets, key, value) = match action {
            Action::AddCount(count) => {
                add_count(batch, table, *count);
                continue;
            }
            Action::AddSticky(seconds, count) => {
                add_sticky(batch, table, *seconds, *count);
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
