//! How many seats a request takes: lists take more the more there is to list. Source: apiserver `flowcontrol/request`. What
//! a write costs by the watches that it wakes is not counted: an event is written once for all that read it alike.

use crate::access::attributes::{Attributes, Subject};
use crate::registry::Registry;
use crate::request::Query;

/// Objects that are listed from one seat.
const OBJECTS: usize = 100;
/// The most seats of one request.
pub(super) const MOST: u32 = 10;

/// How many seats a request takes, `widest` at most.
pub(super) fn width(
    registry: &Registry,
    wanted: &Attributes,
    query: &str,
    widest: impl FnOnce() -> u32,
) -> u32 {
    let Subject::Resource(resource) = &wanted.subject else { return 1 };
    let lists = match wanted.verb.as_str() {
        "list" => true,
        "watch" => begins_with_all(query),
        _ => false,
    };
    if !lists || !resource.name.is_empty() {
        return 1;
    }
    let Some(stored) = registry.catalog().now().stored(&resource.group, &resource.resource).cloned() else {
        return 1;
    };
    let there = registry.prefix(&stored).len();
    seats(there, resource.fields.is_empty() && resource.labels.is_empty(), query).min(widest())
}

/// Whether a watch is first told what there is.
fn begins_with_all(query: &str) -> bool {
    let query = Query::parse(query);
    query.flag("sendInitialEvents") || matches!(query.get("resourceVersion"), None | Some("0"))
}

fn seats(there: usize, everything: bool, query: &str) -> u32 {
    let limit = Query::parse(query).number("limit").ok().flatten().filter(|limit| *limit > 0);
    // With a selector all are looked at.
    let looked_at = match limit.and_then(|limit| usize::try_from(limit).ok()) {
        Some(limit) if everything => there.min(limit),
        _ => there,
    };
    u32::try_from(looked_at.div_ceil(OBJECTS)).unwrap_or(MOST).clamp(1, MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_as_wide_as_what_they_look_at() {
        for (there, everything, query, wanted) in [
            (0, true, "", 1),
            (100, true, "", 1),
            (101, true, "", 2),
            (100_000, true, "", 10),
            (100_000, true, "limit=500", 5),
            (100_000, false, "limit=500", 10),
        ] {
            assert_eq!(seats(there, everything, query), wanted, "{there} {query}");
        }
        assert!(begins_with_all("watch=true") && begins_with_all("watch=true&resourceVersion=0"));
        assert!(!begins_with_all("watch=true&resourceVersion=7"));
        assert!(begins_with_all("watch=true&resourceVersion=7&sendInitialEvents=true"));
    }
}
