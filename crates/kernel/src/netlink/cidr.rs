//! An address with a prefix length.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// An address with a prefix length; host bits may be set (`10.1.2.3/24`). In JSON it is its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cidr {
    /// The address.
    pub addr: IpAddr,
    /// The prefix length, at most 32 or 128.
    pub len: u8,
}

/// A text that is no [`Cidr`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an address with a prefix length")]
pub struct CidrError(pub String);

impl Cidr {
    /// `addr` alone: `/32` or `/128`.
    #[must_use]
    pub const fn host(addr: IpAddr) -> Self {
        Self { addr, len: if addr.is_ipv4() { 32 } else { 128 } }
    }

    /// Every address of a family: `0.0.0.0/0` or `::/0`.
    #[must_use]
    pub const fn default_route(v6: bool) -> Self {
        let addr = if v6 { IpAddr::V6(Ipv6Addr::UNSPECIFIED) } else { IpAddr::V4(Ipv4Addr::UNSPECIFIED) };
        Self { addr, len: 0 }
    }

    /// Whether it is of IPv6.
    #[must_use]
    pub const fn is_v6(self) -> bool {
        self.addr.is_ipv6()
    }

    /// The same prefix without host bits.
    #[must_use]
    pub fn network(self) -> Self {
        let addr = match self.addr {
            IpAddr::V4(v4) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.len)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & mask))
            }
            IpAddr::V6(v6) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.len)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask))
            }
        };
        Self { addr, len: self.len }
    }

    /// True if `addr` is in the prefix.
    #[must_use]
    pub fn contains(self, addr: IpAddr) -> bool {
        addr.is_ipv4() == self.addr.is_ipv4()
            && Self { addr, len: self.len }.network().addr == self.network().addr
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.addr, self.len)
    }
}

impl From<Cidr> for String {
    fn from(cidr: Cidr) -> Self {
        cidr.to_string()
    }
}

impl TryFrom<String> for Cidr {
    type Error = CidrError;

    fn try_from(text: String) -> Result<Self, CidrError> {
        text.parse()
    }
}

impl FromStr for Cidr {
    type Err = CidrError;

    fn from_str(text: &str) -> Result<Self, CidrError> {
        let error = || CidrError(text.to_owned());
        let (addr, len) = text.split_once('/').ok_or_else(error)?;
        let addr: IpAddr = addr.parse().map_err(|_| error())?;
        let len: u8 = len.parse().map_err(|_| error())?;
        if len > Self::host(addr).len { Err(error()) } else { Ok(Self { addr, len }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_parse_print_and_contain() {
        for (text, network, inside, outside) in [
            ("10.1.2.3/24", "10.1.2.0/24", "10.1.2.255", "10.1.3.0"),
            ("10.1.2.3/32", "10.1.2.3/32", "10.1.2.3", "10.1.2.2"),
            ("0.0.0.0/0", "0.0.0.0/0", "255.1.2.3", "::1"),
            ("fd00::5/64", "fd00::/64", "fd00::1:2", "fd01::"),
            ("fd00::5/128", "fd00::5/128", "fd00::5", "fd00::4"),
        ] {
            let cidr: Cidr = text.parse().unwrap();
            assert_eq!(cidr.to_string(), text);
            assert_eq!(cidr.network().to_string(), network);
            assert!(cidr.contains(inside.parse().unwrap()), "{text}");
            assert!(!cidr.contains(outside.parse().unwrap()), "{text}");
        }
        for text in ["10.0.0.1", "10.0.0.0/33", "x/8", "fd00::/129", "10.0.0.0/-1", ""] {
            assert!(text.parse::<Cidr>().is_err(), "{text}");
        }
    }
}
