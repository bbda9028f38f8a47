//! Deployments.

use super::{HISTORY, REPLICAS, default_number, immutable, share, status_counts, template};
use crate::kinds::columns::{age, name};
use crate::kinds::fields::{child, default, set, text};
use crate::kinds::{Cause, Causes, Column, Cx, Hooks, Invalid};
use serde_json::{Value, json};

/// Seconds without progress after which a rollout counts as failed.
const PROGRESS_DEADLINE: i64 = 600;

/// The hooks of Deployments.
pub struct Deployments;

impl Hooks for Deployments {
    fn defaults(&self, obj: &mut Value) {
        let spec = child(obj, "spec");
        default_number(spec, "replicas", REPLICAS);
        let strategy = child(spec, "strategy");
        default(strategy, "type", "RollingUpdate");
        if strategy["type"] == "RollingUpdate" {
            let rolling = child(strategy, "rollingUpdate");
            default(rolling, "maxUnavailable", "25%");
            default(rolling, "maxSurge", "25%");
        }
        default_number(spec, "revisionHistoryLimit", HISTORY);
        default_number(spec, "progressDeadlineSeconds", PROGRESS_DEADLINE);
        template::defaults(spec);
    }

    fn prepare_create(&self, obj: &mut Value, _cx: &mut Cx) -> Result<(), Invalid> {
        set(obj, "status", json!({}));
        Ok(())
    }

    fn validate(&self, obj: &Value, old: Option<&Value>) -> Vec<Cause> {
        let spec = &obj["spec"];
        let mut causes = Causes::default();
        causes.not_negative(spec, "replicas", "spec");
        template::check_selector(spec, "spec", "deployment", &mut causes);
        template::check_lasting(spec, "spec", "ReplicaSet", &mut causes);
        strategy(&spec["strategy"], &mut causes);
        for field in ["minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"] {
            causes.not_negative(spec, field, "spec");
        }
        if let Some(deadline) = spec["progressDeadlineSeconds"].as_i64()
            && deadline <= spec["minReadySeconds"].as_i64().unwrap_or(0)
        {
            let detail = "must be greater than minReadySeconds";
            causes.add(Cause::invalid("spec.progressDeadlineSeconds", deadline, detail));
        }
        if let Some(old) = old {
            immutable(spec, &old["spec"], "selector", "spec", &mut causes);
            if obj["status"] != old["status"] {
                let parts = ["updatedReplicas", "readyReplicas", "availableReplicas"];
                status_counts(&obj["status"], &parts, &mut causes);
            }
        }
        causes.0
    }

    fn columns(&self) -> &'static [Column] {
        const {
            &[
                Column::NAME,
                Column::text("Ready"),
                Column::text("Up-to-date"),
                Column::text("Available"),
                Column::AGE,
                Column::text("Containers").wide(),
                Column::text("Images").wide(),
                Column::text("Selector").wide(),
            ]
        }
    }

    fn row(&self, obj: &Value, now_unix: i64) -> Vec<Value> {
        let (spec, status) = (&obj["spec"], &obj["status"]);
        let count = |key: &str| status[key].as_i64().unwrap_or(0);
        let [containers, images] = template::cells(&spec["template"]);
        vec![
            name(obj),
            format!("{}/{}", count("readyReplicas"), spec["replicas"].as_i64().unwrap_or(0)).into(),
            count("updatedReplicas").into(),
            count("availableReplicas").into(),
            age(obj, now_unix),
            containers,
            images,
            template::selector_text(&spec["selector"]).into(),
        ]
    }
}

fn strategy(strategy: &Value, causes: &mut Causes) {
    let (rolling, path) = (&strategy["rollingUpdate"], "spec.strategy.rollingUpdate");
    match text(strategy, "type") {
        "Recreate" if !rolling.is_null() => {
            causes.add(Cause::forbidden(path, "may not be specified when strategy `type` is 'Recreate'"));
        }
        "Recreate" => {}
        "RollingUpdate" => {
            share::check(rolling, "maxUnavailable", path, causes);
            share::check(rolling, "maxSurge", path, causes);
            if share::amount(&rolling["maxUnavailable"]) == 0 && share::amount(&rolling["maxSurge"]) == 0 {
                let value = rolling["maxUnavailable"].clone();
                let detail = "may not be 0 when `maxSurge` is 0";
                causes.add(Cause::invalid(format!("{path}.maxUnavailable"), value, detail));
            }
            share::at_most_all(rolling, "maxUnavailable", path, causes);
        }
        _ => causes.add(Cause::not_supported(
            "spec.strategy",
            strategy.clone(),
            &["Recreate", "RollingUpdate"],
        )),
    }
}
