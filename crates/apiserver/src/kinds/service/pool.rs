//! Pools of addresses and ports.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why something could not be had. Display ends a message that says what for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// It belongs to another.
    #[error("provided {0} is already allocated")]
    Taken(&'static str),
    /// It is none of the pool's.
    #[error("{0}")]
    OutOfRange(String),
    /// All are taken.
    #[error("range is full")]
    Full,
}

/// Numbers from 0 to `size`, of which those from `dynamic` on are handed out first, so that the lower ones stay free for those
/// who ask by number.
#[derive(Debug)]
struct Pool {
    what: &'static str,
    size: u64,
    dynamic: u64,
    next: u64,
    taken: HashSet<u64>,
}

impl Pool {
    fn take(&mut self, offset: u64) -> Result<(), PoolError> {
        if self.taken.insert(offset) { Ok(()) } else { Err(PoolError::Taken(self.what)) }
    }

    /// The next free one after the one handed out last, so that what was just freed is not at once another's.
    fn any(&mut self) -> Result<u64, PoolError> {
        let upper = (self.next.max(self.dynamic)..self.size).chain(self.dynamic..self.size);
        let free = upper.chain(0..self.dynamic).find(|n| !self.taken.contains(n)).ok_or(PoolError::Full)?;
        self.taken.insert(free);
        self.next = free + 1;
        Ok(free)
    }
}

/// The addresses of Services.
#[derive(Debug)]
pub struct Addresses {
    cidr: String,
    base: u128,
    v4: bool,
    pool: Pool,
}

/// The most addresses of a range that are used.
const MAX_ADDRESSES: u64 = 1 << 20;

impl Addresses {
    /// The pool of a CIDR, without its first address (of the `kubernetes` Service), its network and broadcast address.
    /// `None` if the text is no CIDR with room for at least one Service.
    pub fn new(cidr: &str) -> Option<Self> {
        let (address, prefix) = cidr.split_once('/')?;
        let (address, prefix): (IpAddr, u32) = (address.parse().ok()?, prefix.parse().ok()?);
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let host_bits = u32::checked_sub(bits, prefix)?;
        let total = if host_bits >= 20 { MAX_ADDRESSES } else { 1 << host_bits };
        if total < 4 {
            return None;
        }
        let number = number(address);
        let base = number.checked_shr(host_bits).unwrap_or(0).checked_shl(host_bits).unwrap_or(0);
        // An IPv4 range ends with its broadcast address; IPv6 has none.
        let size = if address.is_ipv4() { total - 1 } else { total };
        // The lower band, as upstream: a sixteenth of the range, from 16 to 256.
        let dynamic = (total / 16).clamp(16, 256);
        let dynamic = if dynamic >= size { 0 } else { dynamic };
        let pool = Pool { what: "IP", size, dynamic, next: 0, taken: HashSet::from([0, 1]) };
        Some(Self { cidr: cidr.to_owned(), base, v4: address.is_ipv4(), pool })
    }

    /// The address of the `kubernetes` Service: the first.
    pub fn first(&self) -> IpAddr {
        self.at(1)
    }

    /// The range, a CIDR.
    pub fn range(&self) -> &str {
        &self.cidr
    }

    /// `IPv4` or `IPv6`.
    pub fn family(&self) -> &'static str {
        if self.v4 { "IPv4" } else { "IPv6" }
    }

    fn at(&self, offset: u64) -> IpAddr {
        let number = self.base + u128::from(offset);
        if self.v4 { Ipv4Addr::from(number as u32).into() } else { Ipv6Addr::from(number).into() }
    }

    /// Takes an address that was asked for.
    pub fn take(&mut self, address: IpAddr) -> Result<(), PoolError> {
        let out = || {
            PoolError::OutOfRange(format!(
                "the provided IP ({address}) is not in the valid range. The range of valid IPs is {}",
                self.cidr
            ))
        };
        let offset = self.offset(address).ok_or_else(out)?;
        self.pool.take(offset)
    }

    fn offset(&self, address: IpAddr) -> Option<u64> {
        let offset = number(address).checked_sub(self.base).filter(|_| address.is_ipv4() == self.v4)?;
        u64::try_from(offset).ok().filter(|o| (1..self.pool.size).contains(o))
    }

    /// Takes any address.
    pub fn any(&mut self) -> Result<IpAddr, PoolError> {
        let offset = self.pool.any()?;
        Ok(self.at(offset))
    }

    /// Gives an address back; the first stays reserved.
    pub fn release(&mut self, address: IpAddr) {
        if let Some(offset) = self.offset(address).filter(|o| *o > 1) {
            self.pool.taken.remove(&offset);
        }
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u32::from(v4).into(),
        IpAddr::V6(v6) => v6.into(),
    }
}

