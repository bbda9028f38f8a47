//! Counting probe results against the thresholds. Pure.

/// Results in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    success_threshold: u32,
    failure_threshold: u32,
    last: Option<bool>,
    row: u32,
}

impl Tally {
    /// With a probe's thresholds.
    #[must_use]
    pub fn new(success_threshold: i32, failure_threshold: i32) -> Self {
        let at_least_one = |n: i32| u32::try_from(n).unwrap_or(1).max(1);
        Self {
            success_threshold: at_least_one(success_threshold),
            failure_threshold: at_least_one(failure_threshold),
            last: None,
            row: 0,
        }
    }

    /// Notes a result; returns it once it came often enough in a row.
    pub fn note(&mut self, success: bool) -> Option<bool> {
        self.row = if self.last == Some(success) { self.row + 1 } else { 1 };
        self.last = Some(success);
        let threshold = if success { self.success_threshold } else { self.failure_threshold };
        (self.row >= threshold).then_some(success)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_counts_after_enough_in_a_row() {
        let mut tally = Tally::new(2, 3);
        let rows = [
            (true, None),
            (true, Some(true)),
            (false, None),
            (false, None),
            (true, None),
            (false, None),
            (false, None),
            (false, Some(false)),
            (false, Some(false)),
            (true, None),
            (true, Some(true)),
        ];
        for (index, (result, expected)) in rows.into_iter().enumerate() {
            assert_eq!(tally.note(result), expected, "result {index}");
        }
    }
}
