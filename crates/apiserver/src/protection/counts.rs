//! What is counted of each schema, under upstream's names.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::seats::Reason;
use crate::metrics::Page;

/// Upstream's buckets of waiting and of execution, seconds.
const BUCKETS: [f64; 13] = [0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0];

/// How long something took, how often.
#[derive(Debug, Default)]
struct Spread {
    /// The last for what took longer than all bounds.
    counts: [AtomicU64; BUCKETS.len() + 1],
    micros: AtomicU64,
}

impl Spread {
    fn add(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        self.counts[BUCKETS.partition_point(|bound| *bound < seconds)].fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    fn show(&self, page: &mut Page, name: &str, labels: &[(&str, &str)]) {
        let mut sum = 0;
        for (bound, count) in
            BUCKETS.iter().map(ToString::to_string).chain(["+Inf".to_owned()]).zip(&self.counts)
        {
            sum += count.load(Ordering::Relaxed);
            page.value(&format!("{name}_bucket"), &[labels, &[("le", bound.as_str())]].concat(), sum as f64);
        }
        let seconds = self.micros.load(Ordering::Relaxed) as f64 / 1e6;
        page.value(&format!("{name}_sum"), labels, seconds);
        page.value(&format!("{name}_count"), labels, sum as f64);
    }
}

/// The counts of one schema and its level.
#[derive(Debug, Default)]
pub(super) struct Counts {
    dispatched: AtomicU64,
    refused: [AtomicU64; 3],
    waiting: AtomicI64,
    executing: AtomicI64,
    seats: AtomicI64,
    waited: Spread,
    executed: Spread,
}

const REASONS: [Reason; 3] = [Reason::ConcurrencyLimit, Reason::QueueFull, Reason::TimeOut];

impl Counts {
    /// A request begins, after it waited for so long.
    pub(super) fn begins(&self, width: u32, waited: Duration) {
        self.dispatched.fetch_add(1, Ordering::Relaxed);
        self.executing.fetch_add(1, Ordering::Relaxed);
        self.seats.fetch_add(i64::from(width), Ordering::Relaxed);
        self.waited.add(waited);
    }

    /// A request has ended.
    pub(super) fn ends(&self, width: u32, took: Duration) {
        self.executing.fetch_sub(1, Ordering::Relaxed);
        self.seats.fetch_sub(i64::from(width), Ordering::Relaxed);
        self.executed.add(took);
    }

    /// One more waits, or one less.
    pub(super) fn waits(&self, change: i64) {
        self.waiting.fetch_add(change, Ordering::Relaxed);
    }

    /// A request is refused.
    pub(super) fn refuses(&self, reason: Reason) {
        if let Some(at) = REASONS.iter().position(|r| *r == reason) {
            self.refused[at].fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The counts of all schemas, which outlive their changes.
#[derive(Debug, Default)]
pub(super) struct AllCounts(Mutex<BTreeMap<(String, String), Arc<Counts>>>);

impl AllCounts {
    /// Those of a level and schema.
    pub(super) fn of(&self, level: &str, schema: &str) -> Arc<Counts> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry((level.to_owned(), schema.to_owned())).or_default())
    }

    /// Writes the families; `loads` are the levels' own seats, taken seats and waiting requests.
    pub(super) fn show(&self, page: &mut Page, loads: &[(String, u32, u32, usize)]) {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let gauge = |value: &AtomicI64| value.load(Ordering::Relaxed) as f64;
        let prefix = "apiserver_flowcontrol";
        type Value = fn(&Counts) -> &AtomicI64;
        let gauges: [(&str, &str, Value); 3] = [
            ("current_inqueue_requests", "Requests that wait.", |c| &c.waiting),
            ("current_executing_requests", "Requests that are answered.", |c| &c.executing),
            ("current_executing_seats", "Seats of the requests that are answered.", |c| &c.seats),
        ];
        for (name, help, value) in gauges {
            let name = format!("{prefix}_{name}");
            page.family(&name, "gauge", help);
            for ((level, schema), counts) in all.iter() {
                page.value(
                    &name,
                    &[("flow_schema", schema), ("priority_level", level)],
                    gauge(value(counts)),
                );
            }
        }
        let name = format!("{prefix}_dispatched_requests_total");
        page.family(&name, "counter", "Requests that began.");
        for ((level, schema), counts) in all.iter() {
            let value = counts.dispatched.load(Ordering::Relaxed) as f64;
            page.value(&name, &[("flow_schema", schema), ("priority_level", level)], value);
        }
        let name = format!("{prefix}_rejected_requests_total");
        page.family(&name, "counter", "Requests that were refused.");
        for ((level, schema), counts) in all.iter() {
            for (reason, count) in REASONS.iter().zip(&counts.refused) {
                let value = count.load(Ordering::Relaxed);
                if value > 0 {
                    let labels = [
                        ("flow_schema", schema.as_str()),
                        ("priority_level", level),
                        ("reason", reason.word()),
                    ];
                    page.value(&name, &labels, value as f64);
                }
            }
        }
        type Times = fn(&Counts) -> &Spread;
        let times: [(&str, &str, (&str, &str), Times); 2] = [
            ("request_wait_duration_seconds", "How long requests waited.", ("execute", "true"), |c| {
                &c.waited
            }),
            ("request_execution_seconds", "How long requests took.", ("type", "regular"), |c| &c.executed),
        ];
        for (name, help, more, spread) in times {
            let name = format!("{prefix}_{name}");
            page.family(&name, "histogram", help);
            for ((level, schema), counts) in
                all.iter().filter(|(_, c)| c.dispatched.load(Ordering::Relaxed) > 0)
            {
                spread(counts).show(page, &name, &[("flow_schema", schema), ("priority_level", level), more]);
            }
        }
        let name = format!("{prefix}_nominal_limit_seats");
        page.family(&name, "gauge", "Seats that a level has when all want theirs.");
        for (level, nominal, ..) in loads {
            page.value(&name, &[("priority_level", level)], f64::from(*nominal));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_says_who_began_and_who_was_refused() {
        let all = AllCounts::default();
        let counts = all.of("low", "users");
        counts.begins(2, Duration::from_millis(30));
        counts.begins(1, Duration::ZERO);
        counts.ends(2, Duration::from_millis(700));
        counts.refuses(Reason::QueueFull);
        let mut page = Page::default();
        all.show(&mut page, &[("low".to_owned(), 245, 1, 0)]);
        let text = page.finish();
        let of = "{flow_schema=\"users\",priority_level=\"low\"";
        for line in [
            format!("apiserver_flowcontrol_dispatched_requests_total{of}}} 2"),
            format!("apiserver_flowcontrol_rejected_requests_total{of},reason=\"queue-full\"}} 1"),
            format!("apiserver_flowcontrol_current_executing_seats{of}}} 1"),
            format!(
                "apiserver_flowcontrol_request_wait_duration_seconds_bucket{of},execute=\"true\",le=\"0\"}} 1"
            ),
            format!(
                "apiserver_flowcontrol_request_wait_duration_seconds_bucket{of},execute=\"true\",le=\"0.05\"}} 2"
            ),
            format!("apiserver_flowcontrol_request_execution_seconds_sum{of},type=\"regular\"}} 0.7"),
            "apiserver_flowcontrol_nominal_limit_seats{priority_level=\"low\"} 245".to_owned(),
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
    }
}
