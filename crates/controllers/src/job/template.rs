//! The Pods of a Job: how they are made, and what they say of themselves.

use std::sync::Arc;

use trine_typed::k8s_openapi::api::batch::v1::Job;
use trine_typed::k8s_openapi::api::core::v1::{Container, EnvVar, EnvVarSource, ObjectFieldSelector, Pod};
use trine_typed::kube::ResourceExt;

use super::policy::{Meaning, meaning};
use crate::workload::pods::from_template;

/// What holds a Pod until its end is counted.
pub const TRACKED: &str = "batch.kubernetes.io/job-tracking";
/// The index of a Pod: annotation and label.
pub const INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// How often the index has failed.
const FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
/// How often it has failed without that counting.
const IGNORED: &str = "batch.kubernetes.io/job-index-ignored-failure-count";
/// The index in the environment of the containers.
const INDEX_ENV: &str = "JOB_COMPLETION_INDEX";
/// What the server leaves of a generated name for what comes before its random end, bytes.
const PREFIX_MAX: usize = 58;

/// Whether a Job's Pods have indexes.
#[must_use]
pub fn is_indexed(job: &Job) -> bool {
    job.spec.as_ref().and_then(|s| s.completion_mode.as_deref()) == Some("Indexed")
}

/// Whether the end of a Pod is yet to be counted.
#[must_use]
pub fn is_tracked(pod: &Pod) -> bool {
    pod.finalizers().iter().any(|f| f == TRACKED)
}

/// The index of a Pod.
#[must_use]
pub fn index(pod: &Pod) -> Option<i32> {
    pod.annotations().get(INDEX)?.parse().ok().filter(|index| *index >= 0)
}

/// How often the index of a Pod had failed when it was made.
#[must_use]
pub fn failures(pod: &Pod) -> u32 {
    number(pod, FAILURES)
}

/// The same with the failures that do not count.
#[must_use]
pub fn all_failures(pod: &Pod) -> u32 {
    number(pod, FAILURES).saturating_add(number(pod, IGNORED))
}

fn number(pod: &Pod, annotation: &str) -> u32 {
    pod.annotations().get(annotation).and_then(|n| n.parse().ok()).unwrap_or_default()
}

/// A Pod of a Job: for an index, and in the place of one that failed.
#[must_use]
pub fn pod(job: &Job, index: Option<i32>, replaced: Option<&Arc<Pod>>) -> Pod {
    let Some(spec) = &job.spec else { return Pod::default() };
    let mut pod = from_template(job, &spec.template);
    let finalizers = pod.metadata.finalizers.get_or_insert_default();
    if !finalizers.iter().any(|f| f == TRACKED) {
        finalizers.push(TRACKED.to_owned());
    }
    let Some(index) = index else { return pod };
    let job_name = job.name_any();
    pod.labels_mut().insert(INDEX.to_owned(), index.to_string());
    pod.annotations_mut().insert(INDEX.to_owned(), index.to_string());
    if spec.backoff_limit_per_index.is_some() {
        let (mut counted, mut ignored) = replaced.map_or((0, 0), |pod| (failures(pod), number(pod, IGNORED)));
        if let Some(replaced) = replaced {
            match meaning(spec.pod_failure_policy.as_ref(), replaced) {
                Meaning::Ignored => ignored += 1,
                _ => counted += 1,
            }
        }
        pod.annotations_mut().insert(FAILURES.to_owned(), counted.to_string());
        if ignored > 0 {
            pod.annotations_mut().insert(IGNORED.to_owned(), ignored.to_string());
        }
    }
    let end = format!("-{index}-");
    let begin = &job_name[..job_name.len().min(PREFIX_MAX - end.len())];
    pod.metadata.generate_name = Some(format!("{begin}{end}"));
    if let Some(spec) = &mut pod.spec {
        spec.hostname = Some(format!("{job_name}-{index}"));
        spec.init_containers.iter_mut().flatten().for_each(say_index);
        spec.containers.iter_mut().for_each(say_index);
    }
    pod
}

