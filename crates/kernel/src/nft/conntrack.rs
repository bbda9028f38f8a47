//! Connections that the kernel tracks. A datagram's connection lives as long as its client sends, and keeps the translation that
//! its first packet met: whoever changes translations has it forgotten.

use std::net::IpAddr;

use super::attr::{Writer, find};
use super::error::NftError;
use super::object::Family;
use super::socket::Nft;

/// `NFNL_SUBSYS_CTNETLINK`, `IPCTNL_MSG_CT_GET` and `_DELETE`
const GET: u16 = (1 << 8) | 1;
const DELETE: u16 = (1 << 8) | 2;
const TUPLE_ORIGINAL: u16 = 1;
const TUPLE_REPLY: u16 = 2;
const TUPLE_IP: u16 = 1;
const TUPLE_PROTO: u16 = 2;

/// One direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side {
    /// From there.
    pub source: IpAddr,
    /// To there.
    pub destination: IpAddr,
    /// From this port.
    pub source_port: u16,
    /// To this port.
    pub destination_port: u16,
}

/// A connection with ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// 6 for TCP, 17 for UDP, 132 for SCTP.
    pub proto: u8,
    /// As the first packet came.
    pub original: Side,
    /// As answers come, before they are translated back.
    pub reply: Side,
}

impl Nft {
    /// The connections of a family ([`Family::Ip`], [`Family::Ip6`]) that have ports.
    ///
    /// # Errors
    /// [`NftError`].
    pub fn flows(&mut self, family: Family) -> Result<Vec<Flow>, NftError> {
        self.dump(GET, family, "connections", |_| {}, read)
    }

    /// Has a connection forgotten: its next packet is its first. One that is gone is success.
    ///
    /// # Errors
    /// [`NftError`].
    pub fn forget(&mut self, flow: &Flow) -> Result<(), NftError> {
        let family = if flow.original.source.is_ipv4() { Family::Ip } else { Family::Ip6 };
        let order = self.order(DELETE, family, "forget a connection", |out| {
            out.nest(TUPLE_ORIGINAL, |out| write(out, flow.proto, &flow.original));
        });
        match order {
            Err(error) if error.is_absent() => Ok(()),
            result => result,
        }
    }
}

fn write(out: &mut Writer, proto: u8, side: &Side) {
    out.nest(TUPLE_IP, |out| {
        // IPv6 has its own attributes behind those of IPv4.
        let mut address = |attribute: u16, address: IpAddr| match address {
            IpAddr::V4(v4) => out.raw(attribute, &v4.octets()),
            IpAddr::V6(v6) => out.raw(attribute + 2, &v6.octets()),
        };
        address(1, side.source);
        address(2, side.destination);
    });
    out.nest(TUPLE_PROTO, |out| {
        out.u8(1, proto);
        out.raw(2, &side.source_port.to_be_bytes());
        out.raw(3, &side.destination_port.to_be_bytes());
    });
}

fn read(bytes: &[u8]) -> Option<Flow> {
    let (proto, original) = side(find(bytes, TUPLE_ORIGINAL)?)?;
    let (_, reply) = side(find(bytes, TUPLE_REPLY)?)?;
    Some(Flow { proto, original, reply })
}

fn side(tuple: &[u8]) -> Option<(u8, Side)> {
    let (ip, proto) = (find(tuple, TUPLE_IP)?, find(tuple, TUPLE_PROTO)?);
    let address = |attribute: u16| -> Option<IpAddr> {
        match find(ip, attribute) {
            Some(bytes) => Some(IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?)),
            None => Some(IpAddr::from(<[u8; 16]>::try_from(find(ip, attribute + 2)?).ok()?)),
        }
    };
    let port = |attribute| Some(u16::from_be_bytes(find(proto, attribute)?.try_into().ok()?));
    let side = Side {
        source: address(1)?,
        destination: address(2)?,
        source_port: port(2)?,
        destination_port: port(3)?,
    };
    Some((*find(proto, 1)?.first()?, side))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_of_a_side_is_read_back() {
        for (source, destination) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
            let given = Side {
                source: source.parse().unwrap(),
                destination: destination.parse().unwrap(),
                source_port: 4000,
                destination_port: 53,
            };
            let mut out = Writer::default();
            out.nest(TUPLE_ORIGINAL, |out| write(out, 17, &given));
            assert_eq!(side(find(out.bytes(), TUPLE_ORIGINAL).unwrap()), Some((17, given)));
        }
    }
}
