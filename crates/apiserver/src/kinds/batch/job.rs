//! Jobs.

use super::job_policy;
use crate::kinds::columns::{age, name};
use crate::kinds::fields::{child, default, entries, items_mut, set, take, text};
use crate::kinds::hooks::metadata_fields;
use crate::kinds::workload::{default_number, immutable, template};
use crate::kinds::{Cause, Causes, Column, Cx, Hooks, Invalid};
use serde_json::{Map, Value, json};
use trine_objects::{conditions, names, time};

/// How often a Job's Pods may fail.
const BACKOFF_LIMIT: i64 = 6;
/// The most Pods at a time of a Job whose Pods have indexes.
const INDEXED_MAX: i64 = 100_000;
/// Completions above which a Job with a limit for each index has to be narrower.
const MANY: i64 = 100_000;
/// Pods at a time, and failed indexes, of such a Job.
const MANY_MAX: i64 = 10_000;
/// Labels that find a Job's Pods: each under its older name and its name.
const UID_LABELS: [&str; 2] = ["controller-uid", "batch.kubernetes.io/controller-uid"];
const NAME_LABELS: [&str; 2] = ["job-name", "batch.kubernetes.io/job-name"];

/// The hooks of Jobs.
pub struct Jobs;

fn spec_defaults(spec: &mut Value) {
    if spec["completions"].is_null() && spec["parallelism"].is_null() {
        set(spec, "completions", 1);
    }
    default_number(spec, "parallelism", 1);
    let per_index = !spec["backoffLimitPerIndex"].is_null();
    default_number(spec, "backoffLimit", if per_index { i64::from(i32::MAX) } else { BACKOFF_LIMIT });
    default(spec, "completionMode", "NonIndexed");
    default(spec, "suspend", false);
    let replaced = if spec["podFailurePolicy"].is_object() { "Failed" } else { "TerminatingOrFailed" };
    default(spec, "podReplacementPolicy", replaced);
    default(spec, "manualSelector", false);
    pod_defaults(spec);
}

/// What is filled in also in the template of a Job, which is no Job yet.
pub fn pod_defaults(spec: &mut Value) {
    if spec["podFailurePolicy"].is_object() {
        for rule in items_mut(&mut spec["podFailurePolicy"], "rules") {
            for pattern in items_mut(rule, "onPodConditions") {
                default(pattern, "status", "True");
            }
        }
    }
    template::defaults(spec);
}

impl Hooks for Jobs {
    fn defaults(&self, obj: &mut Value) {
        let labels = obj["spec"]["template"]["metadata"]["labels"].clone();
        if labels.is_object() && obj["metadata"]["labels"].as_object().is_none_or(Map::is_empty) {
            set(child(obj, "metadata"), "labels", labels);
        }
        spec_defaults(child(obj, "spec"));
    }

    fn prepare_create(&self, obj: &mut Value, _cx: &mut Cx) -> Result<(), Invalid> {
        set(obj, "status", json!({}));
        if obj["spec"]["manualSelector"] != true {
            select_own(obj);
        }
        Ok(())
    }

    fn validate(&self, obj: &Value, old: Option<&Value>) -> Vec<Cause> {
        let spec = &obj["spec"];
        let mut causes = Causes::default();
        if spec["manualSelector"] != true && old.is_none() {
            generated(obj, &mut causes);
        }
        check_spec(spec, "spec", &mut causes);
        if spec["selector"].is_null() {
            causes.add(Cause::required("spec.selector", ""));
        } else {
            template::label_selector(&spec["selector"], "spec.selector", &mut causes);
            template::selects_template(spec, "spec", &mut causes);
        }
        if let Some(old) = old {
            changed(spec, &old["spec"], &old["status"], &mut causes);
        }
        causes.0
    }

    fn orphans_by_default(&self) -> bool {
        true
    }

