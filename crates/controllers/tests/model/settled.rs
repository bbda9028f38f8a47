//! Whether what is wanted is there, once nothing goes wrong any more.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::rules::{has_concluded, healthy, is_tracked, node_of, share};
use crate::truth::{Truth, is_active, is_going, is_ready, name, owner, text, uid};

/// What is not as it should be.
pub fn complaints(truth: &Truth) -> Vec<String> {
    let mut all = Vec::new();
    let mut say = |what: String| all.push(what);
    owners(truth, &mut say);
    for object in truth.all("/apps/replicasets/") {
        replica_set(truth, object, &mut say);
    }
    for object in truth.all("/apps/deployments/") {
        deployment(truth, object, &mut say);
    }
    for object in truth.all("/apps/statefulsets/") {
        stateful_set(truth, object, &mut say);
    }
    for object in truth.all("/apps/daemonsets/") {
        daemon_set(truth, object, &mut say);
    }
    for object in truth.all("/batch/jobs/") {
        job(truth, object, &mut say);
    }
    for object in truth.all("/policy/poddisruptionbudgets/") {
        budget(truth, object, &mut say);
    }
    all
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0)
}

/// Nothing is on its way out, and nobody belongs to who is gone.
fn owners(truth: &Truth, say: &mut impl FnMut(String)) {
    let known: BTreeSet<&str> = truth.objects.values().map(|o| uid(o)).collect();
    for (key, object) in &truth.objects {
        if is_going(object) && !is_kept(truth, object) {
            say(format!("{key} is still there: {:?}", object["metadata"]["finalizers"]));
        }
        if let Some(owner) = owner(object)
            && !known.contains(text(&owner["uid"]))
        {
            say(format!("{key} belongs to {} {}, which is gone", owner["kind"], owner["name"]));
        }
    }
}

/// A Job that counts failures of each index keeps the last Pod that failed until there is another, also while it rests.
fn is_kept(truth: &Truth, pod: &Value) -> bool {
    let Some(owner) = owner(pod).filter(|o| o["kind"] == "Job") else { return false };
    let job = truth.get(&format!("/batch/jobs/default/{}", text(&owner["name"])));
    job.is_some_and(|job| !job["spec"]["backoffLimitPerIndex"].is_null() && rests(job))
}

/// Whether a Job is to make no Pods at present.
fn rests(job: &Value) -> bool {
    job["spec"]["suspend"] == true || number(&job["spec"]["parallelism"]) == 0
}

fn replica_set(truth: &Truth, set: &Value, say: &mut impl FnMut(String)) {
    let wanted = number(&set["spec"]["replicas"]);
    let active = truth.pods_of(uid(set)).iter().filter(|pod| is_active(pod)).count() as i64;
    if active != wanted {
        say(format!("ReplicaSet {} has {active} Pods instead of {wanted}", name(set)));
    }
    if number(&set["status"]["replicas"]) != wanted || number(&set["status"]["readyReplicas"]) != wanted {
        say(format!("ReplicaSet {} with {wanted} says {}", name(set), set["status"]));
    }
    if set["status"]["observedGeneration"] != set["metadata"]["generation"] {
        say(format!("ReplicaSet {} says nothing of its last change", name(set)));
    }
}

fn deployment(truth: &Truth, deployment: &Value, say: &mut impl FnMut(String)) {
    let (spec, status) = (&deployment["spec"], &deployment["status"]);
    let wanted = number(&spec["replicas"]);
    let sets: Vec<_> = truth
        .all("/apps/replicasets/")
        .filter(|set| owner(set).is_some_and(|o| o["uid"] == *uid(deployment)))
        .collect();
    let sum: i64 = sets.iter().map(|set| number(&set["spec"]["replicas"])).sum();
    if status["observedGeneration"] != deployment["metadata"]["generation"] {
        say(format!("Deployment {} says nothing of its last change", name(deployment)));
    }
    if spec["paused"] == true {
        return;
    }
    if sum != wanted {
        say(format!("Deployment {} has {sum} replicas in its sets instead of {wanted}", name(deployment)));
    }
    for key in ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"] {
        if number(&status[key]) != wanted {
            say(format!("Deployment {} says {key} {} instead of {wanted}", name(deployment), status[key]));
        }
    }
    let image = &spec["template"]["spec"]["containers"][0]["image"];
    let old = sets
        .iter()
        .flat_map(|set| truth.pods_of(uid(set)))
        .find(|pod| is_active(pod) && pod["spec"]["containers"][0]["image"] != *image);
    if let Some(old) = old {
        say(format!("{} is of an old template", name(&old)));
    }
}

