//! What a rule is made of. An expression loads into, compares or acts on registers; the first that does not match
//! ends the rule.

use std::time::Duration;

use super::attr::{Writer, find, number, string};
use super::object::comment_data;

/// One of the sixteen registers of four bytes; a longer value takes the following ones too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reg(pub u8);

impl Reg {
    /// `NFT_REG32_00`
    const FIRST: u32 = 8;

    pub(super) fn number(self) -> u32 {
        Self::FIRST + u32::from(self.0)
    }
}

/// Where a packet goes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// On its way; later base chains still see it.
    Accept,
    /// Nowhere.
    Drop,
    /// Into a chain, and back.
    Jump(String),
    /// Into a chain, and not back.
    Goto(String),
    /// Back to the calling chain.
    Return,
}

impl Verdict {
    fn code(&self) -> i32 {
        match self {
            Self::Drop => 0,
            Self::Accept => 1,
            Self::Jump(_) => -3,
            Self::Goto(_) => -4,
            Self::Return => -5,
        }
    }

    pub(super) fn write(&self, out: &mut Writer) {
        out.nest(DATA_VERDICT, |out| {
            out.raw(1, &self.code().to_be_bytes());
            if let Self::Jump(chain) | Self::Goto(chain) = self {
                out.text(2, chain);
            }
        });
    }

    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let chain = || find(bytes, 2).map(string);
        match number(find(bytes, 1)?)?.cast_signed() {
            0 => Some(Self::Drop),
            1 => Some(Self::Accept),
            -3 => Some(Self::Jump(chain()?)),
            -4 => Some(Self::Goto(chain()?)),
            -5 => Some(Self::Return),
            _ => None,
        }
    }
}

pub(super) const DATA_VERDICT: u16 = 2;

/// What is known of a packet besides its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum MetaKey {
    /// The packet's mark.
    Mark = 3,
    /// Index of the interface it came by.
    Iif = 4,
    /// Index of the interface it leaves by.
    Oif = 5,
    /// Name of the interface it came by, 16 bytes.
    IifName = 6,
    /// Name of the interface it leaves by, 16 bytes.
    OifName = 7,
    /// IPv4 or IPv6, one byte.
    NfProto = 15,
    /// TCP, UDP, ..., one byte.
    L4Proto = 16,
}

/// Where a payload offset counts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum PayloadBase {
    /// Link-layer header.
    Link = 0,
    /// IP header.
    Network = 1,
    /// TCP or UDP header.
    Transport = 2,
}

/// How a register is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum CmpOp {
    /// Equal.
    Eq = 0,
    /// Not equal.
    Ne = 1,
    /// Less.
    Lt = 2,
    /// Less or equal.
    Le = 3,
    /// Greater.
    Gt = 4,
    /// Greater or equal.
    Ge = 5,
}

/// What connection tracking knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum CtKey {
    /// Bits: 1 invalid, 2 established, 4 related, 8 new, 64 untracked.
    State = 0,
    /// Which way the packet goes, one byte: as [`CtDirection`] has it.
    Direction = 1,
    /// Bits: 0x10 source translated, 0x20 destination translated.
    Status = 2,
    /// The connection's mark.
    Mark = 3,
    /// Destination port, needs a direction.
    ProtoDst = 12,
    /// IPv4 source, needs a direction.
    SrcIp = 19,
    /// IPv4 destination, needs a direction.
    DstIp = 20,
}

/// Which side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CtDirection {
    /// As the first packet had it.
    Original = 0,
    /// As replies have it.
    Reply = 1,
}

/// What a look into the routing table gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum FibResult {
    /// Index of the interface.
    Oif = 1,
    /// The route's type: 1 unicast, 2 local, 3 broadcast, 5 multicast.
    AddrType = 3,
}

/// Which address is translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum NatKind {
    /// The source.
    Source = 0,
    /// The destination.
    Destination = 1,
}

/// How a packet is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectKind {
    /// An ICMP (or ICMPv6) "unreachable" with this code; 3 is port unreachable in IPv4, 4 in IPv6.
    Icmp(u8),
    /// A TCP reset.
    TcpReset,
}

