//! What a table holds: chains, sets and maps, elements.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use super::attr::Writer;
use super::expr::Verdict;

/// Which packets a table sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Family {
    /// IPv4 and IPv6.
    Inet = 1,
    /// IPv4.
    Ip = 2,
    /// IPv6.
    Ip6 = 10,
    /// Ingress and egress of devices.
    Netdev = 5,
    /// Frames on a bridge.
    Bridge = 7,
}

/// Where a base chain is hooked in (not for [`Family::Netdev`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Hook {
    /// Every packet that came in, before routing.
    Prerouting = 0,
    /// To this host.
    Input = 1,
    /// Through this host.
    Forward = 2,
    /// From this host, before it is routed again.
    Output = 3,
    /// Every packet that goes out.
    Postrouting = 4,
}

/// What a base chain may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainKind {
    /// Accept, drop, reject.
    Filter,
    /// Translate addresses; sees the first packet of a connection only.
    Nat,
    /// Filter, and route anew if the packet was changed; output only.
    Route,
}

impl ChainKind {
    fn name(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Nat => "nat",
            Self::Route => "route",
        }
    }
}

/// A chain: a base chain if it has a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Its name, unique in the table.
    pub name: String,
    /// Kind, hook and priority (lower runs first; destination NAT is -100, filter 0, source NAT 100).
    pub base: Option<(ChainKind, Hook, i32)>,
}

impl Chain {
    /// A chain that others jump or go to.
    #[must_use]
    pub fn regular(name: impl Into<String>) -> Self {
        Self { name: name.into(), base: None }
    }

    /// A chain that packets enter by themselves, with the policy `accept`.
    #[must_use]
    pub fn base(name: impl Into<String>, kind: ChainKind, hook: Hook, priority: i32) -> Self {
        Self { name: name.into(), base: Some((kind, hook, priority)) }
    }

    pub(super) fn write(&self, table: &str, out: &mut Writer) {
        out.text(CHAIN_TABLE, table);
        out.text(CHAIN_NAME, &self.name);
        if let Some((kind, hook, priority)) = self.base {
            out.nest(CHAIN_HOOK, |out| {
                out.u32(1, hook as u32);
                out.raw(2, &priority.to_be_bytes());
            });
            out.u32(CHAIN_POLICY, NF_ACCEPT);
            out.text(CHAIN_TYPE, kind.name());
        }
    }
}

pub(super) const CHAIN_TABLE: u16 = 1;
pub(super) const CHAIN_NAME: u16 = 3;
pub(super) const CHAIN_HOOK: u16 = 4;
pub(super) const CHAIN_POLICY: u16 = 5;
pub(super) const CHAIN_TYPE: u16 = 7;
const NF_ACCEPT: u32 = 1;

/// One field of a key or of a map's value. The number is nft's own datatype, which the kernel stores for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Field {
    /// An IPv4 address.
    Ipv4 = 7,
    /// An IPv6 address.
    Ipv6 = 8,
    /// A link-layer address.
    Ether = 9,
    /// A protocol number.
    Proto = 12,
    /// A port.
    Port = 13,
    /// A number of 32 bits in host order.
    Mark = 19,
    /// An interface's name.
    Ifname = 41,
}

impl Field {
    /// Bytes that the field takes by itself.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        match self {
            Self::Ipv4 | Self::Mark => 4,
            Self::Ipv6 | Self::Ifname => 16,
            Self::Ether => 6,
            Self::Proto => 1,
            Self::Port => 2,
        }
    }
}

/// nft's number for a concatenation of fields: six bits for each.
#[must_use]
pub fn type_id(fields: &[Field]) -> u32 {
    fields.iter().fold(0, |id, field| (id << 6) | *field as u32)
}

/// Bytes that a concatenation takes; every field of several is padded to a register of four bytes.
#[must_use]
pub fn type_len(fields: &[Field]) -> u32 {
    match fields {
        [one] => one.bytes(),
        many => many.iter().map(|field| field.bytes().next_multiple_of(4)).sum(),
    }
}

/// The bytes of a key or value from the bytes of its fields, padded as [`type_len`] says.
#[must_use]
pub fn concat(fields: &[&[u8]]) -> Vec<u8> {
    if let [one] = fields {
        return one.to_vec();
    }
    let mut bytes = Vec::with_capacity(fields.iter().map(|f| f.len().next_multiple_of(4)).sum());
    for field in fields {
        bytes.extend_from_slice(field);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    bytes
}

/// An address as a field has it.
#[must_use]
pub fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

/// What a map's elements lead to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetData {
    /// A verdict: the set is a verdict map.
    Verdict,
    /// A value of these fields.
    Value(Vec<Field>),
}