/// The first and last port of nodes that a Service may have, upstream's default.
const NODE_PORTS: (u64, u64) = (30_000, 32_767);

/// The ports of nodes.
#[derive(Debug)]
pub struct Ports(Pool);

impl Default for Ports {
    fn default() -> Self {
        let size = NODE_PORTS.1 - NODE_PORTS.0 + 1;
        // The lower band, as upstream: a thirty-second of the range, from 16 to 128.
        let dynamic = (size / 32).clamp(16, 128);
        Self(Pool { what: "port", size, dynamic, next: 0, taken: HashSet::new() })
    }
}

impl Ports {
    /// Takes a port that was asked for.
    pub fn take(&mut self, port: u16) -> Result<(), PoolError> {
        let offset = Self::offset(port).ok_or_else(|| {
            PoolError::OutOfRange(format!(
                "provided port is not in the valid range. The range of valid ports is {}-{}",
                NODE_PORTS.0, NODE_PORTS.1
            ))
        })?;
        self.0.take(offset)
    }

    fn offset(port: u16) -> Option<u64> {
        let port = u64::from(port);
        (NODE_PORTS.0..=NODE_PORTS.1).contains(&port).then(|| port - NODE_PORTS.0)
    }

    /// Takes any port.
    pub fn any(&mut self) -> Result<u16, PoolError> {
        let offset = self.0.any()?;
        Ok((NODE_PORTS.0 + offset) as u16)
    }

    /// Gives a port back.
    pub fn release(&mut self, port: u16) {
        if let Some(offset) = Self::offset(port) {
            self.0.taken.remove(&offset);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_from_the_upper_band_and_never_from_the_edges() {
        let mut pool = Addresses::new("10.96.0.0/24").unwrap();
        assert_eq!(pool.first().to_string(), "10.96.0.1");
        let first = pool.any().unwrap();
        assert_eq!(first.to_string(), "10.96.0.16");
        pool.release(first);
        assert_ne!(pool.any().unwrap(), first);
        let mut rest: Vec<IpAddr> = std::iter::from_fn(|| pool.any().ok()).collect();
        rest.sort();
        assert_eq!(rest.len(), 252);
        assert!(
            !rest.iter().any(|a| ["10.96.0.0", "10.96.0.1", "10.96.0.255"].contains(&a.to_string().as_str()))
        );
        assert_eq!(pool.any(), Err(PoolError::Full));
    }

    #[test]
    fn an_address_is_taken_once_and_must_be_of_the_range() {
        let mut pool = Addresses::new("10.96.0.0/12").unwrap();
        let asked: IpAddr = "10.96.0.10".parse().unwrap();
        assert_eq!(pool.take(asked), Ok(()));
        assert_eq!(pool.take(asked), Err(PoolError::Taken("IP")));
        for outside in ["10.95.0.1", "10.112.0.1", "10.96.0.0", "fd00::1"] {
            assert!(
                matches!(pool.take(outside.parse().unwrap()), Err(PoolError::OutOfRange(_))),
                "{outside}"
            );
        }
        assert_eq!(pool.take(pool.first()), Err(PoolError::Taken("IP")));
        pool.release(asked);
        assert_eq!(pool.take(asked), Ok(()));
    }

    #[test]
    fn ranges_without_room_are_refused_and_six_works() {
        for text in ["10.0.0.0/31", "10.0.0.0", "x/8", "10.0.0.0/33"] {
            assert!(Addresses::new(text).is_none(), "{text}");
        }
        let mut six = Addresses::new("fd00:1::/108").unwrap();
        assert_eq!((six.family(), six.any().unwrap().to_string()), ("IPv6", "fd00:1::100".to_owned()));
    }

    #[test]
    fn ports_are_taken_once_and_within_their_range() {
        let mut ports = Ports::default();
        assert_eq!(ports.any(), Ok(30_086));
        assert_eq!(ports.take(30_086), Err(PoolError::Taken("port")));
        assert!(matches!(ports.take(80), Err(PoolError::OutOfRange(_))));
        ports.release(30_086);
        assert_eq!(ports.take(30_086), Ok(()));
    }
}