/// One expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expr {
    /// Loads a property of the packet.
    Meta(MetaKey, Reg),
    /// Sets a property of the packet from a register.
    MetaSet(MetaKey, Reg),
    /// Loads `len` bytes at `offset`.
    Payload {
        /// Where the offset counts from.
        base: PayloadBase,
        /// First byte.
        offset: u32,
        /// How many bytes.
        len: u32,
        /// Where they go.
        to: Reg,
    },
    /// Goes on if the register compares so to the bytes.
    Cmp(CmpOp, Reg, Vec<u8>),
    /// `to = (from & mask) ^ xor`
    Bitwise {
        /// The input.
        from: Reg,
        /// The output.
        to: Reg,
        /// The mask.
        mask: Vec<u8>,
        /// What is flipped after it.
        xor: Vec<u8>,
    },
    /// Loads bytes.
    Immediate(Reg, Vec<u8>),
    /// Ends the rule with a verdict.
    Verdict(Verdict),
    /// Goes on if the key is in the set (or is not, if `absent`).
    InSet {
        /// The set.
        set: String,
        /// First register of the key.
        key: Reg,
        /// Goes on if the key is not in it.
        absent: bool,
    },
    /// Goes on if the key is in the map, and loads its value.
    Map {
        /// The map.
        map: String,
        /// First register of the key.
        key: Reg,
        /// First register of the value.
        to: Reg,
    },
    /// Takes the verdict that the key leads to, if any.
    VerdictMap {
        /// The map.
        map: String,
        /// First register of the key.
        key: Reg,
    },
    /// Loads a random number from 0 to below the modulus, in host order.
    Random {
        /// The modulus.
        modulus: u32,
        /// Where it goes.
        to: Reg,
    },
    /// Loads what connection tracking knows.
    Ct {
        /// What.
        key: CtKey,
        /// Which side, for addresses and ports.
        direction: Option<CtDirection>,
        /// Where it goes.
        to: Reg,
    },
    /// Sets the connection's mark (the only key that can be set) from a register.
    CtMarkSet(Reg),
    /// Looks an address of the packet up in the routing table: the destination, or the source.
    Fib {
        /// The source instead of the destination.
        source: bool,
        /// What is loaded.
        result: FibResult,
        /// Where it goes.
        to: Reg,
    },
    /// Translates an address, and a port if it has a register.
    Nat {
        /// Which address.
        kind: NatKind,
        /// The address family.
        family: super::Family,
        /// Register of the new address.
        address: Reg,
        /// Register of the new port.
        port: Option<Reg>,
    },
    /// Translates the source to the outgoing interface's address, with a random port.
    Masquerade,
    /// Refuses the packet.
    Reject(RejectKind),
    /// Goes on while at most `rate` packets a second come.
    Limit {
        /// Packets a second.
        rate: u64,
        /// Packets above it at once.
        burst: u32,
    },
    /// Counts packets and bytes.
    Counter,
    /// Adds the key to a dynamic set, or renews its time; into a map with the value at `data`. A key that is there keeps its
    /// value. Goes on unless the set is full.
    Update {
        /// The set.
        set: String,
        /// First register of the key.
        key: Reg,
        /// First register of the value.
        data: Option<Reg>,
        /// How long it stays; without it, as long as the set says.
        timeout: Option<Duration>,
    },
    /// Takes the key out of a dynamic set.
    Forget {
        /// The set.
        set: String,
        /// First register of the key.
        key: Reg,
        /// First register of the value, which the kernel wants of a map even here.
        data: Option<Reg>,
    },
}

impl Expr {
    /// The packet's IPv4 source.
    #[must_use]
    pub fn source(to: Reg) -> Self {
        Self::Payload { base: PayloadBase::Network, offset: 12, len: 4, to }
    }

    /// The packet's IPv4 destination.
    #[must_use]
    pub fn destination(to: Reg) -> Self {
        Self::Payload { base: PayloadBase::Network, offset: 16, len: 4, to }
    }

    /// The packet's IPv6 source.
    #[must_use]
    pub fn source6(to: Reg) -> Self {
        Self::Payload { base: PayloadBase::Network, offset: 8, len: 16, to }
    }

    /// The packet's IPv6 destination.
    #[must_use]
    pub fn destination6(to: Reg) -> Self {
        Self::Payload { base: PayloadBase::Network, offset: 24, len: 16, to }
    }

    /// The destination port of TCP, UDP or SCTP.
    #[must_use]
    pub fn destination_port(to: Reg) -> Self {
        Self::Payload { base: PayloadBase::Transport, offset: 2, len: 2, to }
    }
}

/// A rule: its expressions, and a comment that listings show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// What it does, in order.
    pub exprs: Vec<Expr>,
    /// Shown by listings; at most 127 bytes.
    pub comment: Option<String>,
}

impl Rule {
    /// A rule without a comment.
    #[must_use]
    pub fn new(exprs: impl IntoIterator<Item = Expr>) -> Self {
        Self { exprs: exprs.into_iter().collect(), comment: None }
    }

    /// The same rule with a comment.
    #[must_use]
    pub fn comment(self, comment: impl Into<String>) -> Self {
        Self { comment: Some(comment.into()), ..self }
    }

    pub(super) fn write(&self, table: &str, chain: &str, out: &mut Writer) {
        out.text(1, table);
        out.text(2, chain);
        out.nest(4, |out| self.exprs.iter().for_each(|expr| expr.write(out)));
        if let Some(comment) = &self.comment {
            out.raw(7, &comment_data(comment));
        }
    }
}
