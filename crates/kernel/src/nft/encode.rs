//! Expressions as the kernel's messages have them (uapi/linux/netfilter/nf_tables.h).

use super::attr::Writer;
use super::expr::{CtKey, Expr, Reg, RejectKind};
use super::object::{Data, LIST_ELEM, millis};

impl Expr {
    fn name(&self) -> &'static str {
        match self {
            Self::Meta(..) | Self::MetaSet(..) => "meta",
            Self::Payload { .. } => "payload",
            Self::Cmp(..) => "cmp",
            Self::Bitwise { .. } => "bitwise",
            Self::Immediate(..) | Self::Verdict(_) => "immediate",
            Self::InSet { .. } | Self::Map { .. } | Self::VerdictMap { .. } => "lookup",
            Self::Random { .. } => "numgen",
            Self::Ct { .. } | Self::CtMarkSet(_) => "ct",
            Self::Fib { .. } => "fib",
            Self::Nat { .. } => "nat",
            Self::Masquerade => "masq",
            Self::Reject(_) => "reject",
            Self::Limit { .. } => "limit",
            Self::Counter => "counter",
            Self::Update { .. } | Self::Forget { .. } => "dynset",
        }
    }

    pub(super) fn write(&self, out: &mut Writer) {
        out.nest(LIST_ELEM, |out| {
            out.text(1, self.name());
            out.nest(2, |out| self.write_data(out));
        });
    }

    fn write_data(&self, out: &mut Writer) {
        match self {
            Self::Meta(key, to) => {
                out.u32(1, to.number());
                out.u32(2, *key as u32);
            }
            Self::MetaSet(key, from) => {
                out.u32(2, *key as u32);
                out.u32(3, from.number());
            }
            Self::Payload { base, offset, len, to } => {
                out.u32(1, to.number());
                out.u32(2, *base as u32);
                out.u32(3, *offset);
                out.u32(4, *len);
            }
            Self::Cmp(op, reg, bytes) => {
                out.u32(1, reg.number());
                out.u32(2, *op as u32);
                Data::Value(bytes.clone()).write(3, out);
            }
            Self::Bitwise { from, to, mask, xor } => {
                out.u32(1, from.number());
                out.u32(2, to.number());
                out.u32(3, u32::try_from(mask.len()).unwrap_or(0));
                Data::Value(mask.clone()).write(4, out);
                Data::Value(xor.clone()).write(5, out);
            }
            Self::Immediate(to, bytes) => {
                out.u32(1, to.number());
                Data::Value(bytes.clone()).write(2, out);
            }
            Self::Verdict(verdict) => {
                out.u32(1, VERDICT_REGISTER);
                Data::Verdict(verdict.clone()).write(2, out);
            }
            Self::InSet { set, key, absent } => write_lookup(out, set, *key, None, *absent),
            Self::Map { map, key, to } => write_lookup(out, map, *key, Some(to.number()), false),
            Self::VerdictMap { map, key } => write_lookup(out, map, *key, Some(VERDICT_REGISTER), false),
            _ => self.write_action(out),
        }
    }

    fn write_action(&self, out: &mut Writer) {
        match self {
            Self::Random { modulus, to } => {
                out.u32(1, to.number());
                out.u32(2, *modulus);
                out.u32(3, 1);
            }
            Self::Ct { key, direction, to } => {
                out.u32(1, to.number());
                out.u32(2, *key as u32);
                if let Some(direction) = direction {
                    out.u8(3, *direction as u8);
                }
            }
            Self::CtMarkSet(from) => {
                out.u32(2, CtKey::Mark as u32);
                out.u32(4, from.number());
            }
            Self::Fib { source, result, to } => {
                out.u32(1, to.number());
                out.u32(2, *result as u32);
                out.u32(3, if *source { 1 } else { 2 });
            }
            Self::Nat { kind, family, address, port } => {
                out.u32(1, *kind as u32);
                out.u32(2, u32::from(*family as u8));
                out.u32(3, address.number());
                if let Some(port) = port {
                    out.u32(5, port.number());
                }
            }
            Self::Masquerade => out.u32(1, RANDOM_FULLY),
            Self::Reject(RejectKind::Icmp(code)) => {
                out.u32(1, 0);
                out.u8(2, *code);
            }
            Self::Reject(RejectKind::TcpReset) => {
                out.u32(1, 1);
                out.u8(2, 0);
            }
            Self::Limit { rate, burst } => {
                out.u64(1, *rate);
                out.u64(2, 1);
                out.u32(3, *burst);
                out.u32(4, 0);
            }
            Self::Update { set, key, data, timeout } => {
                write_dynset(out, set, 1, *key, *data);
                if let Some(timeout) = timeout {
                    out.u64(6, millis(*timeout));
                }
            }
            Self::Forget { set, key, data } => write_dynset(out, set, 2, *key, *data),
            _ => {}
        }
    }
}

/// `NFT_REG_VERDICT`
const VERDICT_REGISTER: u32 = 0;
/// `NF_NAT_RANGE_PROTO_RANDOM_FULLY`
const RANDOM_FULLY: u32 = 16;

fn write_lookup(out: &mut Writer, set: &str, key: Reg, to: Option<u32>, absent: bool) {
    out.text(1, set);
    out.u32(2, key.number());
    if let Some(to) = to {
        out.u32(3, to);
    }
    if absent {
        out.u32(5, 1);
    }
}

fn write_dynset(out: &mut Writer, set: &str, operation: u32, key: Reg, data: Option<Reg>) {
    out.text(1, set);
    out.u32(3, operation);
    out.u32(4, key.number());
    if let Some(data) = data {
        out.u32(5, data.number());
    }
}
