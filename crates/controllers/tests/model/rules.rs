//! What has to be true at every write, whatever goes wrong.

use serde_json::Value;
use tokio::time::Instant;
use trine_objects::conditions;

use crate::truth::{Truth, is_active, is_going, is_over, is_ready, name, owner, text, uid};

const KINDS: [&str; 8] = [
    "/core/pods/",
    "/core/nodes/",
    "/apps/replicasets/",
    "/apps/deployments/",
    "/apps/statefulsets/",
    "/apps/daemonsets/",
    "/batch/jobs/",
    "/policy/poddisruptionbudgets/",
];
/// The finalizer of Pods whose end is to be counted.
const TRACKED: &str = "batch.kubernetes.io/job-tracking";
/// Where a Pod of an indexed Job has its index.
const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// Whether a Pod's end is yet to be counted.
pub fn is_tracked(pod: &Value) -> bool {
    pod["metadata"]["finalizers"].as_array().is_some_and(|all| all.iter().any(|f| f == TRACKED))
}

/// Whether a Job has come to its end.
pub fn has_concluded(job: &Value) -> bool {
    conditions::is_true(job, "Complete") || conditions::is_true(job, "Failed")
}

/// Whether the rules look at what this key holds.
pub fn concerns(key: &str) -> bool {
    KINDS.iter().any(|kind| key.starts_with(kind))
}

/// Judges a write.
pub fn judge(truth: &mut Truth, key: &str, old: Option<&Value>, new: Option<&Value>) {
    let now = Instant::now();
    if key.starts_with("/core/pods/") {
        pod(truth, key, old, new, now);
    } else if let Some(new) = new {
        note_limits(truth, key, new, now);
        if key.starts_with("/apps/replicasets/") {
            replica_set(truth, old, new, now);
        }
        if key.starts_with("/batch/jobs/") {
            job(truth, old, new);
        }
    }
}

fn limit(truth: &mut Truth, object: &Value, what: &'static str, now: Instant, number: i64) {
    truth.limits.entry((uid(object).to_owned(), what)).or_default().is(now, number);
}

fn most(truth: &Truth, uid: &str, what: &'static str, now: Instant) -> Option<i64> {
    truth.limits.get(&(uid.to_owned(), what))?.most(now)
}

/// A number or a percentage of a number, rounded up.
pub fn share(value: &Value, of: i64) -> Option<i64> {
    match value.as_str() {
        Some(text) => {
            let percent: i64 = text.strip_suffix('%')?.parse().ok()?;
            Some((percent * of + 99) / 100)
        }
        None => value.as_i64(),
    }
}

fn note_limits(truth: &mut Truth, key: &str, object: &Value, now: Instant) {
    let spec = &object["spec"];
    let number = |key: &str| spec[key].as_i64();
    if key.starts_with("/apps/replicasets/") {
        limit(truth, object, "replicas", now, number("replicas").unwrap_or(1));
    } else if key.starts_with("/apps/deployments/") {
        let replicas = number("replicas").unwrap_or(1);
        let surge = share(&spec["strategy"]["rollingUpdate"]["maxSurge"], replicas).unwrap_or(0);
        limit(truth, object, "size", now, replicas + surge);
        // One that is paused is resized as it is, old Pods or not; so does upstream.
        let rolling = spec["strategy"]["type"] != "Recreate" || spec["paused"] == true;
        limit(truth, object, "rolling", now, i64::from(rolling));
    } else if key.starts_with("/apps/statefulsets/") {
        let start = spec["ordinals"]["start"].as_i64().unwrap_or(0);
        limit(truth, object, "end", now, start + number("replicas").unwrap_or(1));
        limit(truth, object, "parallel", now, i64::from(spec["podManagementPolicy"] == "Parallel"));
    } else if key.starts_with("/apps/daemonsets/") {
        let surge = share(&spec["updateStrategy"]["rollingUpdate"]["maxSurge"], 100).unwrap_or(0);
        limit(truth, object, "surge", now, i64::from(surge > 0));
    } else if key.starts_with("/batch/jobs/") {
        limit(truth, object, "parallelism", now, number("parallelism").unwrap_or(1));
        limit(truth, object, "completions", now, number("completions").unwrap_or(i64::MAX / 2));
    }
}

fn pod(truth: &mut Truth, key: &str, old: Option<&Value>, new: Option<&Value>, now: Instant) {
    if old.is_some_and(is_ready) || new.is_some_and(is_ready) {
        truth.ready.insert(key.to_owned(), now);
    }
    if let Some(new) = new {
        note_end(truth, new);
        if old.is_none_or(|old| uid(old) != uid(new)) {
            made(truth, new, now);
        }
    }
    if truth.floors.is_some() {
        budgets(truth, key);
    }
}

