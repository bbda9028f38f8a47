//! Ranges of addresses, purely.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::Deserialize;
use trine_kernel::netlink::Cidr;

/// A range as it is configured.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RangeConfig {
    /// The subnet.
    pub subnet: Cidr,
    /// The first address to give; the subnet's second by default.
    pub range_start: Option<IpAddr>,
    /// The last address to give; the subnet's last usable by default.
    pub range_end: Option<IpAddr>,
    /// The gateway, never given; the subnet's second address by default.
    pub gateway: Option<IpAddr>,
}

/// A checked range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    /// The subnet.
    pub subnet: Cidr,
    /// The gateway.
    pub gateway: IpAddr,
    first: u128,
    last: u128,
}

/// Ranges of one family; one address is given from each set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeSet(pub Vec<Range>);

/// An address as a number.
pub fn number(addr: IpAddr) -> u128 {
    match addr {
        IpAddr::V4(v4) => v4.to_bits().into(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

impl Range {
    /// Checks a configured range.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(config: &RangeConfig) -> Result<Self, String> {
        let subnet = config.subnet;
        let bits = Cidr::host(subnet.addr).len;
        if subnet.len + 2 > bits {
            return Err(format!("network {subnet} too small to allocate from"));
        }
        if subnet.network() != subnet {
            return Err(format!("network {subnet} has host bits set: it should be {}", subnet.network()));
        }
        let inside = |what: &str, addr: Option<IpAddr>| match addr {
            Some(addr) if !subnet.contains(addr) => Err(format!("{what} {addr} not in network {subnet}")),
            other => Ok(other),
        };
        let base = number(subnet.addr);
        // The last address of an IPv4 subnet is its broadcast address.
        let end = base + ((1u128 << (bits - subnet.len)) - 1) - u128::from(subnet.addr.is_ipv4());
        let mut range = Self { subnet, gateway: subnet.addr, first: base + 1, last: end };
        // It may be anywhere, as with the reference.
        range.gateway = config.gateway.unwrap_or_else(|| range.addr(base + 1));
        range.first = inside("rangeStart", config.range_start)?.map_or(range.first, number);
        range.last = inside("rangeEnd", config.range_end)?.map_or(range.last, number);
        if range.first > range.last {
            return Err(format!("range {range} ends before it starts"));
        }
        Ok(range)
    }

    fn addr(&self, number: u128) -> IpAddr {
        if self.subnet.addr.is_ipv4() {
            IpAddr::V4(Ipv4Addr::from_bits(u32::try_from(number).unwrap_or(u32::MAX)))
        } else {
            IpAddr::V6(Ipv6Addr::from_bits(number))
        }
    }

    /// The first address to give, and the last.
    #[must_use]
    pub fn bounds(&self) -> (IpAddr, IpAddr) {
        (self.addr(self.first), self.addr(self.last))
    }

    /// True if the range may give `addr`.
    #[must_use]
    pub fn contains(&self, addr: IpAddr) -> bool {
        self.subnet.contains(addr) && (self.first..=self.last).contains(&number(addr))
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.subnet.addr.is_ipv4() == other.subnet.addr.is_ipv4()
            && self.first <= other.last
            && other.first <= self.last
    }
}

impl std::fmt::Display for Range {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.addr(self.first), self.addr(self.last))
    }
}

impl std::fmt::Display for RangeSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&all.join(","))
    }
}

