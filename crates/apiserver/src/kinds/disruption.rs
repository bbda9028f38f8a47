//! PodDisruptionBudgets: how many Pods of a set may be missing at a time.

use super::columns::{age, name};
use super::fields::set;
use super::workload::{share, template};
use super::{Cause, Causes, Column, Cx, Hooks, Invalid};
use serde_json::{Value, json};

/// The hooks of PodDisruptionBudgets.
pub struct Budgets;

impl Hooks for Budgets {
    fn prepare_create(&self, obj: &mut Value, _cx: &mut Cx) -> Result<(), Invalid> {
        set(
            obj,
            "status",
            json!({"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}),
        );
        Ok(())
    }

    fn validate(&self, obj: &Value, old: Option<&Value>) -> Vec<Cause> {
        let spec = &obj["spec"];
        let mut causes = Causes::default();
        if !spec["minAvailable"].is_null() && !spec["maxUnavailable"].is_null() {
            let detail = "minAvailable and maxUnavailable cannot be both set";
            causes.add(Cause::invalid("spec", spec.clone(), detail));
        }
        for field in ["minAvailable", "maxUnavailable"] {
            share::check(spec, field, "spec", &mut causes);
            share::at_most_all(spec, field, "spec", &mut causes);
        }
        template::label_selector(&spec["selector"], "spec.selector", &mut causes);
        causes.one_of(spec, "unhealthyPodEvictionPolicy", "spec", &["AlwaysAllow", "IfHealthyBudget"]);
        if old.is_some() {
            for field in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
                causes.not_negative(&obj["status"], field, "status");
            }
        }
        causes.0
    }

    fn columns(&self) -> &'static [Column] {
        const {
            &[
                Column::NAME,
                Column::text("Min Available"),
                Column::text("Max Unavailable"),
                Column::integer("Allowed Disruptions"),
                Column::AGE,
            ]
        }
    }

    fn row(&self, obj: &Value, now_unix: i64) -> Vec<Value> {
        let shown = |field: &str| -> Value {
            match &obj["spec"][field] {
                Value::Null => "N/A".into(),
                value => share::shown(value).into(),
            }
        };
        let allowed = obj["status"]["disruptionsAllowed"].as_i64().unwrap_or(0);
        vec![name(obj), shown("minAvailable"), shown("maxUnavailable"), allowed.into(), age(obj, now_unix)]
    }
}
