//! How many seats each level has. Source: KEP-1040, "Dispatching": shares are parts of the server's seats; a level lends
//! what it does not use.

use serde_json::Value;

use crate::registry::text;

/// Seats of the whole server. Upstream: `--max-requests-inflight` (400) and `--max-mutating-requests-inflight` (200).
pub(super) const SEATS: u32 = 600;

/// What a PriorityLevelConfiguration says.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Level {
    pub name: String,
    pub uid: String,
    pub exempt: bool,
    /// Its seats, if all levels want theirs.
    pub nominal: u32,
    /// Those of them that it never lends.
    pub kept: u32,
    /// The most that it has with what others lend it.
    pub most: u32,
    /// Where requests wait; `None` if they do not.
    pub queues: Option<Queues>,
}

/// Where requests of a level wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Queues {
    /// How many there are.
    pub count: usize,
    /// How many of them one flow may use.
    pub hand: usize,
    /// How many requests may wait in each.
    pub length: usize,
}

/// The levels, from their objects.
pub(super) fn levels<'a>(objects: impl IntoIterator<Item = &'a Value> + Clone) -> Vec<Level> {
    let of = |object: &'a Value| {
        let exempt = object["spec"]["type"] == "Exempt";
        let part = &object["spec"][if exempt { "exempt" } else { "limited" }];
        (exempt, part)
    };
    let shares = |object: &'a Value| {
        let (exempt, part) = of(object);
        part["nominalConcurrencyShares"].as_f64().unwrap_or(if exempt { 0.0 } else { 30.0 })
    };
    let sum: f64 = objects.clone().into_iter().map(shares).sum();
    let percent = |value: &Value, of: u32| {
        value.as_f64().map(|percent| (f64::from(of) * percent / 100.0).round() as u32)
    };
    let one = |object: &'a Value| {
        let (exempt, part) = of(object);
        let nominal = if sum > 0.0 { (f64::from(SEATS) * shares(object) / sum).ceil() as u32 } else { 0 };
        let lent = percent(&part["lendablePercent"], nominal).unwrap_or_default();
        let borrowed = percent(&part["borrowingLimitPercent"], nominal).unwrap_or(SEATS);
        let queuing = &part["limitResponse"]["queuing"];
        let number = |name: &str, default: u64| {
            usize::try_from(queuing[name].as_u64().unwrap_or(default)).unwrap_or(usize::MAX)
        };
        let queues = (part["limitResponse"]["type"] == "Queue").then(|| {
            let count = number("queues", 64).max(1);
            Queues {
                count,
                hand: number("handSize", 8).clamp(1, count),
                length: number("queueLengthLimit", 50),
            }
        });
        Level {
            name: text(&object["metadata"]["name"]).to_owned(),
            uid: text(&object["metadata"]["uid"]).to_owned(),
            exempt,
            nominal,
            kept: nominal.saturating_sub(lent),
            most: nominal.saturating_add(borrowed),
            queues,
        }
    };
    objects.into_iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow_defaults;

    #[test]
    fn the_seats_are_parted_by_shares() {
        let objects = flow_defaults::levels();
        let all = levels(&objects);
        let of = |name: &str| all.iter().find(|l| l.name == name).unwrap().clone();
        // 600 seats for 245 shares.
        let low = of("workload-low");
        assert_eq!((low.nominal, low.kept, low.most), (245, 24, 845));
        assert_eq!(low.queues, Some(Queues { count: 128, hand: 6, length: 50 }));
        let last = of("catch-all");
        assert_eq!((last.nominal, last.kept, last.queues), (13, 13, None));
        assert!(of("exempt").exempt);
    }
}
