//! ReplicaSets, and ReplicationControllers, which came before them.

use super::{REPLICAS, default_number, immutable, status_counts, template};
use crate::kinds::columns::{age, labels, name};
use crate::kinds::fields::{child, default, set};
use crate::kinds::hooks::metadata_fields;
use crate::kinds::metadata;
use crate::kinds::{Cause, Causes, Column, Cx, Hooks, Invalid};
use serde_json::{Map, Value, json};
use trine_objects::selector::label::LabelSelector;

const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::integer("Desired"),
    Column::integer("Current"),
    Column::integer("Ready"),
    Column::AGE,
    Column::text("Containers").wide(),
    Column::text("Images").wide(),
    Column::text("Selector").wide(),
];
/// What a status counts beside all.
const PARTS: [&str; 3] = ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"];

fn row(obj: &Value, now_unix: i64, selector: String) -> Vec<Value> {
    let (spec, status) = (&obj["spec"], &obj["status"]);
    let [containers, images] = template::cells(&spec["template"]);
    vec![
        name(obj),
        spec["replicas"].as_i64().unwrap_or(0).into(),
        status["replicas"].as_i64().unwrap_or(0).into(),
        status["readyReplicas"].as_i64().unwrap_or(0).into(),
        age(obj, now_unix),
        containers,
        images,
        selector.into(),
    ]
}

fn fields(obj: &Value) -> Vec<(String, String)> {
    let mut fields = metadata_fields(obj);
    let replicas = obj["status"]["replicas"].as_i64().unwrap_or(0);
    fields.push(("status.replicas".to_owned(), replicas.to_string()));
    fields
}

fn counts(obj: &Value, old: &Value, causes: &mut Causes) {
    if obj["status"] != old["status"] {
        status_counts(&obj["status"], &PARTS, causes);
    }
}

/// The hooks of ReplicaSets.
pub struct ReplicaSets;

impl Hooks for ReplicaSets {
    fn defaults(&self, obj: &mut Value) {
        let spec = child(obj, "spec");
        default_number(spec, "replicas", REPLICAS);
        template::defaults(spec);
    }

    fn prepare_create(&self, obj: &mut Value, _cx: &mut Cx) -> Result<(), Invalid> {
        set(obj, "status", json!({"replicas": 0}));
        Ok(())
    }

    fn validate(&self, obj: &Value, old: Option<&Value>) -> Vec<Cause> {
        let spec = &obj["spec"];
        let mut causes = Causes::default();
        causes.not_negative(spec, "replicas", "spec");
        causes.not_negative(spec, "minReadySeconds", "spec");
        // The word is upstream's.
        template::check_selector(spec, "spec", "deployment", &mut causes);
        template::check_lasting(spec, "spec", "ReplicaSet", &mut causes);
        if let Some(old) = old {
            immutable(spec, &old["spec"], "selector", "spec", &mut causes);
            counts(obj, old, &mut causes);
        }
        causes.0
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, obj: &Value, now_unix: i64) -> Vec<Value> {
        row(obj, now_unix, template::selector_text(&obj["spec"]["selector"]))
    }

    fn fields(&self, obj: &Value) -> Vec<(String, String)> {
        fields(obj)
    }
}

/// The hooks of ReplicationControllers.
pub struct ReplicationControllers;

impl Hooks for ReplicationControllers {
    fn defaults(&self, obj: &mut Value) {
        let labels = obj["spec"]["template"]["metadata"]["labels"].clone();
        let spec = child(obj, "spec");
        if labels.as_object().is_some_and(|l| !l.is_empty()) {
            if spec["selector"].as_object().is_none_or(Map::is_empty) {
                set(spec, "selector", labels.clone());
            }
            let metadata = child(obj, "metadata");
            if metadata["labels"].as_object().is_none_or(Map::is_empty) {
                set(metadata, "labels", labels);
            }
        }
        let spec = child(obj, "spec");
        default_number(spec, "replicas", REPLICAS);
        default_number(spec, "minReadySeconds", 0);
        if spec["minReadySeconds"] == 0 {
            crate::kinds::fields::take(spec, "minReadySeconds");
        }
        default(spec, "selector", json!({}));
        template::defaults(spec);
    }

    fn prepare_create(&self, obj: &mut Value, _cx: &mut Cx) -> Result<(), Invalid> {
        set(obj, "status", json!({"replicas": 0}));
        Ok(())
    }

    fn validate(&self, obj: &Value, old: Option<&Value>) -> Vec<Cause> {
        let spec = &obj["spec"];
        let mut causes = Causes::default();
        causes.not_negative(spec, "minReadySeconds", "spec");
        causes.not_negative(spec, "replicas", "spec");
        causes.extend(metadata::labels(spec, "selector", "spec.selector"));
        match spec["selector"].as_object().filter(|s| !s.is_empty()) {
            None => causes.add(Cause::required("spec.selector", "")),
            Some(selector) => {
                let labels = &spec["template"]["metadata"]["labels"];
                if spec["template"].is_object() && !LabelSelector::from_map(selector).matches(labels) {
                    let detail = "`selector` does not match template `labels`";
                    causes.add(Cause::invalid("spec.template.metadata.labels", labels.clone(), detail));
                }
            }
        }
        if spec["template"].is_object() {
            template::check_lasting(spec, "spec", "ReplicationController", &mut causes);
        } else {
            causes.add(Cause::required("spec.template", ""));
        }
        if let Some(old) = old {
            counts(obj, old, &mut causes);
        }
        causes.0
    }

    fn orphans_by_default(&self) -> bool {
        true
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, obj: &Value, now_unix: i64) -> Vec<Value> {
        row(obj, now_unix, labels(&obj["spec"]["selector"]))
    }

    fn fields(&self, obj: &Value) -> Vec<(String, String)> {
        fields(obj)
    }
}
