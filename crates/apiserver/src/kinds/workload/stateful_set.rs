//! StatefulSets.

use super::{HISTORY, REPLICAS, default_number, immutable, share, status_counts, template};
use crate::kinds::columns::{age, name};
use crate::kinds::fields::{child, default, is_unset, items, items_mut, set, take, text};
use crate::kinds::{Cause, Causes, Column, Cx, Hooks, Invalid, storage};
use serde_json::{Value, json};
use trine_objects::names;

/// The hooks of StatefulSets.
pub struct StatefulSets;

impl Hooks for StatefulSets {
    fn defaults(&self, obj: &mut Value) {
        let spec = child(obj, "spec");
        default(spec, "podManagementPolicy", "OrderedReady");
        let strategy = child(spec, "updateStrategy");
        if is_unset(&strategy["type"]) {
            set(strategy, "type", "RollingUpdate");
            child(strategy, "rollingUpdate");
        }
        if strategy["type"] == "RollingUpdate" && strategy["rollingUpdate"].is_object() {
            default_number(&mut strategy["rollingUpdate"], "partition", 0);
            default(&mut strategy["rollingUpdate"], "maxUnavailable", 1);
        }
        let retention = child(spec, "persistentVolumeClaimRetentionPolicy");
        default(retention, "whenDeleted", "Retain");
        default(retention, "whenScaled", "Retain");
        default_number(spec, "replicas", REPLICAS);
        default_number(spec, "revisionHistoryLimit", HISTORY);
        for claim in items_mut(spec, "volumeClaimTemplates") {
            set(claim, "apiVersion", "v1");
            set(claim, "kind", "PersistentVolumeClaim");
            storage::Claims.defaults(claim);
            default(claim, "status", json!({"phase": "Pending"}));
        }
        template::defaults(spec);
    }

    fn prepare_create(&self, obj: &mut Value, _cx: &mut Cx) -> Result<(), Invalid> {
        set(obj, "status", json!({"replicas": 0}));
        Ok(())
    }

    fn validate(&self, obj: &Value, old: Option<&Value>) -> Vec<Cause> {
        let spec = &obj["spec"];
        let mut causes = Causes::default();
        let management = text(spec, "podManagementPolicy");
        if !["OrderedReady", "Parallel"].contains(&management) {
            let detail = "must be 'OrderedReady' or 'Parallel'";
            causes.add(Cause::invalid("spec.podManagementPolicy", management, detail));
        }
        strategy(&spec["updateStrategy"], &mut causes);
        let path = "spec.persistentVolumeClaimRetentionPolicy";
        for when in ["whenDeleted", "whenScaled"] {
            causes.one_of(&spec["persistentVolumeClaimRetentionPolicy"], when, path, &["Delete", "Retain"]);
        }
        for field in ["replicas", "minReadySeconds", "revisionHistoryLimit"] {
            causes.not_negative(spec, field, "spec");
        }
        causes.not_negative(&spec["ordinals"], "start", "spec.ordinals");
        if old.is_none() && !is_unset(&spec["serviceName"]) {
            causes.name("spec.serviceName", text(spec, "serviceName"), names::dns1123_label);
        }
        template::check_selector(spec, "spec", "statefulset", &mut causes);
        template::check_lasting(&as_made(spec), "spec", "StatefulSet", &mut causes);
        let Some(old) = old else { return causes.0 };
        for field in ["selector", "volumeClaimTemplates", "serviceName", "podManagementPolicy"] {
            immutable(spec, &old["spec"], field, "spec", &mut causes);
        }
        if obj["status"] != old["status"] {
            let parts = ["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"];
            status_counts(&obj["status"], &parts, &mut causes);
        }
        causes.0
    }

    fn columns(&self) -> &'static [Column] {
        const {
            &[
                Column::NAME,
                Column::text("Ready"),
                Column::AGE,
                Column::text("Containers").wide(),
                Column::text("Images").wide(),
            ]
        }
    }

    fn row(&self, obj: &Value, now_unix: i64) -> Vec<Value> {
        let (ready, wished) = (&obj["status"]["readyReplicas"], &obj["spec"]["replicas"]);
        let [containers, images] = template::cells(&obj["spec"]["template"]);
        let shown = format!("{}/{}", ready.as_i64().unwrap_or(0), wished.as_i64().unwrap_or(0));
        vec![name(obj), shown.into(), age(obj, now_unix), containers, images]
    }
}

/// The spec with the volumes that each Pod will have from the templates of claims, without what each gets of its own.
fn as_made(spec: &Value) -> Value {
    let mut spec = spec.clone();
    let claims: Vec<String> = items(&spec, "volumeClaimTemplates")
        .iter()
        .map(|c| text(&c["metadata"], "name").to_owned())
        .collect();
    let pod = &mut spec["template"]["spec"];
    if !pod.is_object() {
        return spec;
    }
    take(pod, "hostname");
    take(pod, "subdomain");
    let kept = items(pod, "volumes").iter().filter(|v| !claims.iter().any(|c| v["name"] == **c)).cloned();
    let made = claims.iter().map(|c| json!({"name": c, "persistentVolumeClaim": {"claimName": c}}));
    let volumes: Vec<Value> = made.chain(kept).collect();
    set(pod, "volumes", volumes);
    spec
}

fn strategy(strategy: &Value, causes: &mut Causes) {
    let path = "spec.updateStrategy";
    let (rolling, rolling_path) = (&strategy["rollingUpdate"], "spec.updateStrategy.rollingUpdate");
    match text(strategy, "type") {
        "OnDelete" if !rolling.is_null() => {
            let detail = "only allowed for updateStrategy 'RollingUpdate'";
            causes.add(Cause::invalid(rolling_path, rolling.clone(), detail));
        }
        "OnDelete" => {}
        "RollingUpdate" => {
            causes.not_negative(rolling, "partition", rolling_path);
            share::check(rolling, "maxUnavailable", rolling_path, causes);
            if !rolling["maxUnavailable"].is_null() && share::amount(&rolling["maxUnavailable"]) == 0 {
                let value = rolling["maxUnavailable"].clone();
                causes.add(Cause::invalid(format!("{rolling_path}.maxUnavailable"), value, "cannot be 0"));
            }
            share::at_most_all(rolling, "maxUnavailable", rolling_path, causes);
        }
        "" => causes.add(Cause::required(path, "")),
        _ => {
            causes.add(Cause::invalid(path, strategy.clone(), "must be 'RollingUpdate' or 'OnDelete'"));
        }
    }
}