    fn columns(&self) -> &'static [Column] {
        const {
            &[
                Column::NAME,
                Column::text("Status"),
                Column::text("Completions"),
                Column::text("Duration"),
                Column::AGE,
                Column::text("Containers").wide(),
                Column::text("Images").wide(),
                Column::text("Selector").wide(),
            ]
        }
    }

    fn row(&self, obj: &Value, now_unix: i64) -> Vec<Value> {
        let (spec, status) = (&obj["spec"], &obj["status"]);
        let done = status["succeeded"].as_i64().unwrap_or(0);
        let completions = match (spec["completions"].as_i64(), spec["parallelism"].as_i64().unwrap_or(0)) {
            (Some(wanted), _) => format!("{done}/{wanted}"),
            (None, parallel) if parallel > 1 => format!("{done}/1 of {parallel}"),
            (None, _) => format!("{done}/1"),
        };
        let at = |key: &str| status[key].as_str().and_then(time::parse);
        let duration = at("startTime")
            .map(|start| time::human(at("completionTime").unwrap_or(now_unix) - start))
            .unwrap_or_default();
        let [containers, images] = template::cells(&spec["template"]);
        vec![
            name(obj),
            state(obj).into(),
            completions.into(),
            duration.into(),
            age(obj, now_unix),
            containers,
            images,
            template::selector_text(&spec["selector"]).into(),
        ]
    }

    fn fields(&self, obj: &Value) -> Vec<(String, String)> {
        let mut fields = metadata_fields(obj);
        let done = obj["status"]["succeeded"].as_i64().unwrap_or(0);
        fields.push(("status.successful".to_owned(), done.to_string()));
        fields
    }
}

fn state(job: &Value) -> &'static str {
    let leaving = !job["metadata"]["deletionTimestamp"].is_null();
    let is = |condition: &str| conditions::is_true(job, condition);
    match () {
        () if is("Complete") => "Complete",
        () if is("Failed") => "Failed",
        () if leaving => "Terminating",
        () if is("Suspended") => "Suspended",
        () if is("FailureTarget") => "FailureTarget",
        () if is("SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    }
}

/// Gives the template the labels of this Job alone, and a selector for them.
fn select_own(job: &mut Value) {
    let name = job["metadata"]["name"].clone();
    let uid = job["metadata"]["uid"].clone();
    let spec = child(job, "spec");
    let labels = child(child(child(spec, "template"), "metadata"), "labels");
    for (keys, value) in [(NAME_LABELS, &name), (UID_LABELS, &uid)] {
        for key in keys {
            if labels[key].is_null() {
                set(labels, key, value.clone());
            }
        }
    }
    let wanted = child(child(spec, "selector"), "matchLabels");
    if wanted[UID_LABELS[1]].is_null() {
        set(wanted, UID_LABELS[1], uid);
    }
}

/// The labels that [`select_own`] gives were not given otherwise.
fn generated(job: &Value, causes: &mut Causes) {
    let labels = &job["spec"]["template"]["metadata"]["labels"];
    for (keys, value) in [(UID_LABELS, &job["metadata"]["uid"]), (NAME_LABELS, &job["metadata"]["name"])] {
        for key in keys {
            let field = format!("spec.template.metadata.labels[{key}]");
            let detail = format!("must be '{}'", value.as_str().unwrap_or_default());
            if labels[key].is_null() {
                causes.add(Cause::required(field, &detail));
            } else if labels[key] != *value {
                causes.add(Cause::invalid(field, labels[key].clone(), &detail));
            }
        }
    }
    let selected = &job["spec"]["selector"];
    let only = entries(selected, "matchLabels").count() == 1
        && selected["matchExpressions"].as_array().is_none_or(Vec::is_empty)
        && UID_LABELS.iter().any(|k| selected["matchLabels"][*k] == job["metadata"]["uid"]);
    if !only {
        causes.add(Cause::invalid("spec.selector", selected.clone(), "`selector` not auto-generated"));
    }
}

/// What is wrong with the spec of a Job, or of the template of one.
pub fn check_spec(spec: &Value, path: &str, causes: &mut Causes) {
    let numbers = [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ];
    for number in numbers {
        causes.not_negative(spec, number, path);
    }
    if !spec["maxFailedIndexes"].is_null() && spec["backoffLimitPerIndex"].is_null() {
        let detail = "when maxFailedIndexes is specified";
        causes.add(Cause::required(format!("{path}.backoffLimitPerIndex"), detail));
    }
    if let Some(manager) = spec["managedBy"].as_str() {
        causes.name(&format!("{path}.managedBy"), manager, names::qualified_name);
    }
    causes.one_of(spec, "completionMode", path, &["NonIndexed", "Indexed"]);
    if spec["completionMode"] == "Indexed" {
        indexed(spec, path, causes);
    } else {
        for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
            if let Some(n) = spec[field].as_i64() {
                causes.add(Cause::invalid(format!("{path}.{field}"), n, "requires indexed completion mode"));
            }
        }
    }
    job_policy::failure(spec, path, causes);
    job_policy::success(spec, path, causes);
    let replaced = &spec["podReplacementPolicy"];
    if spec["podFailurePolicy"].is_object() && !replaced.is_null() && replaced != "Failed" {
        causes.add(Cause::not_supported(
            format!("{path}.podReplacementPolicy"),
            replaced.clone(),
            &["Failed"],
        ));
    } else {
        causes.one_of(spec, "podReplacementPolicy", path, &["Failed", "TerminatingOrFailed"]);
    }
    template::check(spec, path, causes);
    let field = format!("{path}.template.spec.restartPolicy");
    match text(&spec["template"]["spec"], "restartPolicy") {
        "" | "Always" => causes.add(Cause::required(field, "valid values: \"OnFailure\", \"Never\"")),
        "OnFailure" if spec["podFailurePolicy"].is_object() => {
            let detail = "only \"Never\" is supported when podFailurePolicy is specified";
            causes.add(Cause::invalid(field, "OnFailure", detail));
        }
        "OnFailure" | "Never" => {}
        other => causes.add(Cause::not_supported(field, other, &["OnFailure", "Never"])),
    }
}

