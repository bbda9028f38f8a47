//! Which addresses of a set are taken, one bit each: a hint, so that a free one is found in constant time. Whether an address is taken is
//! said by its file alone; a hint that is wrong costs a try, never an address. Pure.
//!
//! ```text
//! 10.77.0.1-10.77.255.254\n  bits of the first range, of the second ...
//! ```

use std::net::IpAddr;

use super::range::{Range, RangeSet, number};

/// Sets with more addresses have no bits: theirs are tried one after the other, and the next one is nearly always free.
pub const LIMIT: u128 = 1 << 20;

/// The bits of a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bits {
    ranges: Vec<(u128, u128, bool)>,
    header: String,
    bits: Vec<u8>,
    size: usize,
}

fn bounds(range: &Range) -> (u128, u128, bool) {
    let (first, last) = range.bounds();
    (number(first), number(last), first.is_ipv6())
}

fn size_of(ranges: &[(u128, u128, bool)]) -> Option<usize> {
    let size = ranges.iter().try_fold(0u128, |sum, (first, last, _)| sum.checked_add(last - first + 1))?;
    usize::try_from(size).ok().filter(|_| size <= LIMIT)
}

impl Bits {
    /// Those of a set of which `taken` are taken; none if it is too large. Gateways are never given.
    pub fn new<'a>(set: &RangeSet, taken: impl IntoIterator<Item = &'a IpAddr>) -> Option<Self> {
        let ranges: Vec<_> = set.0.iter().map(bounds).collect();
        let size = size_of(&ranges)?;
        let header = format!("{set}\n");
        let mut bits = Self { ranges, header, bits: vec![0; size.div_ceil(8)], size };
        for addr in taken.into_iter().copied().chain(set.0.iter().map(|range| range.gateway)) {
            if let Some(place) = bits.place(addr) {
                bits.mark(place, true);
            }
        }
        Some(bits)
    }

    /// From a file; none if it is not of the same ranges, or cut short.
    pub fn read(set: &RangeSet, bytes: &[u8]) -> Option<Self> {
        let new = Self::new(set, [])?;
        let bits = bytes.strip_prefix(new.header.as_bytes())?;
        (bits.len() == new.bits.len()).then(|| Self { bits: bits.to_vec(), ..new })
    }

    /// As a file.
    pub fn write(&self) -> Vec<u8> {
        [self.header.as_bytes(), &self.bits].concat()
    }

    /// Where an address is; none if it is in no range.
    pub fn place(&self, addr: IpAddr) -> Option<usize> {
        place(&self.ranges, addr)
    }

    /// The address of a place.
    pub fn addr(&self, place: usize) -> Option<IpAddr> {
        let mut rest = place as u128;
        for (first, last, v6) in &self.ranges {
            let size = last - first + 1;
            if rest < size {
                let number = first + rest;
                return Some(if *v6 {
                    IpAddr::V6(number.into())
                } else {
                    IpAddr::V4(u32::try_from(number).ok()?.into())
                });
            }
            rest -= size;
        }
        None
    }

    /// Says that the address of a place is taken, or free.
    pub fn mark(&mut self, place: usize, taken: bool) {
        let bit = 1 << (place % 8);
        if let Some(byte) = self.bits.get_mut(place / 8) {
            if taken { *byte |= bit } else { *byte &= !bit }
        }
    }

    /// The byte of a place, and where it is in the file.
    pub fn byte(&self, place: usize) -> (u64, u8) {
        let at = self.header.len() + place / 8;
        (at as u64, self.bits.get(place / 8).copied().unwrap_or(0xff))
    }

    /// The first place that is free behind `place`, going round.
    pub fn free_behind(&self, place: Option<usize>) -> Option<usize> {
        let from = place.map_or(0, |place| place + 1);
        let free = |n: &usize| self.bits[n / 8] & (1 << (n % 8)) == 0;
        let search = |from: usize, to: usize| -> Option<usize> {
            let mut at = from;
            while at < to {
                if at.is_multiple_of(8) && self.bits[at / 8] == 0xff {
                    at += 8;
                } else if free(&at) {
                    return Some(at);
                } else {
                    at += 1;
                }
            }
            None
        };
        search(from, self.size).or_else(|| search(0, from.min(self.size)))
    }

    /// Addresses that are taken, and all that may be given; gateways are neither.
    pub fn count(&self, set: &RangeSet) -> (usize, usize) {
        let mut gateways: Vec<usize> = set.0.iter().filter_map(|range| self.place(range.gateway)).collect();
        gateways.sort_unstable();
        gateways.dedup();
        let taken: u32 = self.bits.iter().map(|byte| byte.count_ones()).sum();
        (taken as usize - gateways.len(), self.size - gateways.len())
    }
}

