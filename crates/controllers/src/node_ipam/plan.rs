//! Cuts a range for each node out of the cluster's Pod range.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

/// The range for each node in `without`, in order; nodes for which nothing is left are left out.
/// `taken` are the ranges that nodes have; `cluster` is `a.b.c.d/n`, each node gets a `/prefix`.
#[must_use]
pub fn assign(
    cluster: &str,
    prefix: u8,
    taken: &BTreeSet<String>,
    without: &[String],
) -> Vec<(String, String)> {
    let Some((base, length)) = parse(cluster) else { return Vec::new() };
    let prefix = prefix.clamp(length, 32);
    let step = 1u64 << (32 - u32::from(prefix));
    let count = 1u64 << u32::from(prefix - length);
    let mut free = (0..count).filter_map(|i| {
        let address = u32::try_from(u64::from(base) + i * step).ok()?;
        let range = format!("{}/{prefix}", Ipv4Addr::from(address));
        (!taken.contains(&range)).then_some(range)
    });
    without.iter().map_while(|node| Some((node.clone(), free.next()?))).collect()
}

fn parse(cidr: &str) -> Option<(u32, u8)> {
    let (address, length) = cidr.split_once('/')?;
    let length: u8 = length.parse().ok().filter(|l| *l <= 32)?;
    let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or_default();
    Some((u32::from(address.parse::<Ipv4Addr>().ok()?) & mask, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_get_the_first_free_ranges_and_none_beyond_the_last() {
        let taken = BTreeSet::from(["10.1.0.0/24".to_owned()]);
        let nodes = ["a".to_owned(), "b".to_owned(), "c".to_owned(), "d".to_owned()];
        let given = assign("10.1.0.0/22", 24, &taken, &nodes);
        let ranges: Vec<&str> = given.iter().map(|(_, range)| range.as_str()).collect();
        assert_eq!(ranges, ["10.1.1.0/24", "10.1.2.0/24", "10.1.3.0/24"]);
        assert!(assign("nonsense", 24, &taken, &nodes).is_empty());
    }
}