fn say_index(container: &mut Container) {
    let env = container.env.get_or_insert_default();
    if env.iter().all(|var| var.name != INDEX_ENV) {
        let label =
            ObjectFieldSelector { api_version: None, field_path: format!("metadata.labels['{INDEX}']") };
        let source = EnvVarSource { field_ref: Some(label), ..Default::default() };
        env.push(EnvVar { name: INDEX_ENV.to_owned(), value: None, value_from: Some(source) });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn job(spec: &Value) -> Job {
        let mut job = json!({"metadata": {"name": "j", "namespace": "ns", "uid": "u"}, "spec": {"template": {
            "metadata": {"labels": {"a": "b"}}, "spec": {"initContainers": [{"name": "i"}],
                "containers": [{"name": "c", "env": [{"name": "JOB_COMPLETION_INDEX", "value": "mine"}]}, {"name": "d"}]}}}});
        for (key, value) in spec.as_object().unwrap() {
            job["spec"][key] = value.clone();
        }
        serde_json::from_value(job).unwrap()
    }

    #[test]
    fn a_pod_is_held_until_it_is_counted() {
        let plain = json!(pod(&job(&json!({})), None, None));
        assert_eq!(plain["metadata"]["finalizers"], json!([TRACKED]));
        assert_eq!(plain["metadata"]["generateName"], "j-");
        assert_eq!(plain["metadata"]["labels"], json!({"a": "b"}));
    }

    #[test]
    fn a_pod_with_an_index_says_it_everywhere() {
        let found = json!(pod(&job(&json!({"completionMode": "Indexed"})), Some(7), None));
        assert_eq!(found["metadata"]["generateName"], "j-7-");
        assert_eq!(found["metadata"]["annotations"], json!({INDEX: "7"}));
        assert_eq!(found["metadata"]["labels"], json!({"a": "b", INDEX: "7"}));
        assert_eq!(found["spec"]["hostname"], "j-7");
        let env = |container: &Value| container["env"].as_array().unwrap().clone();
        let from = json!([{"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef":
            {"fieldPath": "metadata.labels['batch.kubernetes.io/job-completion-index']"}}}]);
        assert_eq!(json!(env(&found["spec"]["initContainers"][0])), from);
        assert_eq!(json!(env(&found["spec"]["containers"][1])), from);
        assert_eq!(env(&found["spec"]["containers"][0])[0]["value"], "mine", "what is set stays");
    }

    #[test]
    fn what_replaces_a_failed_pod_carries_the_count_on() {
        let rule = json!({"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]});
        let job = job(
            &json!({"completionMode": "Indexed", "backoffLimitPerIndex": 3, "podFailurePolicy": {"rules": [rule]}}),
        );
        let mut failed = pod(&job, Some(1), None);
        let counts = |pod: &Pod| (failures(pod), all_failures(pod));
        assert_eq!(counts(&failed), (0, 0));
        failed = pod(&job, Some(1), Some(&Arc::new(failed)));
        assert_eq!(counts(&failed), (1, 1));
        failed.status =
            serde_json::from_value(json!({"conditions": [{"type": "DisruptionTarget", "status": "True"}]}))
                .unwrap();
        failed = pod(&job, Some(1), Some(&Arc::new(failed)));
        assert_eq!(counts(&failed), (1, 2), "one of them is ignored");
    }

    #[test]
    fn a_long_name_leaves_room_for_the_index() {
        let mut long = job(&json!({"completionMode": "Indexed"}));
        long.metadata.name = Some("n".repeat(63));
        let prefix = pod(&long, Some(12), None).metadata.generate_name.unwrap();
        assert!(prefix.len() == PREFIX_MAX && prefix.ends_with("n-12-"), "{prefix}");
    }
}
