//! Sets of completion indexes, written as `0-3,5`.

use std::fmt::{Display, Formatter, Result};

/// A set of indexes: intervals in order that neither overlap nor touch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Indexes(Vec<(i32, i32)>);

impl Indexes {
    /// Reads a set; what is no index below `completions` is left out.
    #[must_use]
    pub fn parse(text: &str, completions: i32) -> Self {
        let one = |text: &str| {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            let (first, last): (i32, i32) = (first.parse().ok()?, last.parse().ok()?);
            (first < completions).then_some((first, last.min(completions - 1)))
        };
        Self::of_intervals(text.split(',').filter_map(one).collect())
    }

    /// The set of these.
    #[must_use]
    pub fn of(indexes: impl IntoIterator<Item = i32>) -> Self {
        Self::of_intervals(indexes.into_iter().map(|i| (i, i)).collect())
    }

    fn of_intervals(mut intervals: Vec<(i32, i32)>) -> Self {
        intervals.sort_unstable();
        let mut joined: Vec<(i32, i32)> = Vec::with_capacity(intervals.len());
        for (first, last) in intervals {
            match joined.last_mut() {
                Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
                _ => joined.push((first, last)),
            }
        }
        Self(joined)
    }

    /// All of both.
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        Self::of_intervals(self.0.iter().chain(&other.0).copied().collect())
    }

    /// Whether an index is in it.
    #[must_use]
    pub fn has(&self, index: i32) -> bool {
        let after = self.0.partition_point(|(_, last)| *last < index);
        self.0.get(after).is_some_and(|(first, _)| *first <= index)
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> i32 {
        self.0.iter().map(|(first, last)| last - first + 1).sum()
    }

    /// How many are in both.
    #[must_use]
    pub fn common(&self, other: &Self) -> i32 {
        let (mut a, mut b, mut common) = (0, 0, 0);
        while let (Some(x), Some(y)) = (self.0.get(a), other.0.get(b)) {
            common += (x.1.min(y.1) - x.0.max(y.0) + 1).max(0);
            if x.1 < y.1 { a += 1 } else { b += 1 }
        }
        common
    }

    /// The lowest indexes below `completions` that are not in it, `count` at most.
    #[must_use]
    pub fn free(&self, completions: i32, count: usize) -> Vec<i32> {
        let ends = self.0.iter().copied().chain([(completions, completions)]);
        let mut next = 0;
        let gaps = ends.map(|(first, last)| {
            let gap = next..first.min(completions);
            next = last.saturating_add(1);
            gap
        });
        gaps.flatten().take(count).collect()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Two that are next to each other are written as two.
impl Display for Indexes {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        for (i, (first, last)) in self.0.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            match last - first {
                0 => write!(f, "{comma}{first}")?,
                1 => write!(f, "{comma}{first},{last}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_read_and_written() {
        let rows = [
            ("", 10, "", 0),
            ("0-3,5", 10, "0-3,5", 5),
            ("0,1", 10, "0,1", 2),
            ("0,1,2", 10, "0-2", 3),
            ("3,x,5-y,7", 10, "3,7", 2),
            ("0-9", 4, "0-3", 4),
            ("0,7-9,12", 8, "0,7", 2),
        ];
        for (text, completions, expected, count) in rows {
            let found = Indexes::parse(text, completions);
            assert_eq!((found.to_string().as_str(), found.count()), (expected, count), "{text}");
        }
    }

    #[test]
    fn sets_are_joined_compared_and_asked() {
        let set = Indexes::parse("1-3,6", 100);
        assert_eq!(set.with(&Indexes::of([4, 8, 0])).to_string(), "0-4,6,8");
        assert_eq!([0, 1, 3, 4, 6, 7].map(|i| set.has(i)), [false, true, true, false, true, false]);
        assert_eq!(set.common(&Indexes::parse("0-1,3-6", 100)), 3);
        assert_eq!(set.common(&Indexes::default()), 0);
        assert_eq!(set.free(10, 3), [0, 4, 5]);
        assert_eq!(set.free(7, 10), [0, 4, 5]);
        assert_eq!(set.free(3, 10), [0]);
        assert_eq!(Indexes::parse("0-4", 5).free(5, 3), [0; 0]);
        assert_eq!(Indexes::default().free(3, 10), [0, 1, 2]);
    }
}
