//! Counters and histograms by labels.

use super::text::{Labels, Page, borrowed};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Numbers that only grow, by labels.
#[derive(Default)]
pub struct Counters(Mutex<BTreeMap<Labels, u64>>);

impl Counters {
    /// Adds one.
    pub fn add(&self, labels: Labels) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(labels).or_default() += 1;
    }

    /// Writes the family.
    pub fn show(&self, page: &mut Page, name: &str, help: &str) {
        page.family(name, "counter", help);
        for (labels, count) in self.0.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            page.value(name, &borrowed(labels), *count as f64);
        }
    }
}

#[derive(Clone)]
struct Spread {
    /// How many were at most as long as each bound, and longer than the one before it.
    counts: Vec<u64>,
    sum: f64,
    count: u64,
}

/// Durations, by labels.
pub struct Durations {
    /// Upper bounds of the buckets, seconds, ascending.
    bounds: &'static [f64],
    spreads: Mutex<BTreeMap<Labels, Spread>>,
}

impl Durations {
    /// Histograms with these buckets.
    pub fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, spreads: Mutex::default() }
    }

    /// Notes one.
    pub fn add(&self, labels: Labels, took: Duration) {
        let seconds = took.as_secs_f64();
        let mut spreads = self.spreads.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = || Spread { counts: vec![0; self.bounds.len()], sum: 0.0, count: 0 };
        let spread = spreads.entry(labels).or_insert_with(fresh);
        let bucket = self.bounds.partition_point(|bound| *bound < seconds);
        if let Some(count) = spread.counts.get_mut(bucket) {
            *count += 1;
        }
        spread.sum += seconds;
        spread.count += 1;
    }

    /// Writes the family.
    pub fn show(&self, page: &mut Page, name: &str, help: &str) {
        page.family(name, "histogram", help);
        let spreads = self.spreads.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (bucket, sum, count) = (format!("{name}_bucket"), format!("{name}_sum"), format!("{name}_count"));
        for (labels, spread) in &spreads {
            let labels = borrowed(labels);
            let mut below = 0;
            for (bound, count) in self.bounds.iter().zip(&spread.counts) {
                below += count;
                let bound = bound.to_string();
                page.value(&bucket, &[&labels[..], &[("le", bound.as_str())]].concat(), below as f64);
            }
            page.value(&bucket, &[&labels[..], &[("le", "+Inf")]].concat(), spread.count as f64);
            page.value(&sum, &labels, spread.sum);
            page.value(&count, &labels, spread.count as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_count_all_that_is_at_most_their_bound() {
        let durations = Durations::new(&[0.5, 1.0]);
        for millis in [500, 700, 1000, 3000] {
            durations.add(vec![("a", "b".to_owned())], Duration::from_millis(millis));
        }
        let mut page = Page::default();
        durations.show(&mut page, "d", "D.");
        let text = page.finish();
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(
            lines,
            [
                "d_bucket{a=\"b\",le=\"0.5\"} 1",
                "d_bucket{a=\"b\",le=\"1\"} 3",
                "d_bucket{a=\"b\",le=\"+Inf\"} 4",
                "d_sum{a=\"b\"} 5.2",
                "d_count{a=\"b\"} 4",
            ]
        );
    }
}
