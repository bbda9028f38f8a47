//! What the status of a namespace that is being deleted says, and when it is looked at again. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use trine_typed::k8s_openapi::api::core::v1::NamespaceCondition;
use trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use trine_typed::k8s_openapi::jiff::Timestamp;

/// What one pass over a namespace came to.
#[derive(Debug, Default, Clone)]
pub struct Pass {
    /// Why it is not known what could be in the namespace.
    pub undiscovered: Option<String>,
    /// What could not be deleted.
    pub failures: Vec<String>,
    /// What is still there.
    pub left: Vec<Left>,
}

/// Objects of one resource that are still there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// `deployments.apps`, `pods.` for the core group, as upstream writes it.
    pub resource: String,
    /// How many.
    pub count: usize,
    /// How often each finalizer is among them.
    pub finalizers: BTreeMap<String, usize>,
}

impl Left {
    /// Sums up the finalizers of objects; nothing if there are no objects.
    pub fn of(resource: &str, group: &str, finalizers_of_each: &[Vec<String>]) -> Option<Self> {
        let mut finalizers = BTreeMap::new();
        for finalizer in finalizers_of_each.iter().flatten() {
            *finalizers.entry(finalizer.clone()).or_insert(0) += 1;
        }
        let resource = format!("{resource}.{group}");
        (!finalizers_of_each.is_empty()).then_some(Self {
            resource,
            count: finalizers_of_each.len(),
            finalizers,
        })
    }
}

impl Pass {
    /// Whether nothing is left, for certain.
    pub fn is_empty(&self) -> bool {
        self.undiscovered.is_none() && self.failures.is_empty() && self.left.is_empty()
    }

    /// The status' conditions after this pass; nothing if they are as they were.
    pub fn conditions(&self, old: &[NamespaceCondition], now: Timestamp) -> Option<Vec<NamespaceCondition>> {
        let mut conditions = old.to_vec();
        for fresh in self.findings() {
            let condition = NamespaceCondition {
                type_: fresh.type_.to_owned(),
                status: if fresh.trouble { "True" } else { "False" }.to_owned(),
                reason: Some(fresh.reason.to_owned()),
                message: Some(fresh.message),
                last_transition_time: Some(Time(now)),
            };
            match conditions.iter_mut().find(|old| old.type_ == condition.type_) {
                None => conditions.push(condition),
                Some(old) => {
                    let since = match old.status == condition.status {
                        true => old.last_transition_time.clone(),
                        false => condition.last_transition_time.clone(),
                    };
                    *old = NamespaceCondition { last_transition_time: since, ..condition };
                }
            }
        }
        (conditions != old).then_some(conditions)
    }

