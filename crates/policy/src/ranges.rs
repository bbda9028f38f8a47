//! Blocks of addresses without their exceptions, as ranges. Pure.

use std::net::IpAddr;

use trine_kernel::netlink::Cidr;

/// Addresses from the first to the last, as numbers of their family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Range {
    /// Whether they are IPv6.
    pub v6: bool,
    /// The first.
    pub first: u128,
    /// The last.
    pub last: u128,
}

/// An address as a number.
#[must_use]
pub fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(u32::from(v4)),
        IpAddr::V6(v6) => u128::from(v6),
    }
}

/// A number as the bytes of an address.
#[must_use]
pub fn bytes(number: u128, v6: bool) -> Vec<u8> {
    let bytes = number.to_be_bytes();
    bytes[if v6 { 0 } else { 12 }..].to_vec()
}

impl Range {
    /// All addresses of a block.
    #[must_use]
    pub fn of(block: Cidr) -> Self {
        let v6 = block.addr.is_ipv6();
        let bits = if v6 { 128 } else { 32 };
        let free = bits - u32::from(block.len).min(bits);
        let hosts = u128::MAX.checked_shl(free).map_or(u128::MAX, |network| !network);
        let first = number(block.addr) & !hosts;
        Self { v6, first, last: first | hosts }
    }

    /// Whether an address is in it.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv6() == self.v6 && (self.first..=self.last).contains(&number(address))
    }
}

/// What is left of a block.
#[must_use]
pub fn without(block: Cidr, except: &[Cidr]) -> Vec<Range> {
    let whole = Range::of(block);
    let mut holes: Vec<Range> =
        except.iter().map(|hole| Range::of(*hole)).filter(|hole| hole.v6 == whole.v6).collect();
    holes.sort_unstable();
    let mut left = Vec::new();
    let mut next = Some(whole.first);
    for hole in holes.iter().filter(|hole| hole.last >= whole.first && hole.first <= whole.last) {
        let Some(first) = next else { break };
        if hole.first > first {
            left.push(Range { first, last: hole.first - 1, ..whole });
        }
        next =
            hole.last.checked_add(1).map(|behind| behind.max(first)).filter(|behind| *behind <= whole.last);
    }
    left.extend(next.map(|first| Range { first, ..whole }));
    left
}

/// The same addresses in as few ranges as can be, in order; none touches the next.
#[must_use]
pub fn merged(mut ranges: Vec<Range>) -> Vec<Range> {
    ranges.sort_unstable();
    let mut merged: Vec<Range> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if last.v6 == range.v6 && last.last.saturating_add(1) >= range.first => {
                last.last = last.last.max(range.last);
            }
            _ => merged.push(range),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block, what is excepted, the first and last addresses of what is left.
    type Row<'a> = (&'a str, &'a [&'a str], &'a [(&'a str, &'a str)]);

    fn block(text: &str) -> Cidr {
        text.parse().unwrap()
    }

    fn left(of: &str, except: &[&str]) -> Vec<(String, String)> {
        let except: Vec<Cidr> = except.iter().map(|text| block(text)).collect();
        let address = |number: u128, v6: bool| match v6 {
            true => std::net::Ipv6Addr::from(number).to_string(),
            false => std::net::Ipv4Addr::from(u32::try_from(number).unwrap()).to_string(),
        };
        let ranges = without(block(of), &except);
        ranges.into_iter().map(|r| (address(r.first, r.v6), address(r.last, r.v6))).collect()
    }

    #[test]
    fn what_is_excepted_is_cut_out_of_a_block() {
        let rows: [Row<'_>; 8] = [
            ("10.0.0.0/8", &[], &[("10.0.0.0", "10.255.255.255")]),
            ("10.0.0.7/24", &["10.0.0.0/25"], &[("10.0.0.128", "10.0.0.255")]),
            ("10.0.0.0/24", &["10.0.0.128/25"], &[("10.0.0.0", "10.0.0.127")]),
            (
                "10.0.0.0/24",
                &["10.0.0.9/32", "10.0.0.4/30"],
                &[("10.0.0.0", "10.0.0.3"), ("10.0.0.8", "10.0.0.8"), ("10.0.0.10", "10.0.0.255")],
            ),
            ("10.0.0.0/24", &["10.0.0.0/8"], &[]),
            ("0.0.0.0/0", &["255.255.255.255/32"], &[("0.0.0.0", "255.255.255.254")]),
            ("10.0.0.0/24", &["10.1.0.0/24", "fd00::/8"], &[("10.0.0.0", "10.0.0.255")]),
            ("::/0", &["ffff::/16"], &[("::", "fffe:ffff:ffff:ffff:ffff:ffff:ffff:ffff")]),
        ];
        for (of, except, wanted) in rows {
            let found = left(of, except);
            let found: Vec<(&str, &str)> = found.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
            assert_eq!(found, wanted, "{of} without {except:?}");
        }
    }

    #[test]
    fn ranges_that_touch_or_overlap_become_one() {
        let all = ["10.0.0.0/24", "10.0.1.0/24", "10.0.0.128/25", "10.0.3.0/24", "fd00::/8"];
        let ranges = merged(all.iter().map(|text| Range::of(block(text))).collect());
        let wanted =
            [Range::of(block("10.0.0.0/23")), Range::of(block("10.0.3.0/24")), Range::of(block("fd00::/8"))];
        assert_eq!(ranges, wanted);
        assert_eq!(merged(vec![Range::of(block("0.0.0.0/0"))])[0].last, u128::from(u32::MAX));
    }
}
