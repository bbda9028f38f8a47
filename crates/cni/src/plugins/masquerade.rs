//! `ipMasq`: packets of a container that leave its subnet leave as the host's own. Which backend is named does not matter: nftables
//! does it.
//!
//! ```text
//! postrouting ── source ─▶ sources ─▶ to-10.77.0.0-24 ── its subnet, or multicast ─▶ as it is
//!                                                     └─ anything else ─▶ masqueraded
//! ```
//! The table of a family goes with its last container. Whose an address is stands beside it, so that neither DEL nor GC needs to be told
//! of addresses or of the namespace.

use trine_kernel::netlink::Cidr;
use trine_kernel::nft::matches::masked;
use trine_kernel::nft::{
    Batch, Chain, ChainKind, CmpOp, Element, Expr, Family, Field, Hook, Nft, Reg, Rule, Set, Verdict, octets,
};

use super::owner::{self, Owner, value};
use crate::spec::{CniError, CniResult, Code, Request};

/// Where sources lead.
const SOURCES: &str = "sources";
/// Whose sources are.
const OWNERS: &str = "owners";
/// Where sources are translated.
const PRIORITY: i32 = 100;

const FAMILIES: [Family; 2] = [Family::Ip, Family::Ip6];

fn table(request: &Request) -> String {
    let instance = request.config.get("instance").and_then(|i| i.as_str()).unwrap_or_default();
    owner::table_name(instance, "masquerade")
}

fn field(family: Family) -> Field {
    if family == Family::Ip6 { Field::Ipv6 } else { Field::Ipv4 }
}

/// A chain for a subnet.
fn chain(subnet: Cidr) -> String {
    format!("to-{}-{}", subnet.addr.to_string().replace(':', "_"), subnet.len)
}

fn mask(len: u8, bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|i| {
            let bits = u32::from(len).saturating_sub(u32::try_from(i).unwrap_or(u32::MAX).saturating_mul(8));
            0xff_u8.checked_shl(8 - bits.min(8)).unwrap_or(0)
        })
        .collect()
}

/// Goes on if the destination is in `subnet`.
fn towards(subnet: Cidr) -> [Expr; 3] {
    let bytes = octets(subnet.network().addr);
    let load = if bytes.len() == 4 { Expr::destination(Reg(0)) } else { Expr::destination6(Reg(0)) };
    [load, masked(Reg(0), &mask(subnet.len, bytes.len())), Expr::Cmp(CmpOp::Eq, Reg(0), bytes)]
}

/// The multicast addresses of a family.
fn multicast(family: Family) -> Cidr {
    let (addr, len) = if family == Family::Ip6 {
        (std::net::Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0).into(), 8)
    } else {
        (std::net::Ipv4Addr::new(224, 0, 0, 0).into(), 4)
    };
    Cidr { addr, len }
}

/// The table with a chain for each of `subnets`; elements stay.
fn write_fixed(batch: &mut Batch, table: &str, family: Family, subnets: &[Cidr]) {
    batch.add_table(table);
    batch.add_set(table, &Set::vmap(SOURCES, &[field(family)]));
    batch.add_set(table, &Set::map(OWNERS, &[field(family)], &[Field::Ipv6]));
    batch.add_chain(table, &Chain::base("postrouting", ChainKind::Nat, Hook::Postrouting, PRIORITY));
    batch.flush_chain(table, "postrouting");
    let load = if family == Family::Ip6 { Expr::source6(Reg(0)) } else { Expr::source(Reg(0)) };
    batch.add_rule(
        table,
        "postrouting",
        &Rule::new([load, Expr::VerdictMap { map: SOURCES.to_owned(), key: Reg(0) }]),
    );
    for subnet in subnets {
        let name = chain(*subnet);
        batch.add_chain(table, &Chain::regular(&name));
        batch.flush_chain(table, &name);
        for own in [*subnet, multicast(family)] {
            let back = towards(own).into_iter().chain([Expr::Verdict(Verdict::Return)]);
            batch.add_rule(table, &name, &Rule::new(back));
        }
        batch.add_rule(table, &name, &Rule::new([Expr::Masquerade]));
    }
}

