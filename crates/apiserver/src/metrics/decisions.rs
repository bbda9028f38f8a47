//! What webhooks and policies decided.

use super::family::{Counters, Durations};
use super::text::Page;
use std::time::Duration;

/// Upstream's buckets of a webhook's call, seconds.
const BUCKETS: &[f64] = &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0];

/// What came of asking a webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It allowed the request.
    Allowed,
    /// It refused the request with this code.
    Refused(u64),
    /// It did not answer, and the request failed.
    Failed,
    /// It did not answer, and was done without.
    DoneWithout,
}

/// Counts what webhooks and policies decide.
pub struct Decisions {
    took: Durations,
    refused: Counters,
    open: Counters,
    policies: Counters,
}

impl Default for Decisions {
    fn default() -> Self {
        let (refused, open, policies) = Default::default();
        Self { took: Durations::new(BUCKETS), refused, open, policies }
    }
}

impl Decisions {
    /// A webhook was asked; `sort` is `admit` or `validating`.
    pub fn hook(&self, name: &str, sort: &str, operation: &str, outcome: Outcome, took: Duration) {
        let rejected = matches!(outcome, Outcome::Refused(_) | Outcome::Failed);
        let own = |text: &str| text.to_owned();
        let (name, sort, operation) =
            (("name", own(name)), ("type", own(sort)), ("operation", own(operation)));
        let labels = vec![name.clone(), operation.clone(), ("rejected", rejected.to_string()), sort.clone()];
        self.took.add(labels, took);
        let (error, code) = match outcome {
            Outcome::Allowed => return,
            Outcome::DoneWithout => return self.open.add(vec![name, sort]),
            Outcome::Refused(code) => ("no_error", code),
            Outcome::Failed => ("calling_webhook_error", 500),
        };
        let code = ("rejection_code", code.to_string());
        self.refused.add(vec![("error_type", own(error)), name, operation, code, sort]);
    }

    /// A validation failed, and this was done about it: `deny`, `warn` or `audit`.
    pub fn policy(&self, policy: &str, binding: &str, action: &str, evaluated: bool) {
        let error = if evaluated { "no_error" } else { "invalid_error" };
        let labels = [
            ("enforcement_action", action),
            ("error_type", error),
            ("policy", policy),
            ("policy_binding", binding),
        ];
        self.policies.add(labels.map(|(key, value)| (key, value.to_owned())).to_vec());
    }

    /// Writes the families.
    pub fn show(&self, page: &mut Page) {
        let help = "Time that webhooks took, in seconds.";
        self.took.show(page, "apiserver_admission_webhook_admission_duration_seconds", help);
        let help = "Requests that a webhook refused, or that failed because of it.";
        self.refused.show(page, "apiserver_admission_webhook_rejection_count", help);
        let help = "Calls of webhooks that did not answer and were done without.";
        self.open.show(page, "apiserver_admission_webhook_fail_open_count", help);
        let help = "Validations of policies that failed, by what was done about it.";
        self.policies.show(page, "apiserver_validating_admission_policy_check_total", help);
    }
}
