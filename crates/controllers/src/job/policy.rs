//! What the failure of a Pod means for its Job, and when enough Pods have succeeded.

use trine_typed::k8s_openapi::api::batch::v1::{
    PodFailurePolicy, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyOnPodConditionsPattern,
    SuccessPolicy,
};
use trine_typed::k8s_openapi::api::core::v1::{ContainerStatus, Pod};

use super::indexes::Indexes;

/// What a failure means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meaning {
    /// It counts as a failure.
    Counts,
    /// It does not count.
    Ignored,
    /// Its index has failed for good.
    FailsIndex,
    /// The Job has failed, for this reason.
    FailsJob(String),
}

/// The meaning of a Pod's failure, by the first rule that matches.
#[must_use]
pub fn meaning(policy: Option<&PodFailurePolicy>, pod: &Pod) -> Meaning {
    let name = || {
        let meta = &pod.metadata;
        format!(
            "{}/{}",
            meta.namespace.as_deref().unwrap_or_default(),
            meta.name.as_deref().unwrap_or_default()
        )
    };
    for (number, rule) in policy.iter().flat_map(|p| p.rules.iter().enumerate()) {
        let reason = if let Some(codes) = &rule.on_exit_codes {
            exit(pod, codes).map(|(container, code)| {
                format!("Container {container} for pod {} failed with exit code {code}", name())
            })
        } else {
            let found = rule.on_pod_conditions.as_ref().and_then(|patterns| condition(pod, patterns));
            found.map(|kind| format!("Pod {} has condition {kind}", name()))
        };
        let Some(reason) = reason else { continue };
        match rule.action.as_str() {
            "Ignore" => return Meaning::Ignored,
            "FailIndex" => return Meaning::FailsIndex,
            "Count" => return Meaning::Counts,
            "FailJob" => {
                let matched = format!("matching FailJob rule at index {number}");
                return Meaning::FailsJob(format!("{reason} {matched}"));
            }
            // A rule of a newer release.
            _ => {}
        }
    }
    Meaning::Counts
}

/// The container that failed with one of these codes, and the code.
fn exit<'a>(pod: &'a Pod, codes: &PodFailurePolicyOnExitCodesRequirement) -> Option<(&'a str, i32)> {
    let status = pod.status.as_ref()?;
    let all =
        status.container_statuses.iter().flatten().chain(status.init_container_statuses.iter().flatten());
    let failed = |container: &'a ContainerStatus| {
        let code = container.state.as_ref()?.terminated.as_ref()?.exit_code;
        let named = codes.container_name.as_ref().is_none_or(|name| *name == container.name);
        let listed = codes.values.contains(&code);
        let matched = match codes.operator.as_str() {
            "In" => listed,
            "NotIn" => !listed,
            _ => false,
        };
        (code != 0 && named && matched).then_some((container.name.as_str(), code))
    };
    all.into_iter().find_map(failed)
}

/// The type of the Pod's condition that is like one of these.
fn condition<'a>(pod: &'a Pod, patterns: &[PodFailurePolicyOnPodConditionsPattern]) -> Option<&'a str> {
    let mut conditions = pod.status.as_ref()?.conditions.iter().flatten();
    let found = conditions.find(|c| {
        patterns.iter().any(|p| p.type_ == c.type_ && p.status.as_deref().unwrap_or("True") == c.status)
    });
    found.map(|c| c.type_.as_str())
}

