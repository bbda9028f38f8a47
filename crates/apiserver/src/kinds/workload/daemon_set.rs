//! DaemonSets.

use super::{HISTORY, default_number, immutable, share, template};
use crate::kinds::columns::{age, labels, name};
use crate::kinds::fields::{child, default, set, text};
use crate::kinds::{Cause, Causes, Column, Cx, Hooks, Invalid};
use serde_json::{Value, json};

/// What a status counts.
const COUNTS: [&str; 4] =
    ["currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady"];

/// The hooks of DaemonSets.
pub struct DaemonSets;

impl Hooks for DaemonSets {
    fn defaults(&self, obj: &mut Value) {
        let spec = child(obj, "spec");
        let strategy = child(spec, "updateStrategy");
        default(strategy, "type", "RollingUpdate");
        if strategy["type"] == "RollingUpdate" {
            let rolling = child(strategy, "rollingUpdate");
            default(rolling, "maxUnavailable", 1);
            default(rolling, "maxSurge", 0);
        }
        default_number(spec, "revisionHistoryLimit", HISTORY);
        template::defaults(spec);
    }

    fn prepare_create(&self, obj: &mut Value, _cx: &mut Cx) -> Result<(), Invalid> {
        let zeros = COUNTS.into_iter().map(|c| (c.to_owned(), json!(0))).collect();
        set(obj, "status", Value::Object(zeros));
        Ok(())
    }

    fn validate(&self, obj: &Value, old: Option<&Value>) -> Vec<Cause> {
        let spec = &obj["spec"];
        let mut causes = Causes::default();
        template::check_selector(spec, "spec", "daemonset", &mut causes);
        template::check_lasting(spec, "spec", "DaemonSet", &mut causes);
        causes.not_negative(spec, "minReadySeconds", "spec");
        causes.not_negative(spec, "revisionHistoryLimit", "spec");
        strategy(&spec["updateStrategy"], &mut causes);
        if let Some(old) = old {
            immutable(spec, &old["spec"], "selector", "spec", &mut causes);
            let more =
                ["observedGeneration", "updatedNumberScheduled", "numberAvailable", "numberUnavailable"];
            for count in COUNTS.into_iter().chain(more) {
                causes.not_negative(&obj["status"], count, "status");
            }
        }
        causes.0
    }

    fn columns(&self) -> &'static [Column] {
        const {
            &[
                Column::NAME,
                Column::integer("Desired"),
                Column::integer("Current"),
                Column::integer("Ready"),
                Column::integer("Up-to-date"),
                Column::integer("Available"),
                Column::text("Node Selector"),
                Column::AGE,
                Column::text("Containers").wide(),
                Column::text("Images").wide(),
                Column::text("Selector").wide(),
            ]
        }
    }

    fn row(&self, obj: &Value, now_unix: i64) -> Vec<Value> {
        let spec = &obj["spec"];
        let count = |key: &str| -> Value { obj["status"][key].as_i64().unwrap_or(0).into() };
        let [containers, images] = template::cells(&spec["template"]);
        vec![
            name(obj),
            count("desiredNumberScheduled"),
            count("currentNumberScheduled"),
            count("numberReady"),
            count("updatedNumberScheduled"),
            count("numberAvailable"),
            labels(&spec["template"]["spec"]["nodeSelector"]).into(),
            age(obj, now_unix),
            containers,
            images,
            template::selector_text(&spec["selector"]).into(),
        ]
    }
}

fn strategy(strategy: &Value, causes: &mut Causes) {
    let (rolling, path) = (&strategy["rollingUpdate"], "spec.updateStrategy.rollingUpdate");
    match text(strategy, "type") {
        "OnDelete" => {}
        "RollingUpdate" => {
            for field in ["maxUnavailable", "maxSurge"] {
                share::check(rolling, field, path, causes);
                share::at_most_all(rolling, field, path, causes);
            }
            let unavailable = share::amount(&rolling["maxUnavailable"]) != 0;
            let surge = share::amount(&rolling["maxSurge"]) != 0;
            if unavailable && surge {
                let detail = "may not be set when maxUnavailable is non-zero";
                causes.add(Cause::invalid(format!("{path}.maxSurge"), rolling["maxSurge"].clone(), detail));
            } else if !unavailable && !surge {
                let detail = "cannot be 0 when maxSurge is 0";
                causes.add(Cause::required(format!("{path}.maxUnavailable"), detail));
            }
        }
        other => causes.add(Cause::not_supported(
            "spec.updateStrategy.type",
            other,
            &["RollingUpdate", "OnDelete"],
        )),
    }
}