impl RangeSet {
    /// Checks the sets of a configuration.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn all(configs: &[Vec<RangeConfig>]) -> Result<Vec<Self>, String> {
        let mut sets: Vec<Self> = Vec::new();
        for config in configs {
            let mut set = Self(Vec::new());
            for range in config {
                let range = Range::new(range)?;
                let mixed =
                    set.0.first().is_some_and(|r| r.subnet.addr.is_ipv4() != range.subnet.addr.is_ipv4());
                if mixed {
                    return Err("mixed address families in one range set".to_owned());
                }
                let others = sets.iter().chain(std::iter::once(&set)).flat_map(|set| &set.0);
                if let Some(other) = others.into_iter().find(|other| other.overlaps(&range)) {
                    return Err(format!("ranges {other} and {range} overlap"));
                }
                set.0.push(range);
            }
            if set.0.is_empty() {
                return Err("an empty range set".to_owned());
            }
            sets.push(set);
        }
        Ok(sets)
    }

    /// The range that may give `addr`.
    #[must_use]
    pub fn range_of(&self, addr: IpAddr) -> Option<&Range> {
        self.0.iter().find(|range| range.contains(addr))
    }

    /// Every address that may be given, beginning after `last` and going round, gateways left out.
    pub fn candidates(&self, last: Option<IpAddr>) -> impl Iterator<Item = (&Range, IpAddr)> {
        let at =
            last.and_then(|addr| self.0.iter().position(|r| r.contains(addr)).map(|i| (i, number(addr))));
        let (index, from) = at.map_or((0, None), |(index, last)| (index, Some(last)));
        let ranges = self.0.len();
        let rounds = (0..=ranges).map(move |step| {
            let range = &self.0[(index + step) % ranges];
            // The first range is visited twice: after `last`, and at the end up to it.
            let (first, end) = match (step, from) {
                (0, Some(last)) => (last + 1, range.last),
                (step, Some(last)) if step == ranges => (range.first, last),
                (step, None) if step == ranges => (1, 0),
                _ => (range.first, range.last),
            };
            (range, first, end)
        });
        let gateways: BTreeSet<IpAddr> = self.0.iter().map(|range| range.gateway).collect();
        rounds
            .flat_map(|(range, first, end)| (first..=end).map(move |n| (range, range.addr(n))))
            .filter(move |(_, addr)| !gateways.contains(addr))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(subnet: &str, start: &str, end: &str, gateway: &str) -> RangeConfig {
        let ip = |text: &str| if text.is_empty() { None } else { Some(text.parse().unwrap()) };
        RangeConfig {
            subnet: subnet.parse().unwrap(),
            range_start: ip(start),
            range_end: ip(end),
            gateway: ip(gateway),
        }
    }

    #[test]
    fn ranges_have_the_references_defaults_and_checks() {
        let rows: [(RangeConfig, Result<&str, &str>); 10] = [
            (config("10.1.0.0/24", "", "", ""), Ok("10.1.0.1-10.1.0.254")),
            (config("10.1.0.0/30", "", "", ""), Ok("10.1.0.1-10.1.0.2")),
            (config("10.1.0.0/24", "10.1.0.5", "10.1.0.9", "10.1.0.254"), Ok("10.1.0.5-10.1.0.9")),
            (config("fd00::/120", "", "", ""), Ok("fd00::1-fd00::ff")),
            (config("10.1.0.0/31", "", "", ""), Err("too small")),
            (config("10.1.0.1/24", "", "", ""), Err("host bits set")),
            (config("10.1.0.0/24", "10.2.0.1", "", ""), Err("rangeStart 10.2.0.1 not in network")),
            (config("10.1.0.0/24", "", "10.2.0.1", ""), Err("rangeEnd 10.2.0.1 not in network")),
            (config("10.1.0.0/24", "", "", "10.2.0.1"), Ok("10.1.0.1-10.1.0.254")),
            (config("10.1.0.0/24", "10.1.0.9", "10.1.0.5", ""), Err("ends before it starts")),
        ];
        for (config, expected) in rows {
            match (Range::new(&config), expected) {
                (Ok(range), Ok(text)) => assert_eq!(range.to_string(), text),
                (Err(error), Err(part)) => assert!(error.contains(part), "{error}"),
                (result, _) => panic!("{config:?}: {result:?}"),
            }
        }
    }

    #[test]
    fn sets_may_neither_mix_families_nor_overlap() {
        let a = || config("10.1.0.0/24", "", "", "");
        let b = || config("10.1.0.128/25", "", "", "");
        let c = || config("fd00::/120", "", "", "");
        assert!(RangeSet::all(&[vec![a()], vec![c()]]).is_ok());
        assert!(RangeSet::all(&[vec![a(), b()]]).unwrap_err().contains("overlap"));
        assert!(RangeSet::all(&[vec![a()], vec![b()]]).unwrap_err().contains("overlap"));
        assert!(RangeSet::all(&[vec![a(), c()]]).unwrap_err().contains("mixed"));
        assert!(RangeSet::all(&[Vec::new()]).is_err());
    }

    #[test]
    fn candidates_go_round_from_the_last_one_and_leave_out_gateways() {
        let set = RangeSet::all(&[vec![
            config("10.1.0.0/29", "", "", ""),
            config("10.2.0.0/24", "10.2.0.7", "10.2.0.8", ""),
        ]])
        .unwrap()
        .remove(0);
        let from = |last: Option<&str>| -> Vec<String> {
            set.candidates(last.map(|l| l.parse().unwrap())).map(|(_, a)| a.to_string()).collect()
        };
        let all = ["10.1.0.2", "10.1.0.3", "10.1.0.4", "10.1.0.5", "10.1.0.6", "10.2.0.7", "10.2.0.8"];
        assert_eq!(from(None), all);
        assert_eq!(from(Some("10.9.9.9")), all, "a last one of another configuration");
        assert_eq!(from(Some("10.1.0.5")), [&all[4..], &all[..4]].concat());
        assert_eq!(from(Some("10.2.0.8")), all);
    }
}