/// Properties of a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetFlags {
    /// Elements are ranges, written by [`Element::interval`].
    pub interval: bool,
    /// Elements may expire.
    pub timeout: bool,
    /// Packets add elements.
    pub dynamic: bool,
}

/// A set, or a map if it has data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    /// Its name, unique in the table.
    pub name: String,
    /// The key.
    pub key: Vec<Field>,
    /// What a key leads to, if the set is a map.
    pub data: Option<SetData>,
    /// Its properties.
    pub flags: SetFlags,
    /// How long an element lives if it does not say so itself.
    pub timeout: Option<Duration>,
    /// The most elements; none is no limit.
    pub size: Option<u32>,
}

impl Set {
    /// A plain set.
    #[must_use]
    pub fn new(name: impl Into<String>, key: &[Field]) -> Self {
        Self {
            name: name.into(),
            key: key.to_vec(),
            data: None,
            flags: SetFlags::default(),
            timeout: None,
            size: None,
        }
    }

    /// A map to values.
    #[must_use]
    pub fn map(name: impl Into<String>, key: &[Field], value: &[Field]) -> Self {
        Self { data: Some(SetData::Value(value.to_vec())), ..Self::new(name, key) }
    }

    /// A map to verdicts.
    #[must_use]
    pub fn vmap(name: impl Into<String>, key: &[Field]) -> Self {
        Self { data: Some(SetData::Verdict), ..Self::new(name, key) }
    }

    fn flag_bits(&self) -> u32 {
        let bit = |on: bool, bit: u32| if on { bit } else { 0 };
        bit(self.flags.interval, 0x4)
            | bit(self.data.is_some(), 0x8)
            | bit(self.flags.timeout, 0x10)
            | bit(self.flags.dynamic, 0x20)
            | bit(self.key.len() > 1, 0x80)
    }

    pub(super) fn write(&self, table: &str, id: u32, out: &mut Writer) {
        out.text(SET_TABLE, table);
        out.text(SET_NAME, &self.name);
        out.u32(SET_FLAGS, self.flag_bits());
        out.u32(SET_KEY_TYPE, type_id(&self.key));
        out.u32(SET_KEY_LEN, type_len(&self.key));
        match &self.data {
            Some(SetData::Verdict) => out.u32(SET_DATA_TYPE, VERDICT_TYPE),
            Some(SetData::Value(fields)) => {
                out.u32(SET_DATA_TYPE, type_id(fields));
                out.u32(SET_DATA_LEN, type_len(fields));
            }
            None => {}
        }
        out.u32(SET_ID, id);
        if self.key.len() > 1 || self.size.is_some() {
            out.nest(SET_DESC, |out| self.write_description(out));
        }
        if let Some(timeout) = self.timeout {
            out.u64(SET_TIMEOUT, millis(timeout));
        }
        out.raw(SET_USERDATA, &self.byte_orders());
    }

    /// For `nft` alone, which would print numbers in the wrong order without it: (type, length, value) each.
    fn byte_orders(&self) -> Vec<u8> {
        let order = |fields: &[Field]| if fields == [Field::Mark] { HOST_ORDER } else { NETWORK_ORDER };
        let mut bytes = vec![0, 4];
        bytes.extend_from_slice(&order(&self.key).to_ne_bytes());
        if let Some(SetData::Value(fields)) = &self.data {
            bytes.extend_from_slice(&[1, 4]);
            bytes.extend_from_slice(&order(fields).to_ne_bytes());
        }
        bytes
    }

    fn write_description(&self, out: &mut Writer) {
        if let Some(size) = self.size {
            out.u32(1, size);
        }
        if self.key.len() > 1 {
            out.nest(2, |out| {
                for field in &self.key {
                    out.nest(LIST_ELEM, |out| out.u32(1, field.bytes()));
                }
            });
        }
    }
}