fn indexed(spec: &Value, path: &str, causes: &mut Causes) {
    let number = |key: &str| spec[key].as_i64();
    let mut at_most = |key: &str, max: i64, detail: &str| {
        if let Some(n) = number(key).filter(|n| *n > max) {
            causes.add(Cause::invalid(format!("{path}.{key}"), n, detail));
        }
    };
    at_most(
        "parallelism",
        INDEXED_MAX,
        &format!("must be less than or equal to {INDEXED_MAX} when completion mode is Indexed"),
    );
    if let Some(completions) = number("completions") {
        at_most("maxFailedIndexes", completions, "must be less than or equal to completions");
    }
    at_most("maxFailedIndexes", INDEXED_MAX, &format!("must be less than or equal to {INDEXED_MAX}"));
    let many = number("completions").is_some_and(|n| n > MANY) && number("backoffLimitPerIndex").is_some();
    if many {
        let detail = format!(
            "must be less than or equal to {MANY_MAX} when completions are above {MANY} and used with backoff limit per index"
        );
        at_most("parallelism", MANY_MAX, &detail);
        at_most("maxFailedIndexes", MANY_MAX, &detail);
    }
    if many && number("maxFailedIndexes").is_none() {
        let detail = format!("must be specified when completions is above {MANY}");
        causes.add(Cause::required(format!("{path}.maxFailedIndexes"), &detail));
    }
    if number("completions").is_none() {
        causes.add(Cause::required(format!("{path}.completions"), "when completion mode is Indexed"));
    }
}

/// What may not change.
fn changed(new: &Value, old: &Value, status: &Value, causes: &mut Causes) {
    if new["completionMode"] == "Indexed" {
        if new["completions"] != old["completions"] && new["completions"] != new["parallelism"] {
            let detail = "can only be modified in tandem with spec.parallelism";
            causes.add(Cause::invalid("spec.completions", new["completions"].clone(), detail));
        }
    } else {
        immutable(new, old, "completions", "spec", causes);
    }
    for field in [
        "selector",
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
        "successPolicy",
    ] {
        immutable(new, old, field, "spec", causes);
    }
    let (mut after, mut before) = (new["template"].clone(), old["template"].clone());
    // Where its Pods may run is decided while there are none: before the first start, or when they are all gone.
    let none_runs = status["startTime"].is_null() || status["active"].as_i64().unwrap_or(0) == 0;
    if old["suspend"] == true && none_runs {
        open_directives(&mut after);
        open_directives(&mut before);
    }
    if after != before {
        causes.add(Cause::invalid("spec.template", new["template"].clone(), "field is immutable"));
    }
}

/// Takes out of a template what says where its Pods may run, and with how much.
fn open_directives(template: &mut Value) {
    let metadata = child(template, "metadata");
    take(metadata, "annotations");
    take(metadata, "labels");
    let pod = child(template, "spec");
    for field in ["nodeSelector", "tolerations", "schedulingGates"] {
        take(pod, field);
    }
    if pod["affinity"].is_object() {
        take(&mut pod["affinity"], "nodeAffinity");
    }
    if pod["affinity"].as_object().is_none_or(Map::is_empty) {
        take(pod, "affinity");
    }
    for list in ["containers", "initContainers"] {
        items_mut(pod, list).for_each(|c| drop(take(c, "resources")));
    }
}