/// Masquerades the addresses of `result` that are the container's.
///
/// # Errors
/// What the kernel says; nothing has changed in that family then.
pub fn add(request: &Request, result: &CniResult) -> Result<(), CniError> {
    let table = table(request);
    let own = Owner::of(request);
    for family in FAMILIES {
        let ips: Vec<Cidr> =
            result.container_ips().into_iter().map(|(addr, len)| Cidr { addr, len }).collect();
        let ips: Vec<Cidr> =
            ips.into_iter().filter(|ip| ip.addr.is_ipv6() == (family == Family::Ip6)).collect();
        if ips.is_empty() {
            continue;
        }
        let _lock = owner::lock_tables()?;
        let mut nft = Nft::open()?;
        let mut subnets: Vec<Cidr> = ips.iter().map(|ip| ip.network()).collect();
        subnets.sort();
        subnets.dedup();
        let present = owners(&mut nft, family, &table)?;
        let keys: Vec<Vec<u8>> = ips.iter().map(|ip| octets(ip.addr)).collect();
        let taken: Vec<Element> = present
            .iter()
            .filter(|(key, _)| keys.contains(key))
            .map(|(key, _)| Element::key(key.clone()))
            .collect();
        let mut batch = Batch::new(family);
        write_fixed(&mut batch, &table, family, &subnets);
        batch.delete_elements(&table, SOURCES, &taken);
        batch.delete_elements(&table, OWNERS, &taken);
        let lead = |ip: &Cidr| Element::verdict(octets(ip.addr), Verdict::Goto(chain(ip.network())));
        batch.add_elements(&table, SOURCES, &ips.iter().map(lead).collect::<Vec<_>>());
        let whose = |key: &Vec<u8>| Element::value(key.clone(), own.0.to_vec());
        batch.add_elements(&table, OWNERS, &keys.iter().map(whose).collect::<Vec<_>>());
        nft.commit(batch)?;
    }
    Ok(())
}

fn owners(nft: &mut Nft, family: Family, table: &str) -> Result<Vec<(Vec<u8>, Owner)>, CniError> {
    if !nft.tables(family)?.iter().any(|name| name == table) {
        return Ok(Vec::new());
    }
    let all = nft.elements(family, table, OWNERS)?;
    Ok(all.into_iter().filter_map(|e| Some((e.key.clone(), Owner::read(value(&e)?)?))).collect())
}

/// Masquerades nothing more of the owners that `goes` names.
///
/// # Errors
/// What is left.
fn remove(request: &Request, goes: impl Fn(&Owner) -> bool) -> Result<(), CniError> {
    let table = table(request);
    let mut failed = Vec::new();
    for family in FAMILIES {
        failed.extend(remove_family(&table, family, &goes).err());
    }
    CniError::all(failed)
}

fn remove_family(table: &str, family: Family, goes: impl Fn(&Owner) -> bool) -> Result<(), CniError> {
    let _lock = owner::lock_tables()?;
    let mut nft = Nft::open()?;
    let present = owners(&mut nft, family, table)?;
    let gone: Vec<Element> =
        present.iter().filter(|(_, owner)| goes(owner)).map(|(key, _)| Element::key(key.clone())).collect();
    if gone.is_empty() {
        return Ok(());
    }
    let mut batch = Batch::new(family);
    if gone.len() == present.len() {
        batch.delete_table(table);
    } else {
        batch.delete_elements(table, SOURCES, &gone);
        batch.delete_elements(table, OWNERS, &gone);
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

/// CHECK: every address of the container is masqueraded, and as its own.
///
/// # Errors
/// The first that is not.
pub fn check(request: &Request, result: &CniResult) -> Result<(), CniError> {
    let own = Owner::of(request);
    let mut nft = Nft::open()?;
    for (addr, _) in result.container_ips() {
        let family = if addr.is_ipv6() { Family::Ip6 } else { Family::Ip };
        if !owners(&mut nft, family, &table(request))?.contains(&(octets(addr), own)) {
            return Err(CniError::new(Code::Internal, format!("{addr} is not masqueraded")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_those_of_prefixes() {
        for (len, expected) in [
            (24, vec![255, 255, 255, 0]),
            (28, vec![255, 255, 255, 240]),
            (0, vec![0; 4]),
            (32, vec![255; 4]),
        ] {
            assert_eq!(mask(len, 4), expected, "{len}");
        }
        assert_eq!(mask(65, 16)[7..10], [255, 128, 0]);
    }
}