fn place(ranges: &[(u128, u128, bool)], addr: IpAddr) -> Option<usize> {
    let number = number(addr);
    let mut before = 0u128;
    for (first, last, v6) in ranges {
        if *v6 == addr.is_ipv6() && (*first..=*last).contains(&number) {
            return usize::try_from(before + (number - first)).ok();
        }
        before += last - first + 1;
    }
    None
}

/// Where the byte of an address is in a file, and which of its bits; none if the file is of other ranges. Without its set: DEL knows
/// none.
pub fn locate(head: &[u8], addr: IpAddr) -> Option<(u64, u8)> {
    let end = head.iter().position(|byte| *byte == b'\n')?;
    let header = std::str::from_utf8(&head[..end]).ok()?;
    let range = |text: &str| -> Option<(u128, u128, bool)> {
        let (first, last) = text.split_once('-')?;
        let (first, last): (IpAddr, IpAddr) = (first.parse().ok()?, last.parse().ok()?);
        Some((number(first), number(last), first.is_ipv6()))
    };
    let ranges: Vec<_> = header.split(',').map(range).collect::<Option<_>>()?;
    if ranges.iter().any(|(first, last, _)| first > last) {
        return None;
    }
    let place = place(&ranges, addr)?;
    Some(((end + 1 + place / 8) as u64, 1 << (place % 8)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipam::range::RangeConfig;

    fn set(subnets: &[&str]) -> RangeSet {
        let config = |subnet: &&str| RangeConfig {
            subnet: subnet.parse().unwrap(),
            range_start: None,
            range_end: None,
            gateway: None,
        };
        RangeSet::all(&[subnets.iter().map(config).collect()]).unwrap().remove(0)
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn the_next_free_address_is_found_over_all_ranges_and_round() {
        let set = set(&["10.1.0.0/29", "10.2.0.0/30"]);
        let mut bits = Bits::new(&set, &[ip("10.1.0.3"), ip("9.9.9.9")]).unwrap();
        let mut given = Vec::new();
        let mut last = bits.place(ip("10.1.0.4"));
        while let Some(place) = bits.free_behind(last) {
            bits.mark(place, true);
            given.push(bits.addr(place).unwrap().to_string());
            last = Some(place);
        }
        assert_eq!(given, ["10.1.0.5", "10.1.0.6", "10.2.0.2", "10.1.0.2", "10.1.0.4"]);
        assert_eq!(bits.count(&set), (6, 6));
    }

    #[test]
    fn a_file_is_read_again_unless_it_is_of_other_ranges_or_cut_short() {
        let set = set(&["10.1.0.0/24"]);
        let mut bits = Bits::new(&set, &[ip("10.1.0.77")]).unwrap();
        let file = bits.write();
        assert_eq!(Bits::read(&set, &file), Some(bits.clone()));
        assert_eq!(Bits::read(&set, &file[..file.len() - 1]), None);
        assert_eq!(Bits::read(&set, b""), None);
        assert_eq!(Bits::read(&super::tests::set(&["10.1.0.0/25"]), &file), None);
        let (at, bit) = locate(&file, ip("10.1.0.77")).unwrap();
        let place = bits.place(ip("10.1.0.77")).unwrap();
        assert_eq!((at, file[usize::try_from(at).unwrap()] & bit), (bits.byte(place).0, bit));
        bits.mark(place, false);
        assert_eq!(bits.byte(place).1 & bit, 0);
        for (head, addr) in
            [(&b"10.1.0.1-10.1.0.9\n"[..], "10.2.0.1"), (b"odd\n", "10.1.0.1"), (b"", "10.1.0.1")]
        {
            assert_eq!(locate(head, ip(addr)), None);
        }
        assert_eq!(locate(b"10.1.0.9-10.1.0.1\n", ip("10.1.0.5")), None);
    }

    #[test]
    fn sets_that_are_too_large_have_none() {
        assert!(Bits::new(&set(&["fd00::/64"]), []).is_none());
        assert!(Bits::new(&set(&["10.0.0.0/8"]), []).is_none());
        assert!(Bits::new(&set(&["10.0.0.0/12"]), []).is_some());
    }
}
