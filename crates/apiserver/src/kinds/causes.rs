//! Collecting causes: the checks that many fields share.

use super::Cause;
use super::fields::{is_unset, text};
use super::metadata::name_causes;
use serde_json::Value;
use trine_objects::names;

/// Collects causes.
#[derive(Default)]
pub struct Causes(pub Vec<Cause>);

impl Causes {
    /// Notes a cause.
    pub fn add(&mut self, cause: Cause) {
        self.0.push(cause);
    }

    /// Notes the reasons against a name.
    pub fn name(&mut self, field: &str, value: &str, check: fn(&str) -> names::Checked) {
        self.0.extend(name_causes(field, value, check(value)));
    }

    /// A needed name: there, and well-formed.
    pub fn needed_name(&mut self, field: &str, value: &str, check: fn(&str) -> names::Checked) {
        if value.is_empty() {
            self.add(Cause::required(field, ""));
        } else {
            self.name(field, value, check);
        }
    }

    /// A needed text.
    pub fn needed(&mut self, object: &Value, key: &str, path: &str) {
        if is_unset(&object[key]) {
            self.add(Cause::required(format!("{path}.{key}"), ""));
        }
    }

    /// One of several known words; unset passes.
    pub fn one_of(&mut self, object: &Value, key: &str, path: &str, known: &[&str]) {
        let value = text(object, key);
        if !value.is_empty() && !known.contains(&value) {
            self.add(Cause::not_supported(format!("{path}.{key}"), value, known));
        }
    }

    /// A number within bounds; unset passes.
    pub fn range(&mut self, object: &Value, key: &str, path: &str, low: i64, high: i64) {
        if let Some(n) = object[key].as_i64()
            && !(low..=high).contains(&n)
        {
            let detail = format!("must be between {low} and {high}, inclusive");
            self.add(Cause::invalid(format!("{path}.{key}"), n, &detail));
        }
    }

    /// A number that is not negative; unset passes.
    pub fn not_negative(&mut self, object: &Value, key: &str, path: &str) {
        if let Some(n) = object[key].as_i64()
            && n < 0
        {
            self.add(Cause::invalid(format!("{path}.{key}"), n, "must be greater than or equal to 0"));
        }
    }

    /// Takes in what another check found.
    pub fn extend(&mut self, causes: impl IntoIterator<Item = Cause>) {
        self.0.extend(causes);
    }
}