/// A Pod of a Job has ended, and that is to be counted.
fn note_end(truth: &mut Truth, pod: &Value) {
    let Some(owner) = owner(pod).filter(|o| o["kind"] == "Job") else { return };
    if !is_tracked(pod) {
        return;
    }
    let ends = truth.ends.entry(text(&owner["uid"]).to_owned()).or_default();
    let (uid, index) = (uid(pod).to_owned(), index(pod));
    match text(&pod["status"]["phase"]) {
        "Succeeded" if ends.failed.contains_key(&uid) => drop(ends.either.insert(uid, index)),
        "Succeeded" => drop(ends.succeeded.insert(uid, index)),
        "Failed" => drop(ends.failed.insert(uid, index)),
        _ if is_going(pod) && !ends.succeeded.contains_key(&uid) => drop(ends.failed.insert(uid, index)),
        _ => {}
    }
}

/// The index of a Pod of a Job.
pub fn index(pod: &Value) -> Option<i64> {
    pod["metadata"]["annotations"][INDEX].as_str()?.parse().ok()
}

/// A Pod was made: there must be no more than its controller may have.
fn made(truth: &mut Truth, pod: &Value, now: Instant) {
    let Some(owner) = owner(pod) else { return };
    let uid = text(&owner["uid"]).to_owned();
    let complaint = match text(&owner["kind"]) {
        "ReplicaSet" => more_than_replicas(truth, &uid, now),
        "StatefulSet" => out_of_order(truth, pod, &uid, now),
        "DaemonSet" => two_on_a_node(truth, pod, &uid, now),
        "Job" => more_than_parallel(truth, pod, &uid, now),
        _ => None,
    };
    if let Some(complaint) = complaint {
        truth.broke(format!("{}: {complaint}", name(pod)));
    }
}

fn more_than_replicas(truth: &Truth, set: &str, now: Instant) -> Option<String> {
    let allowed = most(truth, set, "replicas", now)?;
    let pods = truth.pods_of(set);
    let active = pods.iter().filter(|pod| is_active(pod)).count();
    if i64::try_from(active).ok()? > allowed {
        return Some(format!("is one of {active} Pods of a ReplicaSet that wants {allowed}"));
    }
    // All at once: nothing of the old template may run.
    let set = truth.all("/apps/replicasets/").find(|s| uid(s) == set)?;
    let deployment = text(&owner(set)?["uid"]);
    if most(truth, deployment, "rolling", now)? != 0 {
        return None;
    }
    let others = truth.all("/apps/replicasets/").filter(|s| uid(s) != uid(set));
    let siblings = others.filter(|s| owner(s).is_some_and(|o| o["uid"] == *deployment));
    let old = siblings.flat_map(|s| truth.pods_of(uid(s))).find(|pod| !is_over(pod))?;
    Some(format!("was made while {} of the old template is there", name(&old)))
}

fn out_of_order(truth: &Truth, pod: &Value, set: &str, now: Instant) -> Option<String> {
    let end = most(truth, set, "end", now)?;
    let (base, ordinal) = name(pod).rsplit_once('-')?;
    let ordinal: i64 = ordinal.parse().ok()?;
    if ordinal >= end {
        return Some(format!("has an ordinal beyond {end}"));
    }
    let set = truth.all("/apps/statefulsets/").find(|s| uid(s) == set)?;
    if most(truth, uid(set), "parallel", now)? != 0 {
        return None;
    }
    let start = set["spec"]["ordinals"]["start"].as_i64().unwrap_or(0);
    (start..ordinal).find_map(|lower| {
        let key = format!("/core/pods/{}/{base}-{lower}", text(&pod["metadata"]["namespace"]));
        let ready = truth.get(&key).is_some_and(|pod| is_ready(pod));
        let was = truth.ready.get(&key).is_some_and(|at| *at + crate::truth::BEHIND >= now);
        (!ready && !was).then(|| format!("was made before {base}-{lower} was ready"))
    })
}

/// The node that a Pod of a DaemonSet is for.
pub fn node_of(pod: &Value) -> Option<&str> {
    let terms = &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
    pod["spec"]["nodeName"].as_str().or_else(|| terms[0]["matchFields"][0]["values"][0].as_str())
}

fn two_on_a_node(truth: &Truth, pod: &Value, set: &str, now: Instant) -> Option<String> {
    let surge = most(truth, set, "surge", now)? != 0;
    let node = node_of(pod);
    let pods = truth.pods_of(set);
    let others = pods.iter().filter(|p| uid(p) != uid(pod) && node_of(p) == node && !is_over(p));
    let others: Vec<&str> = others.filter(|p| !surge || !is_going(p)).map(|p| name(p)).collect();
    let allowed = usize::from(surge);
    (others.len() > allowed).then(|| format!("is made on {node:?} beside {}", others.join(", ")))
}