fn stateful_set(truth: &Truth, set: &Value, say: &mut impl FnMut(String)) {
    let (spec, status) = (&set["spec"], &set["status"]);
    let wanted = number(&spec["replicas"]);
    let pods = truth.pods_of(uid(set));
    let expected: BTreeSet<String> = (0..wanted).map(|i| format!("{}-{i}", name(set))).collect();
    let found: BTreeSet<String> = pods.iter().map(|pod| name(pod).to_owned()).collect();
    if expected != found {
        say(format!("StatefulSet {} has {found:?} instead of {expected:?}", name(set)));
    }
    for key in ["replicas", "readyReplicas", "availableReplicas"] {
        if number(&status[key]) != wanted {
            say(format!("StatefulSet {} says {key} {} instead of {wanted}", name(set), status[key]));
        }
    }
    if status["observedGeneration"] != set["metadata"]["generation"] {
        say(format!("StatefulSet {} says nothing of its last change", name(set)));
    }
    let partition = number(&spec["updateStrategy"]["rollingUpdate"]["partition"]);
    for pod in pods {
        let ordinal: i64 = name(&pod).rsplit('-').next().and_then(|n| n.parse().ok()).unwrap_or(0);
        let revision = &pod["metadata"]["labels"]["controller-revision-hash"];
        if ordinal >= partition && *revision != status["updateRevision"] {
            say(format!("{} is of an old revision", name(&pod)));
        }
    }
}

fn daemon_set(truth: &Truth, set: &Value, say: &mut impl FnMut(String)) {
    let pods = truth.pods_of(uid(set));
    let nodes: Vec<&str> = truth.all("/core/nodes/").map(|node| name(node)).collect();
    for node in &nodes {
        let there = pods.iter().filter(|pod| node_of(pod) == Some(node) && is_ready(pod)).count();
        if there != 1 {
            say(format!("DaemonSet {} has {there} ready Pods on {node}", name(set)));
        }
    }
    if pods.len() != nodes.len() {
        say(format!("DaemonSet {} has {} Pods on {} nodes", name(set), pods.len(), nodes.len()));
    }
    for key in
        ["desiredNumberScheduled", "currentNumberScheduled", "updatedNumberScheduled", "numberAvailable"]
    {
        if number(&set["status"][key]) != nodes.len() as i64 {
            say(format!(
                "DaemonSet {} says {key} {} on {} nodes",
                name(set),
                set["status"][key],
                nodes.len()
            ));
        }
    }
}

fn job(truth: &Truth, job: &Value, say: &mut impl FnMut(String)) {
    let pods = truth.pods_of(uid(job));
    let over = has_concluded(job);
    if !over && !rests(job) {
        say(format!("Job {} is not over: {}", name(job), job["status"]));
    }
    if let Some(pod) = pods.iter().find(|pod| is_active(pod)) {
        say(format!("Job {} still has {}", name(job), name(pod)));
    }
    if over && let Some(pod) = pods.iter().find(|pod| is_tracked(pod)) {
        say(format!("Job {} is over and holds {}", name(job), name(pod)));
    }
    if over && number(&job["status"]["active"]) != 0 {
        say(format!("Job {} is over and says {}", name(job), job["status"]));
    }
}

/// How many Pods a budget has to keep healthy.
pub fn floor(truth: &Truth, budget: &Value) -> i64 {
    let spec = &budget["spec"];
    let app = text(&spec["selector"]["matchLabels"]["app"]);
    let size = |kind: &str| {
        truth.get(&format!("/apps/{kind}/default/{app}")).map_or(0, |o| number(&o["spec"]["replicas"]))
    };
    let expected = size("deployments") + size("statefulsets") + size("replicasets");
    match share(&spec["maxUnavailable"], expected) {
        Some(most) => (expected - most).max(0),
        None => share(&spec["minAvailable"], expected).unwrap_or(0),
    }
}

fn budget(truth: &Truth, budget: &Value, say: &mut impl FnMut(String)) {
    let status = &budget["status"];
    let (healthy, floor) = (healthy(truth, budget), floor(truth, budget));
    if number(&status["currentHealthy"]) != healthy || number(&status["desiredHealthy"]) != floor {
        say(format!("PodDisruptionBudget {} of {healthy} Pods, {floor} wanted, says {status}", name(budget)));
    }
    if status["observedGeneration"] != budget["metadata"]["generation"] {
        say(format!("PodDisruptionBudget {} says nothing of its last change", name(budget)));
    }
    if status["disruptedPods"].as_object().is_some_and(|all| !all.is_empty()) {
        say(format!("PodDisruptionBudget {} still waits for evicted Pods", name(budget)));
    }
}
