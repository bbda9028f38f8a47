//! HorizontalPodAutoscalers, stored as `autoscaling/v2`.

use super::columns::{age, name};
use super::fields::{child, items, set, text};
use super::workload::default_number;
use super::workload::share::shown;
use super::{Cause, Causes, Column, Cx, Hooks, Invalid};
use serde_json::{Value, json};

/// The utilization of CPU that is aimed at unless it is said, percent.
const CPU_PERCENT: i64 = 80;
/// How many metrics a row shows.
const SHOWN: usize = 2;

/// The hooks of HorizontalPodAutoscalers.
pub struct Autoscalers;

impl Hooks for Autoscalers {
    fn defaults(&self, obj: &mut Value) {
        let spec = child(obj, "spec");
        default_number(spec, "minReplicas", 1);
        if items(spec, "metrics").is_empty() {
            set(
                spec,
                "metrics",
                json!([{"type": "Resource", "resource": {"name": "cpu",
                    "target": {"type": "Utilization", "averageUtilization": CPU_PERCENT}}}]),
            );
        }
        if spec["behavior"].is_object() {
            let percent = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
            let up = child(&mut spec["behavior"], "scaleUp");
            default_number(up, "stabilizationWindowSeconds", 0);
            let pods = json!({"type": "Pods", "value": 4, "periodSeconds": 15});
            rules(up, json!([pods, percent]));
            rules(child(&mut spec["behavior"], "scaleDown"), json!([percent]));
        }
    }

    fn prepare_create(&self, obj: &mut Value, _cx: &mut Cx) -> Result<(), Invalid> {
        set(obj, "status", json!({"currentMetrics": null, "desiredReplicas": 0}));
        Ok(())
    }

    fn validate(&self, obj: &Value, _old: Option<&Value>) -> Vec<Cause> {
        let spec = &obj["spec"];
        let mut causes = Causes::default();
        let (min, max) = (spec["minReplicas"].as_i64(), spec["maxReplicas"].as_i64().unwrap_or(0));
        if let Some(min) = min.filter(|min| *min < 1) {
            causes.add(Cause::invalid("spec.minReplicas", min, "must be greater than or equal to 1"));
        }
        if max < 1 {
            causes.add(Cause::invalid("spec.maxReplicas", max, "must be greater than 0"));
        }
        if min.is_some_and(|min| max < min) {
            let detail = "must be greater than or equal to `minReplicas`";
            causes.add(Cause::invalid("spec.maxReplicas", max, detail));
        }
        for field in ["kind", "name"] {
            causes.needed(&spec["scaleTargetRef"], field, "spec.scaleTargetRef");
        }
        for (i, metric) in items(spec, "metrics").iter().enumerate() {
            self::metric(metric, &format!("spec.metrics[{i}]"), &mut causes);
        }
        for direction in ["scaleUp", "scaleDown"] {
            behaviour(&spec["behavior"][direction], &format!("spec.behavior.{direction}"), &mut causes);
        }
        causes.0
    }

    fn columns(&self) -> &'static [Column] {
        const {
            &[
                Column::NAME,
                Column::text("Reference"),
                Column::text("Targets"),
                Column::text("MinPods"),
                Column::text("MaxPods"),
                Column::text("Replicas"),
                Column::AGE,
            ]
        }
    }

    fn row(&self, obj: &Value, now_unix: i64) -> Vec<Value> {
        let (spec, status) = (&obj["spec"], &obj["status"]);
        let target = &spec["scaleTargetRef"];
        let min = spec["minReplicas"].as_i64().map_or_else(|| "<unset>".to_owned(), |n| n.to_string());
        vec![
            name(obj),
            format!("{}/{}", text(target, "kind"), text(target, "name")).into(),
            metrics(items(spec, "metrics"), items(status, "currentMetrics")).into(),
            min.into(),
            spec["maxReplicas"].as_i64().unwrap_or(0).into(),
            status["currentReplicas"].as_i64().unwrap_or(0).into(),
            age(obj, now_unix),
        ]
    }
}