fn more_than_parallel(truth: &Truth, pod: &Value, job: &str, now: Instant) -> Option<String> {
    let allowed = most(truth, job, "parallelism", now)?;
    let pods = truth.pods_of(job);
    let active: Vec<_> = pods.iter().filter(|pod| is_active(pod)).collect();
    let count = i64::try_from(active.len()).ok()?;
    if count > allowed {
        return Some(format!("is one of {count} Pods of a Job that wants {allowed} at a time"));
    }
    let none = crate::truth::Ends::default();
    let ends = truth.ends.get(job).unwrap_or(&none);
    let Some(index) = index(pod) else {
        let done = i64::try_from(ends.succeeded.len()).ok()?;
        let wanted = most(truth, job, "completions", now)?;
        return (done + count > wanted)
            .then(|| format!("is one of {count} while {done} of {wanted} have succeeded"));
    };
    if let Some(other) = active.iter().find(|p| uid(p) != uid(pod) && self::index(p) == Some(index)) {
        return Some(format!("has the index {index} of {}", name(other)));
    }
    ends.succeeded
        .values()
        .any(|done| *done == Some(index))
        .then(|| format!("has the index {index}, which has succeeded"))
}

/// The sizes of a Deployment's ReplicaSets must not grow beyond what it may have.
fn replica_set(truth: &mut Truth, old: Option<&Value>, new: &Value, now: Instant) {
    let size = |set: &Value| set["spec"]["replicas"].as_i64().unwrap_or(0);
    let Some(owner_uid) = owner(new).map(|o| text(&o["uid"]).to_owned()) else { return };
    if size(new) <= old.map_or(0, size) {
        return;
    }
    let Some(allowed) = most(truth, &owner_uid, "size", now) else { return };
    let of_it = truth.all("/apps/replicasets/").filter(|s| owner(s).is_some_and(|o| o["uid"] == *owner_uid));
    let sum: i64 = of_it.map(|set| size(set)).sum();
    if sum > allowed {
        truth.broke(format!("{} grew to {}: {sum} in all, {allowed} allowed", name(new), size(new)));
    }
}

/// The ends of a Job's Pods are counted once each.
fn job(truth: &mut Truth, old: Option<&Value>, new: &Value) {
    let number = |job: &Value, key: &str| job["status"][key].as_i64().unwrap_or(0);
    let none = crate::truth::Ends::default();
    let mut complaints = Vec::new();
    {
        let ends = truth.ends.get(uid(new)).unwrap_or(&none);
        let indexed = new["spec"]["completionMode"] == "Indexed";
        let (good, bad) = (number(new, "succeeded"), number(new, "failed"));
        // For certain, and at most.
        let count = |all: &[&std::collections::BTreeMap<String, Option<i64>>]| {
            let all = all.iter().flat_map(|ends| ends.iter());
            let count = if indexed {
                all.filter_map(|(_, index)| *index).collect::<std::collections::BTreeSet<i64>>().len()
            } else {
                all.count()
            };
            i64::try_from(count).unwrap_or(i64::MAX)
        };
        let (least, most) = (count(&[&ends.succeeded]), count(&[&ends.succeeded, &ends.either]));
        let ended = i64::try_from(ends.succeeded.len() + ends.failed.len()).unwrap_or(i64::MAX);
        if good > most {
            complaints.push(format!("counts {good} successes, of which there were {most}"));
        }
        if bad > i64::try_from(ends.failed.len()).unwrap_or(i64::MAX) {
            complaints.push(format!("counts {bad} failures, of which there were {}", ends.failed.len()));
        }
        if good + bad > ended {
            complaints.push(format!("counts {good} successes and {bad} failures of {ended} Pods"));
        }
        // One that goes and leaves its Pods behind counts no more of them.
        let ends_now = has_concluded(new) && !is_going(new) && old.is_none_or(|old| !has_concluded(old));
        if ends_now && !(least..=most).contains(&good) {
            complaints.push(format!("is over with {good} successes, of which there were {least} to {most}"));
        }
    }
    if let Some(old) = old.filter(|old| uid(old) == uid(new)) {
        for key in ["succeeded", "failed"] {
            let elastic = new["spec"]["completions"] != old["spec"]["completions"];
            if number(new, key) < number(old, key) && !elastic {
                complaints.push(format!("had {key} {} and now {}", number(old, key), number(new, key)));
            }
        }
        if has_concluded(old) && !has_concluded(new) {
            complaints.push("was over, and is not any more".to_owned());
        }
    }
    for complaint in complaints {
        truth.broke(format!("{}: {complaint}", name(new)));
    }
}

/// While only evictions disturb, each budget keeps what it has to.
fn budgets(truth: &mut Truth, key: &str) {
    let mut complaints = Vec::new();
    for (budget, floor) in truth.floors.iter().flatten() {
        let Some(object) = truth.get(budget) else { continue };
        let healthy = healthy(truth, object);
        if healthy < *floor {
            complaints.push(format!("{budget} has {healthy} healthy Pods instead of {floor} after {key}"));
        }
    }
    for complaint in complaints {
        truth.broke(complaint);
    }
}

/// The Pods that a budget selects and that are healthy.
pub fn healthy(truth: &Truth, budget: &Value) -> i64 {
    let labels = budget["spec"]["selector"]["matchLabels"].as_object();
    let selects =
        |pod: &Value| labels.is_some_and(|all| all.iter().all(|(k, v)| pod["metadata"]["labels"][k] == *v));
    let count = truth.all("/core/pods/").filter(|p| selects(p) && is_ready(p) && is_active(p)).count();
    i64::try_from(count).unwrap_or(i64::MAX)
}
