//! The order of a merged list.

use serde_json::Value;
use std::cmp::Ordering;

/// An item told apart by a key, or by itself when the key is empty.
pub(super) struct Keyed<'a>(pub &'a Value, pub &'a str);

impl Keyed<'_> {
    fn identity<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        if self.1.is_empty() { Some(value) } else { value.get(self.1) }
    }

    /// Whether the other item is the same one.
    pub(super) fn same(&self, other: &Value) -> bool {
        let own = self.identity(self.0);
        own.is_some() && own == self.identity(other)
    }
}

fn position(list: &[Value], item: &Value, key: &str) -> Option<usize> {
    list.iter().position(|other| Keyed(other, key).same(item))
}

/// Arranges a merged list: items named by `wanted` in its order; the others in the order of the `live` list, each set before
/// the first wanted item that it stood before there.
pub(super) fn arrange(merged: Vec<Value>, wanted: &[Value], live: &[Value], key: &str) -> Vec<Value> {
    let rank = |list: &[Value], item: &Value| position(list, item, key).unwrap_or(usize::MAX);
    let (mut named, mut others): (Vec<Value>, Vec<Value>) =
        merged.into_iter().partition(|item| position(wanted, item, key).is_some());
    named.sort_by_key(|item| rank(wanted, item));
    others.sort_by_key(|item| rank(live, item));
    let mut out = Vec::with_capacity(named.len() + others.len());
    let (mut named, mut others) = (named.into_iter().peekable(), others.into_iter().peekable());
    while let (Some(next), Some(other)) = (named.peek(), others.peek()) {
        let other_first = match (position(live, other, key), position(live, next, key)) {
            (Some(a), Some(b)) => a.cmp(&b) == Ordering::Less,
            _ => false,
        };
        out.extend(if other_first { others.next() } else { named.next() });
    }
    out.extend(named);
    out.extend(others);
    out
}
