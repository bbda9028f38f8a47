//! What rules of several tables say alike. The bit is a contract between them: whoever marks a connection by it has its source replaced
//! by the one who translates sources.

use std::net::IpAddr;

use super::expr::{CmpOp, CtKey, Expr, FibResult, Reg, RejectKind};
use super::object::{Family, Field, octets};
use crate::netlink::Cidr;

/// In a connection's mark: its source is to be replaced by the node's address.
pub const MASQUERADE: u32 = 1 << 31;
/// `ct state new`
pub const STATE_NEW: u32 = 8;
/// `ct state related`
pub const STATE_RELATED: u32 = 4;
/// `ct status dnat`
pub const STATUS_DNAT: u32 = 0x20;
/// `RTN_LOCAL`
const LOCAL: u32 = 2;

/// The family of a table.
#[must_use]
pub const fn family(v6: bool) -> Family {
    if v6 { Family::Ip6 } else { Family::Ip }
}

/// An address in a set's key.
#[must_use]
pub const fn address(v6: bool) -> Field {
    if v6 { Field::Ipv6 } else { Field::Ipv4 }
}

/// The packet's source.
#[must_use]
pub fn source(v6: bool, to: Reg) -> Expr {
    if v6 { Expr::source6(to) } else { Expr::source(to) }
}

/// The packet's destination.
#[must_use]
pub fn destination(v6: bool, to: Reg) -> Expr {
    if v6 { Expr::destination6(to) } else { Expr::destination(to) }
}

/// The register behind an address that is in this one.
#[must_use]
pub const fn behind(v6: bool, address: Reg) -> Reg {
    Reg(address.0 + if v6 { 4 } else { 1 })
}

/// Goes on if the address in register 0 is in the range (or is not).
#[must_use]
pub fn in_range(load: Expr, range: Cidr, op: CmpOp) -> Vec<Expr> {
    let mask = match range.addr {
        IpAddr::V4(_) => u32::MAX.checked_shl(32 - u32::from(range.len)).unwrap_or(0).to_be_bytes().to_vec(),
        IpAddr::V6(_) => {
            u128::MAX.checked_shl(128 - u32::from(range.len)).unwrap_or(0).to_be_bytes().to_vec()
        }
    };
    vec![load, masked(Reg(0), &mask), Expr::Cmp(op, Reg(0), octets(range.network().addr))]
}

/// The sender hears that nobody is at the port.
#[must_use]
pub const fn unreachable_port(v6: bool) -> Expr {
    Expr::Reject(RejectKind::Icmp(if v6 { 4 } else { 3 }))
}

/// Keeps the bits of `mask` in a register.
#[must_use]
pub fn masked(reg: Reg, mask: &[u8]) -> Expr {
    Expr::Bitwise { from: reg, to: reg, mask: mask.to_vec(), xor: vec![0; mask.len()] }
}

/// Goes on if an address of the packet is (or is not) this host's.
#[must_use]
pub fn local(source: bool, op: CmpOp) -> Vec<Expr> {
    vec![
        Expr::Fib { source, result: FibResult::AddrType, to: Reg(0) },
        Expr::Cmp(op, Reg(0), LOCAL.to_ne_bytes().to_vec()),
    ]
}

/// Goes on if a bit of a number of connection tracking is set (or is not).
#[must_use]
pub fn ct_bit(key: CtKey, bit: u32, set: bool) -> Vec<Expr> {
    let op = if set { CmpOp::Ne } else { CmpOp::Eq };
    vec![
        Expr::Ct { key, direction: None, to: Reg(0) },
        masked(Reg(0), &bit.to_ne_bytes()),
        Expr::Cmp(op, Reg(0), vec![0; 4]),
    ]
}

/// Sets the [`MASQUERADE`] bit of the connection's mark.
#[must_use]
pub fn mark_masquerade() -> [Expr; 3] {
    [
        Expr::Ct { key: CtKey::Mark, direction: None, to: Reg(0) },
        Expr::Bitwise {
            from: Reg(0),
            to: Reg(0),
            mask: (!MASQUERADE).to_ne_bytes().to_vec(),
            xor: MASQUERADE.to_ne_bytes().to_vec(),
        },
        Expr::CtMarkSet(Reg(0)),
    ]
}