    /// Types, reasons and texts are upstream's (`pkg/controller/namespace/deletion`), but that Pods which hold up the rest are told
    /// as what remains: upstream says then that all is gone.
    fn findings(&self) -> [Finding; 5] {
        let mut remain: Vec<String> = self
            .left
            .iter()
            .map(|left| format!("{} has {} resource instances", left.resource, left.count))
            .collect();
        remain.sort();
        let mut finalizers = BTreeMap::new();
        for (finalizer, count) in self.left.iter().flat_map(|left| &left.finalizers) {
            *finalizers.entry(finalizer).or_insert(0) += count;
        }
        let finalizers: Vec<String> = finalizers
            .into_iter()
            .map(|(finalizer, count)| format!("{finalizer} in {count} resource instances"))
            .collect();
        let mut failures = self.failures.clone();
        failures.sort();
        [
            Finding::of("NamespaceDeletionDiscoveryFailure", self.undiscovered.clone(), "DiscoveryFailed")
                .or("ResourcesDiscovered", "All resources successfully discovered"),
            Finding::of("NamespaceDeletionGroupVersionParsingFailure", None, "GroupVersionParsingFailed")
                .or("ParsedGroupVersions", "All legacy kube types successfully parsed"),
            Finding::of(
                "NamespaceDeletionContentFailure",
                listed(&failures).map(|all| {
                    format!("Failed to delete all resource types, {} remaining: {all}", failures.len())
                }),
                "ContentDeletionFailed",
            )
            .or("ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
            Finding::of(
                "NamespaceContentRemaining",
                listed(&remain).map(|all| format!("Some resources are remaining: {all}")),
                "SomeResourcesRemain",
            )
            .or("ContentRemoved", "All content successfully removed"),
            Finding::of(
                "NamespaceFinalizersRemaining",
                listed(&finalizers)
                    .map(|all| format!("Some content in the namespace has finalizers remaining: {all}")),
                "SomeFinalizersRemain",
            )
            .or("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
        ]
    }
}

fn listed(texts: &[String]) -> Option<String> {
    (!texts.is_empty()).then(|| texts.join(", "))
}

struct Finding {
    type_: &'static str,
    trouble: bool,
    reason: &'static str,
    message: String,
}

impl Finding {
    fn of(type_: &'static str, trouble: Option<String>, reason: &'static str) -> Self {
        Self { type_, trouble: trouble.is_some(), reason, message: trouble.unwrap_or_default() }
    }

    /// What is said if there is no trouble.
    fn or(self, reason: &'static str, message: &str) -> Self {
        if self.trouble { self } else { Self { reason, message: message.to_owned(), ..self } }
    }
}

/// Pause before a namespace that is not yet empty is looked at again: a tenth of the time since it was deleted, at least 250 ms
/// and at most 5 s, so that what is quick is gone at once and what is stuck costs little.
pub fn pause(since_deletion: Duration) -> Duration {
    (since_deletion / 10).clamp(Duration::from_millis(250), Duration::from_secs(5))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(pass: &Pass, old: &[NamespaceCondition], at: i64) -> Option<Vec<NamespaceCondition>> {
        pass.conditions(old, Timestamp::from_second(at).unwrap())
    }

    #[test]
    fn what_remains_is_counted_by_resource_and_by_finalizer() {
        let held = || vec!["a/b".to_owned()];
        let pods = Left::of("pods", "", &[held(), Vec::new()]);
        let widgets = Left::of("widgets", "x.io", &[held()]);
        assert_eq!(Left::of("secrets", "", &[]), None);
        let pass = Pass { left: [widgets, pods].into_iter().flatten().collect(), ..Pass::default() };
        assert!(!pass.is_empty());
        let conditions = told(&pass, &[], 1).unwrap();
        let short: Vec<(&str, &str, &str)> = conditions
            .iter()
            .map(|c| (c.status.as_str(), c.reason.as_deref().unwrap(), c.message.as_deref().unwrap()))
            .collect();
        assert_eq!(
            short,
            [
                ("False", "ResourcesDiscovered", "All resources successfully discovered"),
                ("False", "ParsedGroupVersions", "All legacy kube types successfully parsed"),
                (
                    "False",
                    "ContentDeleted",
                    "All content successfully deleted, may be waiting on finalization"
                ),
                (
                    "True",
                    "SomeResourcesRemain",
                    "Some resources are remaining: pods. has 2 resource instances, widgets.x.io has 1 resource instances"
                ),
                (
                    "True",
                    "SomeFinalizersRemain",
                    "Some content in the namespace has finalizers remaining: a/b in 2 resource instances"
                ),
            ]
        );
    }

    #[test]
    fn a_condition_keeps_its_time_until_its_status_changes() {
        let failing = Pass { failures: vec!["b".into(), "a".into()], ..Pass::default() };
        let first = told(&failing, &[], 1).unwrap();
        assert_eq!(
            first[2].message.as_deref(),
            Some("Failed to delete all resource types, 2 remaining: a, b")
        );
        assert_eq!(told(&failing, &first, 2), None);
        let fewer = Pass { failures: vec!["a".into()], ..Pass::default() };
        let second = told(&fewer, &first, 2).unwrap();
        assert_eq!(second[2].last_transition_time, first[2].last_transition_time);
        let third = told(&Pass::default(), &second, 3).unwrap();
        assert_ne!(third[2].last_transition_time, first[2].last_transition_time);
        assert_eq!(third[2].status, "False");
    }

    #[test]
    fn it_is_looked_at_less_often_the_longer_it_takes() {
        for (since, pause_ms) in [(0, 250), (10, 1_000), (600, 5_000)] {
            assert_eq!(pause(Duration::from_secs(since)), Duration::from_millis(pause_ms));
        }
    }
}