/// Why these indexes are enough, if they are.
#[must_use]
pub fn enough(policy: Option<&SuccessPolicy>, completions: i32, succeeded: &Indexes) -> Option<String> {
    if succeeded.is_empty() {
        return None;
    }
    let matched = policy?.rules.iter().position(|rule| match &rule.succeeded_indexes {
        Some(text) => {
            let wanted = Indexes::parse(text, completions);
            let have = wanted.common(succeeded);
            !wanted.is_empty()
                && (have == wanted.count() || rule.succeeded_count.is_some_and(|count| have >= count))
        }
        None => rule.succeeded_count.is_some_and(|count| succeeded.count() >= count),
    });
    matched.map(|number| format!("Matched rules at index {number}"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn failed(code: i32, conditions: &Value) -> Pod {
        let container = |name: &str, code: i32| {
            json!({"name": name, "image": "", "imageID": "", "ready": false,
            "restartCount": 0, "state": {"terminated": {"exitCode": code}}})
        };
        serde_json::from_value(
            json!({"metadata": {"namespace": "ns", "name": "p"}, "status": {"phase": "Failed",
            "conditions": conditions, "containerStatuses": [container("side", 0), container("main", code)]}}),
        )
        .unwrap()
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let codes = |action: &str, operator: &str, values: Value, name: Option<&str>| {
            json!({"action": action,
            "onExitCodes": {"operator": operator, "values": values, "containerName": name}})
        };
        let disrupted =
            json!({"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]});
        let target = |status: &str| json!([{"type": "DisruptionTarget", "status": status}]);
        let job = |text: &str| Meaning::FailsJob(text.to_owned());
        let rows = [
            ("no rules", json!([]), failed(1, &json!([])), Meaning::Counts),
            (
                "a code",
                json!([disrupted, codes("FailJob", "In", json!([3, 42]), None)]),
                failed(42, &json!([])),
                job("Container main for pod ns/p failed with exit code 42 matching FailJob rule at index 1"),
            ),
            (
                "another code",
                json!([codes("FailJob", "In", json!([3]), None)]),
                failed(42, &json!([])),
                Meaning::Counts,
            ),
            (
                "not that code",
                json!([codes("FailIndex", "NotIn", json!([3]), None)]),
                failed(42, &json!([])),
                Meaning::FailsIndex,
            ),
            (
                "success is no failure",
                json!([codes("FailJob", "NotIn", json!([3]), Some("side"))]),
                failed(42, &json!([])),
                Meaning::Counts,
            ),
            (
                "a disruption",
                json!([disrupted, codes("FailJob", "In", json!([42]), None)]),
                failed(42, &target("True")),
                Meaning::Ignored,
            ),
            ("none any more", json!([disrupted]), failed(42, &target("False")), Meaning::Counts),
            (
                "a condition",
                json!([{"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget"}]}]),
                failed(1, &target("True")),
                job("Pod ns/p has condition DisruptionTarget matching FailJob rule at index 0"),
            ),
        ];
        for (name, rules, pod, expected) in rows {
            let policy = serde_json::from_value(json!({"rules": rules})).unwrap();
            assert_eq!(meaning(Some(&policy), &pod), expected, "{name}");
        }
        assert_eq!(meaning(None, &failed(1, &json!([]))), Meaning::Counts);
    }

    #[test]
    fn enough_is_what_a_rule_says() {
        let rows = [
            (json!([]), "0-9", None),
            (json!([{"succeededCount": 3}]), "0,1", None),
            (json!([{"succeededCount": 3}]), "0-2", Some(0)),
            (json!([{"succeededIndexes": "0-2,5"}]), "0-4", None),
            (json!([{"succeededIndexes": "0-2,5"}]), "0-5", Some(0)),
            (
                json!([{"succeededIndexes": "9"}, {"succeededIndexes": "0-5", "succeededCount": 2}]),
                "1,3,8",
                Some(1),
            ),
            (json!([{"succeededIndexes": "20"}]), "0", None),
            (json!([{"succeededCount": 0}]), "", None),
        ];
        for (rules, succeeded, expected) in rows {
            let policy = serde_json::from_value(json!({"rules": rules})).unwrap();
            let found = enough(Some(&policy), 10, &Indexes::parse(succeeded, 10));
            assert_eq!(found, expected.map(|i| format!("Matched rules at index {i}")), "{rules} {succeeded}");
        }
    }
}