fn rules(rules: &mut Value, policies: Value) {
    super::fields::default(rules, "selectPolicy", "Max");
    super::fields::default(rules, "policies", policies);
}

/// The field that holds a metric's source, by its type.
pub fn source(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        "Pods" => "pods",
        "Object" => "object",
        "External" => "external",
        _ => return None,
    })
}

fn metric(metric: &Value, path: &str, causes: &mut Causes) {
    let kind = text(metric, "type");
    let Some(key) = source(kind) else {
        let known = ["ContainerResource", "External", "Object", "Pods", "Resource"];
        return causes.add(Cause::not_supported(format!("{path}.type"), kind, &known));
    };
    if !metric[key].is_object() {
        let detail = "must populate information for the given metric source";
        return causes.add(Cause::required(format!("{path}.{key}"), detail));
    }
    let (source, path) = (&metric[key], format!("{path}.{key}"));
    if key.ends_with("esource") {
        causes.needed(source, "name", &path);
    } else {
        causes.needed(&source["metric"], "name", &format!("{path}.metric"));
    }
    let (target, path) = (&source["target"], format!("{path}.target"));
    causes.one_of(target, "type", &path, &["AverageValue", "Utilization", "Value"]);
    causes.needed(target, "type", &path);
    if let Some(n) = target["averageUtilization"].as_i64().filter(|n| *n < 1) {
        causes.add(Cause::invalid(format!("{path}.averageUtilization"), n, "must be greater than 0"));
    }
}

fn behaviour(rules: &Value, path: &str, causes: &mut Causes) {
    causes.range(rules, "stabilizationWindowSeconds", path, 0, 3600);
    causes.one_of(rules, "selectPolicy", path, &["Disabled", "Max", "Min"]);
    for (i, policy) in items(rules, "policies").iter().enumerate() {
        let path = format!("{path}.policies[{i}]");
        causes.one_of(policy, "type", &path, &["Percent", "Pods"]);
        for field in ["value", "periodSeconds"] {
            if let Some(n) = policy[field].as_i64().filter(|n| *n <= 0) {
                causes.add(Cause::invalid(format!("{path}.{field}"), n, "must be greater than zero"));
            }
        }
        if let Some(n) = policy["periodSeconds"].as_i64().filter(|n| *n > 1800) {
            let detail = "must be less than or equal to 1800";
            causes.add(Cause::invalid(format!("{path}.periodSeconds"), n, detail));
        }
    }
}

fn metrics(specs: &[Value], current: &[Value]) -> String {
    let shown: Vec<String> = specs
        .iter()
        .enumerate()
        .map(|(i, spec)| {
            let key = source(text(spec, "type")).unwrap_or_default();
            reached(&spec[key], current.get(i).map_or(&Value::Null, |c| &c[key]), key)
        })
        .collect();
    match shown.as_slice() {
        [] => "<none>".to_owned(),
        few if few.len() <= SHOWN => few.join(", "),
        many => format!("{} + {} more...", many[..SHOWN].join(", "), many.len() - SHOWN),
    }
}

/// How far one metric is: `current/target`.
fn reached(spec: &Value, current: &Value, key: &str) -> String {
    let (target, current) = (&spec["target"], &current["current"]);
    let known = |field: &str| match &current[field] {
        Value::Null => "<unknown>".to_owned(),
        value => shown(value),
    };
    let resource = key.ends_with("esource");
    let head = if resource { format!("{}: ", text(spec, "name")) } else { String::new() };
    match (&target["averageValue"], resource) {
        (Value::Null, true) => {
            let percent = |value: &Value, none: &str| {
                value.as_i64().map_or_else(|| none.to_owned(), |n| format!("{n}%"))
            };
            let now = percent(&current["averageUtilization"], "<unknown>");
            format!("{head}{now}/{}", percent(&target["averageUtilization"], "<auto>"))
        }
        (Value::Null, false) => format!("{}/{}", known("value"), shown(&target["value"])),
        (average, _) => {
            let tail = if matches!(key, "object" | "external") { " (avg)" } else { "" };
            format!("{head}{}/{}{tail}", known("averageValue"), shown(average))
        }
    }
}
