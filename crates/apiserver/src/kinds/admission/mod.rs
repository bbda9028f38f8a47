//! Kinds that configure who decides about writes. What they say is done in [`crate::admission`].
//!
//! - `webhooks` webhook configurations
//! - `policies` policies, `bindings` where they are in force
//! - `matching` which requests they want: rules, selectors, conditions; common to all of these kinds

mod bindings;
mod matching;
mod policies;
mod webhooks;

use std::collections::HashSet;

use serde_json::Value;

pub use bindings::{MutatingBindings, ValidatingBindings};
pub use policies::{MutatingPolicies, ValidatingPolicies};
pub use webhooks::{Mutating, Validating, client_config, review_versions};

use super::fields::items;
use super::{Cause, Causes};

/// Sets what `matchConstraints` and `matchResources` have.
fn resources_defaults(resources: &mut Value) {
    matching::defaults(resources);
    for rules in ["resourceRules", "excludeResourceRules"] {
        matching::rule_defaults(resources, rules);
    }
}

/// Checks `matchConstraints` and `matchResources`.
fn resources(resources: &Value, path: &str, causes: &mut Causes) {
    matching::check(resources, path, causes);
    for rules in ["resourceRules", "excludeResourceRules"] {
        for (i, rule) in items(resources, rules).iter().enumerate() {
            let path = format!("{path}.{rules}[{i}]");
            let mut seen = HashSet::new();
            for (i, name) in items(rule, "resourceNames").iter().enumerate() {
                if !seen.insert(name) {
                    causes.add(Cause::duplicate(format!("{path}.resourceNames[{i}]"), name.clone()));
                }
            }
            matching::rule(rule, &path, causes);
        }
    }
}