pub(super) const SET_TABLE: u16 = 1;
pub(super) const SET_NAME: u16 = 2;
const SET_FLAGS: u16 = 3;
pub(super) const SET_KEY_TYPE: u16 = 4;
const SET_KEY_LEN: u16 = 5;
pub(super) const SET_DATA_TYPE: u16 = 6;
const SET_DATA_LEN: u16 = 7;
const SET_DESC: u16 = 9;
const SET_ID: u16 = 10;
const SET_TIMEOUT: u16 = 11;
const SET_USERDATA: u16 = 13;
const HOST_ORDER: u32 = 1;
const NETWORK_ORDER: u32 = 2;
/// `NFT_DATA_VERDICT`
const VERDICT_TYPE: u32 = 0xffff_ff00;
pub(super) const LIST_ELEM: u16 = 1;

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// What one element of a map leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// A value, as [`concat`] gives it.
    Value(Vec<u8>),
    /// A verdict.
    Verdict(Verdict),
}

impl Data {
    pub(super) fn write(&self, kind: u16, out: &mut Writer) {
        out.nest(kind, |out| match self {
            Self::Value(bytes) => out.raw(DATA_VALUE, bytes),
            Self::Verdict(verdict) => verdict.write(out),
        });
    }
}

pub(super) const DATA_VALUE: u16 = 1;

/// One element of a set or map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element {
    /// The key, as [`concat`] gives it.
    pub key: Vec<u8>,
    /// What it leads to, in a map.
    pub data: Option<Data>,
    /// How long it lives, in a set with timeouts.
    pub timeout: Option<Duration>,
    /// True for the element that closes a range (its key is the first one outside).
    pub closes_range: bool,
    /// Shown by listings, and read back; at most 126 bytes.
    pub comment: Option<String>,
}

impl Element {
    /// A key alone.
    #[must_use]
    pub fn key(key: Vec<u8>) -> Self {
        Self { key, data: None, timeout: None, closes_range: false, comment: None }
    }

    /// A key that leads to a value.
    #[must_use]
    pub fn value(key: Vec<u8>, value: Vec<u8>) -> Self {
        Self { data: Some(Data::Value(value)), ..Self::key(key) }
    }

    /// A key that leads to a verdict.
    #[must_use]
    pub fn verdict(key: Vec<u8>, verdict: Verdict) -> Self {
        Self { data: Some(Data::Verdict(verdict)), ..Self::key(key) }
    }

    /// The elements for an IPv4 prefix in an interval set. The range that reaches the last address has no end.
    #[must_use]
    pub fn interval(network: Ipv4Addr, prefix: u8) -> Vec<Self> {
        let size = 1u64 << (32 - u32::from(prefix.min(32)));
        let first = u64::from(u32::from(network)) & !(size - 1);
        let mut elements = vec![Self::key(network_bytes(first))];
        if first + size <= u64::from(u32::MAX) {
            elements.push(Self { closes_range: true, ..Self::key(network_bytes(first + size)) });
        }
        elements
    }

    /// The elements for a range of keys in an interval set: its first, and the first behind it unless it reaches the last of all.
    #[must_use]
    pub fn range(first: Vec<u8>, behind: Option<Vec<u8>>) -> Vec<Self> {
        let end = behind.map(|key| Self { closes_range: true, ..Self::key(key) });
        std::iter::once(Self::key(first)).chain(end).collect()
    }

    pub(super) fn write(&self, out: &mut Writer) {
        out.nest(LIST_ELEM, |out| {
            out.nest(ELEM_KEY, |out| out.raw(DATA_VALUE, &self.key));
            if let Some(data) = &self.data {
                data.write(ELEM_DATA, out);
            }
            if self.closes_range {
                out.u32(ELEM_FLAGS, 1);
            }
            if let Some(timeout) = self.timeout {
                out.u64(ELEM_TIMEOUT, millis(timeout));
            }
            if let Some(comment) = &self.comment {
                out.raw(ELEM_USERDATA, &comment_data(comment));
            }
        });
    }
}

/// A comment as listings find it among what is not the kernel's: type, length, text with its end.
pub(super) fn comment_data(comment: &str) -> Vec<u8> {
    let text = &comment.as_bytes()[..comment.len().min(126)];
    let mut data = vec![0, u8::try_from(text.len() + 1).unwrap_or(u8::MAX)];
    data.extend_from_slice(text);
    data.push(0);
    data
}

fn network_bytes(address: u64) -> Vec<u8> {
    u32::try_from(address).unwrap_or(u32::MAX).to_be_bytes().to_vec()
}

pub(super) const ELEM_KEY: u16 = 1;
pub(super) const ELEM_DATA: u16 = 2;
pub(super) const ELEM_FLAGS: u16 = 3;
const ELEM_TIMEOUT: u16 = 4;
pub(super) const ELEM_USERDATA: u16 = 6;
