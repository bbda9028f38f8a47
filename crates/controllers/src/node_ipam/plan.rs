//! Cuts a range for each node out of the cluster's Pod ranges.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The ranges for each node in `without`, in order: of each of the cluster's families one. Nodes for which nothing is left are left
/// out. `taken` are the ranges that nodes have; `cluster` is `a.b.c.d/n`, or one of each family with a comma between them. A node
/// gets a range of `prefix` bits: of IPv4, and of IPv6.
#[must_use]
pub fn assign(
    cluster: &str,
    prefix: (u8, u8),
    taken: &BTreeSet<String>,
    without: &[String],
) -> Vec<(String, Vec<String>)> {
    let ranges: Option<Vec<Range>> = cluster.split(',').map(Range::parse).collect();
    let ranges = ranges.unwrap_or_default();
    let mut free: Vec<_> = ranges.iter().map(|range| range.free(prefix, taken)).collect();
    let mut next = || free.iter_mut().map(Iterator::next).collect::<Option<Vec<String>>>();
    without.iter().map_while(|node| Some((node.clone(), next().filter(|given| !given.is_empty())?))).collect()
}

/// A range of either family, as the number that it begins with.
struct Range {
    base: u128,
    length: u8,
    v6: bool,
}

impl Range {
    fn parse(cidr: &str) -> Option<Self> {
        let (address, length) = cidr.trim().split_once('/')?;
        let address: IpAddr = address.parse().ok()?;
        let (number, v6) = match address {
            IpAddr::V4(v4) => (u128::from(v4.to_bits()), false),
            IpAddr::V6(v6) => (v6.to_bits(), true),
        };
        let bits = if v6 { 128 } else { 32 };
        let length: u8 = length.parse().ok().filter(|l| *l <= bits)?;
        let host = u128::MAX.checked_shr(128 - u32::from(bits - length)).unwrap_or(0);
        Some(Self { base: number & !host, length, v6 })
    }

    fn free(&self, prefix: (u8, u8), taken: &BTreeSet<String>) -> impl Iterator<Item = String> {
        let (bits, prefix) = if self.v6 { (128, prefix.1) } else { (32, prefix.0) };
        let prefix = prefix.clamp(self.length, bits);
        let (base, v6) = (self.base, self.v6);
        let count = 1u128.checked_shl((prefix - self.length).into()).unwrap_or(u128::MAX);
        (0..count).filter_map(move |i| {
            let first = base + (i << (bits - prefix).min(127));
            let address = match v6 {
                false => IpAddr::from(Ipv4Addr::from_bits(u32::try_from(first).ok()?)),
                true => Ipv6Addr::from_bits(first).into(),
            };
            let range = format!("{address}/{prefix}");
            (!taken.contains(&range)).then_some(range)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_get_the_first_free_ranges_and_none_beyond_the_last() {
        let taken = BTreeSet::from(["10.1.0.0/24".to_owned()]);
        let nodes = ["a".to_owned(), "b".to_owned(), "c".to_owned(), "d".to_owned()];
        let given = assign("10.1.0.0/22", (24, 64), &taken, &nodes);
        let ranges: Vec<String> = given.iter().map(|(_, ranges)| ranges.join(",")).collect();
        assert_eq!(ranges, ["10.1.1.0/24", "10.1.2.0/24", "10.1.3.0/24"]);
        for nonsense in ["nonsense", "", "10.1.0.0/22,"] {
            assert!(assign(nonsense, (24, 64), &taken, &nodes).is_empty(), "{nonsense}");
        }
    }

    #[test]
    fn nodes_get_a_range_of_each_family() {
        let taken = BTreeSet::from(["10.1.0.0/24".to_owned(), "fd00:1:2:100::/64".to_owned()]);
        let nodes = ["a".to_owned(), "b".to_owned()];
        let given = assign("10.1.0.0/16,fd00:1:2:100::/56", (24, 64), &taken, &nodes);
        let ranges: Vec<String> = given.iter().map(|(_, ranges)| ranges.join(",")).collect();
        assert_eq!(ranges, ["10.1.1.0/24,fd00:1:2:101::/64", "10.1.2.0/24,fd00:1:2:102::/64"]);
    }
}
