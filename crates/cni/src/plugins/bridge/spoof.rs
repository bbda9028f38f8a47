//! `macspoofchk`: a port sends from its own hardware address alone.
//!
//! ```text
//! prerouting (bridge) ── by a guarded port ── not from (port, address) of `allowed` ─▶ dropped
//! ```
//! The table goes with its last port.

use trine_kernel::netlink::Mac;
use trine_kernel::nft::{
    Batch, Chain, ChainKind, Element, Expr, Family, Field, Hook, MetaKey, Nft, PayloadBase, Reg, Rule, Set,
    Verdict, concat,
};

use crate::plugins::owner::{self, Owner, value};
use crate::spec::{CniError, Code, Request};

/// Ports whose frames are looked at, and whose they are.
const GUARDED: &str = "guarded";
/// What they may send from.
const ALLOWED: &str = "allowed";
/// Before all that others do on bridges.
const PRIORITY: i32 = -300;
/// Length of a link's name in the kernel, bytes.
const NAME: usize = 16;

fn table(request: &Request) -> String {
    let instance = request.config.get("instance").and_then(|i| i.as_str()).unwrap_or_default();
    owner::table_name(instance, "macs")
}

fn name(link: &str) -> Vec<u8> {
    let mut bytes = link.as_bytes().to_vec();
    bytes.resize(NAME, 0);
    bytes
}

fn write_fixed(batch: &mut Batch, table: &str) {
    batch.add_table(table);
    batch.add_set(table, &Set::map(GUARDED, &[Field::Ifname], &[Field::Ipv6]));
    batch.add_set(table, &Set::new(ALLOWED, &[Field::Ifname, Field::Ether]));
    batch.add_chain(table, &Chain::base("prerouting", ChainKind::Filter, Hook::Prerouting, PRIORITY));
    batch.flush_chain(table, "prerouting");
    let source = Expr::Payload { base: PayloadBase::Link, offset: 6, len: 6, to: Reg(4) };
    let rule = Rule::new([
        Expr::Meta(MetaKey::IifName, Reg(0)),
        Expr::Map { map: GUARDED.to_owned(), key: Reg(0), to: Reg(8) },
        source,
        Expr::InSet { set: ALLOWED.to_owned(), key: Reg(0), absent: true },
        Expr::Counter,
        Expr::Verdict(Verdict::Drop),
    ]);
    batch.add_rule(table, "prerouting", &rule.comment("from a hardware address that is another's"));
}

type Ports = (Vec<(Vec<u8>, Owner)>, Vec<Vec<u8>>);

fn present(nft: &mut Nft, table: &str) -> Result<Ports, CniError> {
    if !nft.tables(Family::Bridge)?.iter().any(|name| name == table) {
        return Ok(Ports::default());
    }
    let guarded = nft.elements(Family::Bridge, table, GUARDED)?;
    let guarded = guarded.into_iter().filter_map(|e| Some((e.key.clone(), Owner::read(value(&e)?)?)));
    let allowed = nft.elements(Family::Bridge, table, ALLOWED)?;
    Ok((guarded.collect(), allowed.into_iter().map(|e| e.key).collect()))
}

/// Guards a port.
///
/// # Errors
/// What the kernel says; nothing has changed then.
pub fn add(request: &Request, link: &str, mac: Mac) -> Result<(), CniError> {
    let table = table(request);
    let _lock = owner::lock_tables()?;
    let mut nft = Nft::open()?;
    let (guarded, allowed) = present(&mut nft, &table)?;
    let mut batch = Batch::new(Family::Bridge);
    write_fixed(&mut batch, &table);
    take_away(&mut batch, &table, &[name(link)], &guarded, &allowed);
    batch.add_elements(&table, GUARDED, &[Element::value(name(link), Owner::of(request).0.to_vec())]);
    batch.add_elements(&table, ALLOWED, &[Element::key(concat(&[&name(link), &mac.0]))]);
    Ok(nft.commit(batch)?)
}

/// Takes away what is known of the ports `links`.
fn take_away(
    batch: &mut Batch,
    table: &str,
    links: &[Vec<u8>],
    guarded: &[(Vec<u8>, Owner)],
    allowed: &[Vec<u8>],
) {
    let there = guarded.iter().filter(|(key, _)| links.contains(key));
    let there: Vec<_> = there.map(|(key, _)| Element::key(key.clone())).collect();
    let own = allowed.iter().filter(|key| key.get(..NAME).is_some_and(|n| links.iter().any(|l| l == n)));
    batch.delete_elements(table, GUARDED, &there);
    batch.delete_elements(table, ALLOWED, &own.map(|key| Element::key(key.clone())).collect::<Vec<_>>());
}

fn remove(request: &Request, goes: impl Fn(&Owner) -> bool) -> Result<(), CniError> {
    let table = table(request);
    let _lock = owner::lock_tables()?;
    let mut nft = Nft::open()?;
    let (guarded, allowed) = present(&mut nft, &table)?;
    let gone: Vec<Vec<u8>> =
        guarded.iter().filter(|(_, owner)| goes(owner)).map(|(key, _)| key.clone()).collect();
    if gone.is_empty() {
        return Ok(());
    }
    let mut batch = Batch::new(Family::Bridge);
    if gone.len() == guarded.len() {
        batch.delete_table(&table);
    } else {
        take_away(&mut batch, &table, &gone, &guarded, &allowed);
    }
    Ok(nft.commit(batch)?)
}

/// DEL.
///
/// # Errors
/// What is left.
pub fn del(request: &Request) -> Result<(), CniError> {
    let own = Owner::of(request);
    remove(request, |owner| *owner == own)
}

/// GC.
///
/// # Errors
/// What is left.
pub fn gc(request: &Request) -> Result<(), CniError> {
    remove(request, owner::stale(request)?)
}

/// CHECK: the port is guarded.
///
/// # Errors
/// If it is not.
pub fn check(request: &Request, link: &str) -> Result<(), CniError> {
    let wanted = (name(link), Owner::of(request));
    if present(&mut Nft::open()?, &table(request))?.0.contains(&wanted) {
        return Ok(());
    }
    Err(CniError::new(Code::Internal, format!("port {link} may send from any hardware address")))
}
