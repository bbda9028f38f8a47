//! CronJobs.

use super::job;
use crate::kinds::columns::{age, name, or_none};
use crate::kinds::fields::{child, default, items, set, text};
use crate::kinds::workload::{default_number, template};
use crate::kinds::{Cause, Causes, Column, Cx, Hooks, Invalid};
use serde_json::{Value, json};
use trine_objects::schedule::Schedule;
use trine_objects::{names, time};

/// The longest name: the Jobs' names add a time to it.
const NAME_MAX: usize = 52;

/// The hooks of CronJobs.
pub struct CronJobs;

impl Hooks for CronJobs {
    fn name(&self, name: &str) -> names::Checked {
        names::dns1123_subdomain(name)?;
        if name.len() > NAME_MAX {
            return Err(vec![format!("must be no more than {NAME_MAX} characters")]);
        }
        Ok(())
    }

    fn defaults(&self, obj: &mut Value) {
        let spec = child(obj, "spec");
        default(spec, "concurrencyPolicy", "Allow");
        default(spec, "suspend", false);
        default_number(spec, "successfulJobsHistoryLimit", 3);
        default_number(spec, "failedJobsHistoryLimit", 1);
        if spec["jobTemplate"]["spec"].is_object() {
            job::pod_defaults(&mut spec["jobTemplate"]["spec"]);
        }
    }

    fn prepare_create(&self, obj: &mut Value, _cx: &mut Cx) -> Result<(), Invalid> {
        set(obj, "status", json!({}));
        Ok(())
    }

    fn validate(&self, obj: &Value, old: Option<&Value>) -> Vec<Cause> {
        let spec = &obj["spec"];
        let mut causes = Causes::default();
        let line = text(spec, "schedule");
        if line.is_empty() {
            causes.add(Cause::required("spec.schedule", ""));
        } else if line.contains("TZ") && !old.is_some_and(|o| text(&o["spec"], "schedule").contains("TZ")) {
            let detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
            causes.add(Cause::invalid("spec.schedule", line, detail));
        } else if let Err(why) = Schedule::parse(line) {
            causes.add(Cause::invalid("spec.schedule", line, &why));
        }
        if old.is_none_or(|o| o["spec"]["timeZone"] != spec["timeZone"]) {
            time_zone(spec, &mut causes);
        }
        causes.one_of(spec, "concurrencyPolicy", "spec", &["Allow", "Forbid", "Replace"]);
        for field in ["startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
            causes.not_negative(spec, field, "spec");
        }
        let made = &spec["jobTemplate"]["spec"];
        job::check_spec(made, "spec.jobTemplate.spec", &mut causes);
        if made["manualSelector"] == true {
            let field = "spec.jobTemplate.spec.manualSelector";
            causes.add(Cause::not_supported(field, true, &["nil", "false"]));
        }
        causes.0
    }

    fn columns(&self) -> &'static [Column] {
        const {
            &[
                Column::NAME,
                Column::text("Schedule"),
                Column::text("Timezone"),
                Column { type_: "boolean", ..Column::text("Suspend") },
                Column::integer("Active"),
                Column::text("Last Schedule"),
                Column::AGE,
                Column::text("Containers").wide(),
                Column::text("Images").wide(),
                Column::text("Selector").wide(),
            ]
        }
    }

    fn row(&self, obj: &Value, now_unix: i64) -> Vec<Value> {
        let (spec, status) = (&obj["spec"], &obj["status"]);
        let last = status["lastScheduleTime"].as_str().and_then(time::parse);
        let [containers, images] = template::cells(&spec["jobTemplate"]["spec"]["template"]);
        let suspend = spec["suspend"].as_bool().map_or("<unset>", |s| if s { "True" } else { "False" });
        vec![
            name(obj),
            text(spec, "schedule").into(),
            or_none(text(spec, "timeZone")),
            suspend.into(),
            items(status, "active").len().into(),
            or_none(&last.map(|t| time::human(now_unix - t)).unwrap_or_default()),
            age(obj, now_unix),
            containers,
            images,
            template::selector_text(&spec["jobTemplate"]["spec"]["selector"]).into(),
        ]
    }
}

fn time_zone(spec: &Value, causes: &mut Causes) {
    let Some(zone) = spec["timeZone"].as_str() else { return };
    let field = "spec.timeZone";
    let odd = |part: &str| {
        let strange = |c: char| !c.is_ascii_alphanumeric() && !"._+-".contains(c);
        matches!(part, "" | "." | "..") || part.starts_with('-') || part.contains(strange)
    };
    if zone.is_empty() {
        causes.add(Cause::invalid(field, zone, "timeZone must be nil or non-empty string"));
    } else if zone.split('/').any(odd) {
        causes.add(Cause::invalid(field, zone, &format!("unknown time zone {zone}")));
    } else if zone.eq_ignore_ascii_case("local") {
        let detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        causes.add(Cause::invalid(field, zone, detail));
    } else if jiff::tz::TimeZone::get(zone).is_err() {
        causes.add(Cause::invalid(field, zone, &format!("unknown time zone {zone}")));
    }
}
