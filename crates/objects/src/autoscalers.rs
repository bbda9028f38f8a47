//! Autoscalers have two forms: `autoscaling/v2`, which is stored, and `autoscaling/v1`, which knows a target for the CPU alone
//! and keeps the rest in annotations.

use serde_json::{Map, Value, json};

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOUR: &str = "autoscaling.alpha.kubernetes.io/behavior";
/// The sources of metrics: the type, and its field.
const SOURCES: [(&str, &str); 5] = [
    ("Resource", "resource"),
    ("ContainerResource", "containerResource"),
    ("Pods", "pods"),
    ("Object", "object"),
    ("External", "external"),
];

/// Turns a v1 autoscaler into v2.
pub fn to_v2(object: &mut Value) {
    object["apiVersion"] = "autoscaling/v2".into();
    let mut metrics = noted(object, METRICS).map(|m| each(m, metric_to_v2)).unwrap_or_default();
    if let Some(percent) = take(&mut object["spec"], "targetCPUUtilizationPercentage") {
        let target = json!({"type": "Utilization", "averageUtilization": percent});
        metrics.insert(0, json!({"type": "Resource", "resource": {"name": "cpu", "target": target}}));
    }
    if !metrics.is_empty() {
        object["spec"]["metrics"] = metrics.into();
    }
    if let Some(behaviour) = noted(object, BEHAVIOUR) {
        object["spec"]["behavior"] = capitalized(behaviour, false);
    }
    let mut current = noted(object, CURRENT).map(|m| each(m, metric_to_v2)).unwrap_or_default();
    if object["status"].is_object() {
        if let Some(percent) = take(&mut object["status"], "currentCPUUtilizationPercentage") {
            let now = json!({"averageUtilization": percent, "averageValue": "0"});
            current.insert(0, json!({"type": "Resource", "resource": {"name": "cpu", "current": now}}));
        }
        if !current.is_empty() {
            object["status"]["currentMetrics"] = current.into();
        }
    }
    if let Some(conditions) = noted(object, CONDITIONS) {
        object["status"]["conditions"] = conditions;
    }
}

/// Turns a v2 autoscaler into v1.
pub fn to_v1(object: &mut Value) {
    object["apiVersion"] = "autoscaling/v1".into();
    let mut metrics = list(take(&mut object["spec"], "metrics"));
    let cpu = |m: &Value| {
        m["resource"]["name"] == "cpu" && !m["resource"]["target"]["averageUtilization"].is_null()
    };
    if let Some(at) = metrics.iter().position(cpu) {
        let metric = metrics.remove(at);
        let percent = metric["resource"]["target"]["averageUtilization"].clone();
        object["spec"]["targetCPUUtilizationPercentage"] = percent;
    }
    if !metrics.is_empty() {
        note(object, METRICS, &metrics.into_iter().map(metric_to_v1).collect());
    }
    if let Some(behaviour) = take(&mut object["spec"], "behavior") {
        note(object, BEHAVIOUR, &capitalized(behaviour, true));
    }
    if !object["status"].is_object() {
        return;
    }
    let current = list(take(&mut object["status"], "currentMetrics"));
    let cpu = |m: &&Value| m["resource"]["name"] == "cpu";
    let percent = current.iter().find(cpu).map(|m| m["resource"]["current"]["averageUtilization"].clone());
    if let Some(percent) = percent.filter(|p| !p.is_null()) {
        object["status"]["currentCPUUtilizationPercentage"] = percent;
    }
    if !current.is_empty() {
        note(object, CURRENT, &current.into_iter().map(metric_to_v1).collect());
    }
    if let Some(conditions) = take(&mut object["status"], "conditions") {
        note(object, CONDITIONS, &conditions);
    }
}

fn list(value: Option<Value>) -> Vec<Value> {
    match value {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    }
}

fn each(value: Value, turn: fn(Value) -> Value) -> Vec<Value> {
    list(Some(value)).into_iter().map(turn).collect()
}

fn take(object: &mut Value, key: &str) -> Option<Value> {
    object.as_object_mut()?.remove(key).filter(|v| !v.is_null())
}

/// Takes JSON out of an annotation.
fn noted(object: &mut Value, annotation: &str) -> Option<Value> {
    let annotations = object["metadata"].get_mut("annotations")?.as_object_mut()?;
    let text = annotations.remove(annotation)?;
    if annotations.is_empty() {
        take(&mut object["metadata"], "annotations");
    }
    serde_json::from_str(text.as_str()?).ok()
}

fn note(object: &mut Value, annotation: &str, value: &Value) {
    if !object["metadata"]["annotations"].is_object() {
        object["metadata"]["annotations"] = json!({});
    }
    object["metadata"]["annotations"][annotation] = value.to_string().into();
}

