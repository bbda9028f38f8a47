//! Events, stored in their core form.

use super::columns::name;
use super::fields::{default, text};
use super::hooks::metadata_fields;
use super::{Cause, Column, Hooks};
use serde_json::Value;
use trine_objects::time;

/// The hooks of Events.
pub struct Events;

impl Hooks for Events {
    fn defaults(&self, obj: &mut Value) {
        default(obj, "type", "Normal");
    }

    fn validate(&self, obj: &Value, _old: Option<&Value>) -> Vec<Cause> {
        let (own, of) = (text(&obj["metadata"], "namespace"), text(&obj["involvedObject"], "namespace"));
        // Events about what lies in no namespace are posted to the default one.
        if own == of || (of.is_empty() && matches!(own, "default" | "kube-system")) {
            return Vec::new();
        }
        vec![Cause::invalid("involvedObject.namespace", of, "does not match event.namespace")]
    }

    fn columns(&self) -> &'static [Column] {
        const {
            &[
                Column::text("Last Seen"),
                Column::text("Type"),
                Column::text("Reason"),
                Column::text("Object"),
                Column::text("Subobject").wide(),
                Column::text("Source").wide(),
                Column::text("Message"),
                Column::text("First Seen").wide(),
                Column::text("Count").wide(),
                Column { priority: 1, ..Column::NAME },
            ]
        }
    }

    fn row(&self, obj: &Value, now_unix: i64) -> Vec<Value> {
        let at = |object: &Value, field: &str| object[field].as_str().and_then(time::parse);
        let since = |moment: Option<i64>| {
            moment.map_or_else(|| "<unknown>".to_owned(), |t| time::human(now_unix - t))
        };
        let first = at(obj, "firstTimestamp").or_else(|| at(obj, "eventTime"));
        let last = at(&obj["series"], "lastObservedTime").or_else(|| at(obj, "lastTimestamp")).or(first);
        let counted = obj["series"]["count"].as_i64().or_else(|| obj["count"].as_i64()).filter(|n| *n > 0);
        let object = &obj["involvedObject"];
        let target = match text(object, "name") {
            "" => text(object, "kind").to_lowercase(),
            name => format!("{}/{name}", text(object, "kind").to_lowercase()),
        };
        vec![
            since(last).into(),
            text(obj, "type").into(),
            text(obj, "reason").into(),
            target.into(),
            text(object, "fieldPath").into(),
            source(obj).into(),
            text(obj, "message").trim().into(),
            since(first).into(),
            counted.unwrap_or(1).to_string().into(),
            name(obj),
        ]
    }

    fn field_label(&self, group: &str, label: &str) -> Option<String> {
        if group.is_empty() {
            return Some(label.to_owned());
        }
        match label {
            "reason" | "type" | "metadata.name" | "metadata.namespace" => Some(label.to_owned()),
            "reportingController" => Some("reportingComponent".to_owned()),
            _ => Some(format!("involvedObject.{}", label.strip_prefix("regarding.")?)),
        }
    }

    fn fields(&self, obj: &Value) -> Vec<(String, String)> {
        let mut fields = metadata_fields(obj);
        for field in ["kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath"] {
            fields.push((format!("involvedObject.{field}"), text(&obj["involvedObject"], field).to_owned()));
        }
        for field in ["reason", "reportingComponent", "type"] {
            fields.push((field.to_owned(), text(obj, field).to_owned()));
        }
        let component = text(&obj["source"], "component");
        let component = if component.is_empty() { text(obj, "reportingComponent") } else { component };
        fields.push(("source".to_owned(), component.to_owned()));
        fields
    }
}

fn source(event: &Value) -> String {
    let source = &event["source"];
    let component = text(source, "component");
    let component = if component.is_empty() { text(event, "reportingComponent") } else { component };
    let host = text(source, "host");
    if host.is_empty() { component.to_owned() } else { format!("{component}, {host}") }
}
