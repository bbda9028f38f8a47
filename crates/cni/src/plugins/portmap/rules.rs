//! The table of one family. Pure.
//!
//! ```text
//! guard (IPv4)        nothing from outside to or from the host's loopback
//! prerouting, output  to an address of the host ──▶ ports ──(address, proto, port)──▶ dnat
//! forward             what would leave by the device that it came by is marked
//! postrouting         what is marked, and what comes from the loopback, is masqueraded
//! ```
//! The mark is the connection's: the same bit by which the proxy asks for a masquerade.

use trine_kernel::nft::matches::{MASQUERADE, STATE_NEW, STATUS_DNAT, ct_bit, local, mark_masquerade};
use trine_kernel::nft::{
    Batch, Chain, ChainKind, CmpOp, CtKey, Element, Expr, Family, Field, Hook, MetaKey, NatKind, PayloadBase,
    Reg, Rule, Set, Verdict, concat,
};

use super::plan::Change;
use crate::plugins::owner::Owner;

/// Keys lead to a container's address and port.
pub const TARGETS: &str = "targets";
/// Keys lead to their owner.
pub const OWNERS: &str = "owners";
/// Owners and their devices.
pub const DEVICES: &str = "devices";
/// Devices, twice each: what comes by one and leaves by the same.
const SAME: &str = "same";

/// Before connections are translated.
const GUARD: i32 = -150;
/// Before Services: a port of the host that a Pod asked for is that Pod's.
const DESTINATION: i32 = -101;
/// Before the proxy's, for the same connections.
const SOURCE: i32 = 99;
/// Length of an interface's name in the kernel, bytes.
const NAME: usize = 16;

/// The host's own loopback: its first byte.
const LOOPBACK: [u8; 1] = [127];

struct Kind {
    address: Field,
    family: Family,
    /// Registers of an address.
    width: u8,
    /// Where addresses are in the header: source, destination.
    offsets: (u32, u32),
}

impl Kind {
    fn of(family: Family) -> Self {
        match family {
            Family::Ip6 => Self { address: Field::Ipv6, family, width: 4, offsets: (8, 24) },
            _ => Self { address: Field::Ipv4, family: Family::Ip, width: 1, offsets: (12, 16) },
        }
    }

    fn bytes(&self) -> usize {
        usize::from(self.width) * 4
    }

    fn load(&self, offset: u32) -> Expr {
        let len = u32::from(self.width) * 4;
        Expr::Payload { base: PayloadBase::Network, offset, len, to: Reg(0) }
    }

    /// Leads what is asked of an address (which is in register 0) to its target.
    fn lead(&self, address: Expr) -> Rule {
        Rule::new([
            address,
            Expr::Meta(MetaKey::L4Proto, Reg(self.width)),
            Expr::destination_port(Reg(self.width + 1)),
            Expr::Map { map: TARGETS.to_owned(), key: Reg(0), to: Reg(0) },
            Expr::Nat {
                kind: NatKind::Destination,
                family: self.family,
                address: Reg(0),
                port: Some(Reg(self.width)),
            },
        ])
    }
}

/// Goes on if the first byte at `offset` of the header is the loopback's.
fn of_loopback(offset: u32) -> [Expr; 2] {
    let load = Expr::Payload { base: PayloadBase::Network, offset, len: 1, to: Reg(0) };
    [load, Expr::Cmp(CmpOp::Eq, Reg(0), LOOPBACK.to_vec())]
}

/// Goes on if the packet did not come by the loopback.
fn from_outside() -> [Expr; 2] {
    let mut name = b"lo".to_vec();
    name.resize(NAME, 0);
    [Expr::Meta(MetaKey::IifName, Reg(0)), Expr::Cmp(CmpOp::Ne, Reg(0), name)]
}

fn sets(kind: &Kind) -> [Set; 4] {
    let key = [kind.address, Field::Proto, Field::Port];
    [
        Set::map(TARGETS, &key, &[kind.address, Field::Port]),
        Set::map(OWNERS, &key, &[Field::Ipv6]),
        Set::new(DEVICES, &[Field::Ipv6, Field::Mark]),
        Set::new(SAME, &[Field::Mark, Field::Mark]),
    ]
}

