//! APIServices: which server serves a group and version. Source: `kube-aggregator` registry/apiservice, apis/apiregistration.

use super::columns::{age, name};
use super::fields::{default, text};
use super::{Cause, Causes, Column, Cx, Hooks, Invalid};
use serde_json::Value;
use trine_objects::{conditions, names, time};

const CONDITION: &str = "Available";

/// The hooks of APIServices.
pub struct ApiServices;

impl Hooks for ApiServices {
    fn name(&self, name: &str) -> names::Checked {
        // That it is VERSION.GROUP is checked with both; that of the core group ends in a dot.
        match name {
            "." | ".." => Err(vec![format!("may not be {name:?}")]),
            _ if name.contains(['/', '%']) => Err(vec!["may not contain '/' or '%'".to_owned()]),
            _ => Ok(()),
        }
    }

    fn defaults(&self, obj: &mut Value) {
        if let Some(service) = obj.pointer_mut("/spec/service").filter(|s| s.is_object()) {
            default(service, "port", 443);
        }
    }

    fn prepare_create(&self, obj: &mut Value, cx: &mut Cx) -> Result<(), Invalid> {
        if let Some(map) = obj.as_object_mut() {
            map.remove("status");
        }
        if obj["spec"]["service"].is_null() {
            let message = "Local APIServices are always available";
            conditions::set(obj, CONDITION, true, "Local", message, &time::format(cx.now_unix));
        }
        Ok(())
    }

    fn validate(&self, obj: &Value, _old: Option<&Value>) -> Vec<Cause> {
        let spec = &obj["spec"];
        let mut causes = Causes::default();
        let (group, version) = (text(spec, "group"), text(spec, "version"));
        let (own, wanted) = (text(&obj["metadata"], "name"), format!("{version}.{group}"));
        if own != wanted {
            let detail = format!("must be `spec.version+\".\"+spec.group`: {wanted:?}");
            causes.add(Cause::invalid("metadata.name", own, &detail));
        }
        if group.is_empty() && version != "v1" {
            let detail = "only v1 may have an empty group and it better be legacy kube";
            causes.add(Cause::required("spec.group", detail));
        }
        let checks = [
            ("spec.group", group, names::dns1123_subdomain(group)),
            ("spec.version", version, names::dns1035_label(version)),
        ];
        for (field, value, checked) in checks {
            if field == "spec.group" && value.is_empty() {
                continue;
            }
            checked
                .err()
                .into_iter()
                .flatten()
                .for_each(|why| causes.add(Cause::invalid(field, value, &why)));
        }
        for (field, most) in [("groupPriorityMinimum", 20_000), ("versionPriority", 1000)] {
            let value = spec[field].as_i64().unwrap_or_default();
            if value <= 0 || value > most {
                let detail = format!("must be positive and less than {most}");
                causes.add(Cause::invalid(format!("spec.{field}"), value, &detail));
            }
        }
        service(spec, &mut causes);
        causes.0
    }

    fn validate_part(&self, _part: &str, obj: &Value, _old: &Value) -> Vec<Cause> {
        let all = obj["status"]["conditions"].as_array().into_iter().flatten().enumerate();
        let statuses = ["False", "True", "Unknown"];
        let wrong = all.filter(|(_, c)| !statuses.contains(&text(c, "status")));
        wrong
            .map(|(i, c)| {
                let field = format!("status.conditions[{i}].status");
                Cause::not_supported(field, text(c, "status"), &statuses)
            })
            .collect()
    }

    fn columns(&self) -> &'static [Column] {
        const { &[Column::NAME, Column::text("Service"), Column::text("Available"), Column::AGE] }
    }

    fn row(&self, obj: &Value, now_unix: i64) -> Vec<Value> {
        let service = &obj["spec"]["service"];
        let service = if service.is_object() {
            format!("{}/{}", text(service, "namespace"), text(service, "name"))
        } else {
            "Local".to_owned()
        };
        let available = match conditions::find(obj, CONDITION) {
            None => "Unknown".to_owned(),
            Some(c) if c["status"] == "True" || text(c, "reason").is_empty() => text(c, "status").to_owned(),
            Some(c) => format!("{} ({})", text(c, "status"), text(c, "reason")),
        };
        vec![name(obj), service.into(), available.into(), age(obj, now_unix)]
    }
}

fn service(spec: &Value, causes: &mut Causes) {
    let service = &spec["service"];
    let bundle = text(spec, "caBundle");
    let skips = spec["insecureSkipTLSVerify"] == true;
    if service.is_null() {
        if !bundle.is_empty() {
            let (size, detail) =
                (format!("{} bytes", bundle.len()), "local APIServices may not have a caBundle");
            causes.add(Cause::invalid("spec.caBundle", size, detail));
        }
        if skips {
            let detail = "local APIServices may not have insecureSkipTLSVerify";
            causes.add(Cause::invalid("spec.insecureSkipTLSVerify", true, detail));
        }
        return;
    }
    causes.needed(service, "namespace", "spec.service");
    causes.needed(service, "name", "spec.service");
    let port = service["port"].as_i64().unwrap_or_default();
    if !(1..=65_535).contains(&port) {
        let detail = "port is not valid: must be between 1 and 65535, inclusive";
        causes.add(Cause::invalid("spec.service.port", port, detail));
    }
    if skips && !bundle.is_empty() {
        let detail = "may not be true if caBundle is present";
        causes.add(Cause::invalid("spec.insecureSkipTLSVerify", true, detail));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(name: &str, spec: &Value) -> Value {
        json!({"metadata": {"name": name}, "spec": spec})
    }

    #[test]
    fn each_mistake_is_named_with_its_field() {
        let good = json!({"group": "a.io", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1,
            "service": {"namespace": "n", "name": "s", "port": 443}});
        let with = |changes: Value| {
            let mut spec = good.clone();
            for (key, value) in changes.as_object().unwrap() {
                spec[key] = value.clone();
            }
            spec
        };
        for (name, spec, wanted) in [
            ("v1.a.io", good.clone(), vec![]),
            ("v1.b.io", good.clone(), vec!["metadata.name"]),
            ("v2.", with(json!({"group": "", "version": "v2"})), vec!["spec.group"]),
            ("v1.a.io", with(json!({"versionPriority": 1001})), vec!["spec.versionPriority"]),
            (
                "v1.a.io",
                with(json!({"service": {"port": 0}})),
                vec!["spec.service.namespace", "spec.service.name", "spec.service.port"],
            ),
            (
                "v1.a.io",
                with(json!({"insecureSkipTLSVerify": true, "caBundle": "YQ=="})),
                vec!["spec.insecureSkipTLSVerify"],
            ),
            ("v1.a.io", with(json!({"service": null, "caBundle": "YQ=="})), vec!["spec.caBundle"]),
        ] {
            let found: Vec<String> =
                ApiServices.validate(&object(name, &spec), None).into_iter().map(|c| c.field).collect();
            assert_eq!(found, wanted, "{spec}");
        }
    }

    #[test]
    fn the_row_says_where_and_whether() {
        let mut service = object("v1.a.io", &json!({"service": {"namespace": "n", "name": "s"}}));
        assert_eq!(ApiServices.row(&service, 0)[1..3], [json!("n/s"), json!("Unknown")]);
        conditions::set(&mut service, CONDITION, false, "ServiceNotFound", "", "now");
        assert_eq!(ApiServices.row(&service, 0)[2], "False (ServiceNotFound)");
        assert_eq!(ApiServices.row(&object("v1.a.io", &json!({})), 0)[1], "Local");
    }
}