/// The annotation's keys of behaviours begin with capital letters: the form has no names of its own.
fn capitalized(value: Value, capital: bool) -> Value {
    match value {
        Value::Object(map) => Value::Object(
            map.into_iter()
                .map(|(key, value)| {
                    let (first, rest) = key.split_at(key.chars().next().map_or(0, char::len_utf8));
                    let first = if capital { first.to_uppercase() } else { first.to_lowercase() };
                    (first + rest, capitalized(value, capital))
                })
                .collect(),
        ),
        Value::Array(items) => items.into_iter().map(|v| capitalized(v, capital)).collect(),
        other => other,
    }
}

/// The names of a metric's amounts: in v2 below `target` or `current`, in v1 beside the name.
fn amounts(field: &str) -> [(&'static str, &'static str, &'static str); 3] {
    match field {
        "resource" | "containerResource" => [
            ("averageUtilization", "targetAverageUtilization", "currentAverageUtilization"),
            ("averageValue", "targetAverageValue", "currentAverageValue"),
            ("value", "targetValue", "currentValue"),
        ],
        "object" => [
            ("value", "targetValue", "currentValue"),
            ("averageValue", "averageValue", "averageValue"),
            ("averageUtilization", "", ""),
        ],
        _ => [
            ("value", "targetValue", "currentValue"),
            ("averageValue", "targetAverageValue", "currentAverageValue"),
            ("averageUtilization", "", ""),
        ],
    }
}

fn metric_to_v1(mut metric: Value) -> Value {
    for (_, field) in SOURCES {
        let Some(source) = metric.get_mut(field).filter(|s| s.is_object()) else { continue };
        for (place, is_target) in [("target", true), ("current", false)] {
            let Some(holder) = take(source, place) else { continue };
            for (v2, target, current) in amounts(field) {
                let name = if is_target { target } else { current };
                if !name.is_empty() && !holder[v2].is_null() {
                    source[name] = holder[v2].clone();
                }
            }
        }
        if let Some(named) = take(source, "metric") {
            source["metricName"] = named["name"].clone();
            if !named["selector"].is_null() {
                source[if field == "external" { "metricSelector" } else { "selector" }] =
                    named["selector"].clone();
            }
        }
        if let Some(target) = take(source, "describedObject") {
            source["target"] = target;
        }
    }
    metric
}

fn metric_to_v2(mut metric: Value) -> Value {
    for (_, field) in SOURCES {
        let Some(source) = metric.get_mut(field).filter(|s| s.is_object()) else { continue };
        if let Some(target) = take(source, "target") {
            source["describedObject"] = target;
        }
        if let Some(name) = take(source, "metricName") {
            let selector = take(source, if field == "external" { "metricSelector" } else { "selector" });
            let mut named = json!({"name": name});
            if let Some(selector) = selector {
                named["selector"] = selector;
            }
            source["metric"] = named;
        }
        let (mut target, mut current) = (Map::new(), Map::new());
        for (v2, of_target, of_current) in amounts(field) {
            if let Some(value) = take(source, of_target) {
                let kind = match v2 {
                    "averageUtilization" => "Utilization",
                    "averageValue" => "AverageValue",
                    _ => "Value",
                };
                // An object's average stands beside its total.
                if !target.contains_key("type") || v2 == "averageValue" {
                    target.insert("type".to_owned(), kind.into());
                }
                target.insert(v2.to_owned(), value);
            }
            if let Some(value) = take(source, of_current) {
                current.insert(v2.to_owned(), value);
            }
        }
        for (place, map) in [("target", target), ("current", current)] {
            if !map.is_empty() {
                source[place] = map.into();
            }
        }
    }
    metric
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_older_form_knows_the_cpu_and_notes_the_rest() {
        let v2 = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"},
            "spec": {"maxReplicas": 3, "metrics": [
                {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}},
                {"type": "Pods", "pods": {"metric": {"name": "rps"}, "target": {"type": "AverageValue", "averageValue": "1k"}}},
                {"type": "External", "external": {"metric": {"name": "q", "selector": {"matchLabels": {"a": "b"}}},
                    "target": {"type": "Value", "value": "30"}}},
                {"type": "Object", "object": {"metric": {"name": "hits"}, "describedObject": {"kind": "Ingress", "name": "i"},
                    "target": {"type": "Value", "value": "10k"}}}],
                "behavior": {"scaleDown": {"stabilizationWindowSeconds": 5}}}});
        let mut object = v2.clone();
        to_v1(&mut object);
        assert_eq!(object["spec"], json!({"maxReplicas": 3, "targetCPUUtilizationPercentage": 50}));
        let noted = object["metadata"]["annotations"][METRICS].as_str().unwrap();
        let first: Value = serde_json::from_str::<Vec<Value>>(noted).unwrap().remove(0);
        assert_eq!(first, json!({"type": "Pods", "pods": {"metricName": "rps", "targetAverageValue": "1k"}}));
        to_v2(&mut object);
        assert_eq!(object, v2);
    }

    #[test]
    fn a_target_of_the_older_form_is_a_metric() {
        let mut object = json!({"apiVersion": "autoscaling/v1", "metadata": {}, "spec": {"maxReplicas": 2, "targetCPUUtilizationPercentage": 70}});
        to_v2(&mut object);
        assert_eq!(object["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 70);
    }
}