fn rules(kind: &Kind) -> Vec<(&'static str, Rule)> {
    let to_host = || {
        let mut exprs = local(false, CmpOp::Eq);
        exprs.push(Expr::Verdict(Verdict::Goto("ports".to_owned())));
        Rule::new(exprs)
    };
    let translated = || ct_bit(CtKey::Status, STATUS_DNAT, true);
    let same = [
        Expr::Meta(MetaKey::Iif, Reg(0)),
        Expr::Meta(MetaKey::Oif, Reg(1)),
        Expr::InSet { set: SAME.to_owned(), key: Reg(0), absent: false },
    ];
    let turns = ct_bit(CtKey::State, STATE_NEW, true).into_iter().chain(translated());
    let turns = turns.chain(same).chain(mark_masquerade());
    let marked =
        ct_bit(CtKey::Mark, MASQUERADE, true).into_iter().chain(translated()).chain([Expr::Masquerade]);
    let mut all = vec![
        ("ports", kind.lead(kind.load(kind.offsets.1))),
        ("ports", kind.lead(Expr::Immediate(Reg(0), vec![0; kind.bytes()]))),
        ("prerouting", to_host()),
        ("output", to_host()),
        ("forward", Rule::new(turns).comment("back by the device that it came by")),
        ("postrouting", Rule::new(marked)),
    ];
    if kind.family == Family::Ip {
        let drop = |offset| {
            from_outside().into_iter().chain(of_loopback(offset)).chain([Expr::Verdict(Verdict::Drop)])
        };
        all.push(("guard", Rule::new(drop(kind.offsets.0)).comment("the loopback is the host's alone")));
        all.push(("guard", Rule::new(drop(kind.offsets.1))));
        let own = of_loopback(kind.offsets.0).into_iter().chain(translated()).chain([Expr::Masquerade]);
        all.push(("postrouting", Rule::new(own)));
    }
    all
}

/// Writes the fixed part of the table, in place of what there is of it; elements stay.
pub fn write_fixed(batch: &mut Batch, table: &str, family: Family) {
    let kind = Kind::of(family);
    batch.add_table(table);
    sets(&kind).iter().for_each(|set| batch.add_set(table, set));
    let chains = [
        Chain::regular("ports"),
        Chain::base("guard", ChainKind::Filter, Hook::Prerouting, GUARD),
        Chain::base("prerouting", ChainKind::Nat, Hook::Prerouting, DESTINATION),
        Chain::base("output", ChainKind::Nat, Hook::Output, DESTINATION),
        Chain::base("forward", ChainKind::Filter, Hook::Forward, 0),
        Chain::base("postrouting", ChainKind::Nat, Hook::Postrouting, SOURCE),
    ];
    for chain in chains {
        batch.add_chain(table, &chain);
        batch.flush_chain(table, &chain.name);
    }
    rules(&kind).iter().for_each(|(chain, rule)| batch.add_rule(table, chain, rule));
}

fn device_key((owner, device): &(Owner, u32)) -> Element {
    Element::key(concat(&[&owner.0, &device.to_ne_bytes()]))
}

fn twice(device: &u32) -> Element {
    Element::key(concat(&[&device.to_ne_bytes(), &device.to_ne_bytes()]))
}

/// Writes a change of elements: what goes, then what comes.
pub fn write_change(batch: &mut Batch, table: &str, change: &Change) {
    let Change::Some { keys, devices, added, new_devices } = change else { return };
    let keys: Vec<Element> = keys.iter().map(|key| Element::key(key.clone())).collect();
    let elements = |pairs: &[(Owner, u32)]| pairs.iter().map(device_key).collect::<Vec<_>>();
    let same = |devices: &[u32]| devices.iter().map(twice).collect::<Vec<_>>();
    batch.delete_elements(table, TARGETS, &keys);
    batch.delete_elements(table, OWNERS, &keys);
    batch.delete_elements(table, DEVICES, &elements(&devices.0));
    batch.delete_elements(table, SAME, &same(&devices.1));
    let targets: Vec<Element> = added.iter().map(|(m, _)| Element::value(m.key(), m.value())).collect();
    let owners: Vec<Element> = added.iter().map(|(m, o)| Element::value(m.key(), o.0.to_vec())).collect();
    batch.add_elements(table, TARGETS, &targets);
    batch.add_elements(table, OWNERS, &owners);
    batch.add_elements(table, DEVICES, &elements(&new_devices.0));
    batch.add_elements(table, SAME, &same(&new_devices.1));
}
