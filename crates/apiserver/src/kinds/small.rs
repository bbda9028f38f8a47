//! Kinds that need little: Leases, ServiceAccounts, PriorityClasses, RuntimeClasses, Ingresses.

use super::columns::{age, name, or_none};
use super::fields::{default, items, set, text};
use super::{Cause, Causes, Column, Cx, Hooks, Invalid};
use serde_json::{Value, json};
use trine_objects::names;

/// The hooks of Leases.
pub struct Leases;

impl Hooks for Leases {
    fn validate(&self, obj: &Value, _old: Option<&Value>) -> Vec<Cause> {
        let spec = &obj["spec"];
        let mut causes = Causes::default();
        if let Some(seconds) = spec["leaseDurationSeconds"].as_i64().filter(|s| *s <= 0) {
            causes.add(Cause::invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0"));
        }
        causes.not_negative(spec, "leaseTransitions", "spec");
        causes.0
    }

    fn columns(&self) -> &'static [Column] {
        const { &[Column::NAME, Column::text("Holder"), Column::AGE] }
    }

    fn row(&self, obj: &Value, now_unix: i64) -> Vec<Value> {
        vec![name(obj), text(&obj["spec"], "holderIdentity").into(), age(obj, now_unix)]
    }
}

/// The hooks of ServiceAccounts.
pub struct Accounts;

impl Hooks for Accounts {
    fn columns(&self) -> &'static [Column] {
        const { &[Column::NAME, Column::text("Secrets"), Column::AGE] }
    }

    fn row(&self, obj: &Value, now_unix: i64) -> Vec<Value> {
        vec![name(obj), items(obj, "secrets").len().to_string().into(), age(obj, now_unix)]
    }
}

/// The largest priority that a user may give.
const PRIORITY_MAX: i64 = 1_000_000_000;

/// The hooks of PriorityClasses.
pub struct Priorities;

impl Hooks for Priorities {
    fn defaults(&self, obj: &mut Value) {
        default(obj, "preemptionPolicy", "PreemptLowerPriority");
        default(obj, "value", 0);
    }

    fn validate(&self, obj: &Value, old: Option<&Value>) -> Vec<Cause> {
        let mut causes = Causes::default();
        let value = obj["value"].as_i64().unwrap_or(0);
        let own = text(&obj["metadata"], "name");
        let system = matches!(own, "system-cluster-critical" | "system-node-critical");
        if own.starts_with("system-") && !system {
            causes.add(Cause::forbidden(
                "metadata.name",
                "priority class names with 'system-' prefix are reserved for system use only",
            ));
        }
        if value > PRIORITY_MAX && !system {
            let detail = format!("maximum allowed value of a user defined priority is {PRIORITY_MAX}");
            causes.add(Cause::forbidden("value", &detail));
        }
        causes.one_of(obj, "preemptionPolicy", "", &["Never", "PreemptLowerPriority"]);
        for field in ["value", "preemptionPolicy"] {
            if old.is_some_and(|old| old[field] != obj[field]) {
                causes.add(Cause::invalid(field, obj[field].clone(), "field is immutable"));
            }
        }
        causes.0
    }

    fn columns(&self) -> &'static [Column] {
        const {
            &[
                Column::NAME,
                Column::integer("Value"),
                Column { type_: "boolean", ..Column::text("Global-Default") },
                Column::AGE,
                Column::text("PreemptionPolicy"),
            ]
        }
    }

    fn row(&self, obj: &Value, now_unix: i64) -> Vec<Value> {
        vec![
            name(obj),
            obj["value"].as_i64().unwrap_or(0).into(),
            (obj["globalDefault"] == true).into(),
            age(obj, now_unix),
            text(obj, "preemptionPolicy").into(),
        ]
    }
}

/// The hooks of RuntimeClasses.
pub struct Runtimes;

impl Hooks for Runtimes {
    fn validate(&self, obj: &Value, old: Option<&Value>) -> Vec<Cause> {
        let mut causes = Causes::default();
        causes.needed_name("handler", text(obj, "handler"), names::dns1123_label);
        if old.is_some_and(|old| old["handler"] != obj["handler"]) {
            causes.add(Cause::invalid("handler", text(obj, "handler"), "field is immutable"));
        }
        causes.0
    }

    fn columns(&self) -> &'static [Column] {
        const { &[Column::NAME, Column::text("Handler"), Column::AGE] }
    }

    fn row(&self, obj: &Value, now_unix: i64) -> Vec<Value> {
        vec![name(obj), text(obj, "handler").into(), age(obj, now_unix)]
    }
}

/// The hooks of IngressClasses.
pub struct IngressClasses;

impl Hooks for IngressClasses {
    fn validate(&self, obj: &Value, old: Option<&Value>) -> Vec<Cause> {
        let mut causes = Causes::default();
        causes.needed(&obj["spec"], "controller", "spec");
        if old.is_some_and(|old| old["spec"]["controller"] != obj["spec"]["controller"]) {
            causes.add(Cause::invalid(
                "spec.controller",
                text(&obj["spec"], "controller"),
                "field is immutable",
            ));
        }
        causes.0
    }

    fn columns(&self) -> &'static [Column] {
        const { &[Column::NAME, Column::text("Controller"), Column::text("Parameters"), Column::AGE] }
    }

    fn row(&self, obj: &Value, now_unix: i64) -> Vec<Value> {
        let parameters = &obj["spec"]["parameters"];
        let group = text(parameters, "apiGroup");
        let kind = text(parameters, "kind");
        let kind = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let shown = if parameters.is_object() {
            format!("{kind}/{}", text(parameters, "name"))
        } else {
            String::new()
        };
        vec![name(obj), text(&obj["spec"], "controller").into(), or_none(&shown), age(obj, now_unix)]
    }
}

/// The newest class that is marked as the default, by name among equals.
fn default_ingress_class(cx: &Cx) -> Option<String> {
    let mark = "ingressclass.kubernetes.io/is-default-class";
    let mut classes = cx.objects.list("networking.k8s.io", "ingressclasses");
    classes.retain(|c| c["metadata"]["annotations"][mark] == "true");
    let key = |class: &Value, field: &str| text(&class["metadata"], field).to_owned();
    classes.sort_by_key(|c| (std::cmp::Reverse(key(c, "creationTimestamp")), key(c, "name")));
    classes.first().map(|c| key(c, "name"))
}

/// The hooks of Ingresses.
pub struct Ingresses;

impl Hooks for Ingresses {
    fn prepare_create(&self, obj: &mut Value, cx: &mut Cx) -> Result<(), Invalid> {
        set(obj, "status", json!({"loadBalancer": {}}));
        let older = &obj["metadata"]["annotations"]["kubernetes.io/ingress.class"];
        if obj["spec"]["ingressClassName"].is_null()
            && older.is_null()
            && obj["spec"].is_object()
            && let Some(class) = default_ingress_class(cx)
        {
            set(&mut obj["spec"], "ingressClassName", class);
        }
        Ok(())
    }

    fn validate(&self, obj: &Value, _old: Option<&Value>) -> Vec<Cause> {
        let spec = &obj["spec"];
        let mut causes = Causes::default();
        if items(spec, "rules").is_empty() && !spec["defaultBackend"].is_object() {
            let detail = "either `defaultBackend` or `rules` must be specified";
            causes.add(Cause::invalid("spec", spec.clone(), detail));
        }
        for (i, rule) in items(spec, "rules").iter().enumerate() {
            for (j, path) in items(&rule["http"], "paths").iter().enumerate() {
                let at = format!("spec.rules[{i}].http.paths[{j}]");
                if text(path, "pathType").is_empty() {
                    causes.add(Cause::required(format!("{at}.pathType"), "pathType must be specified"));
                }
                causes.one_of(path, "pathType", &at, &["Exact", "ImplementationSpecific", "Prefix"]);
            }
        }
        causes.0
    }

    fn columns(&self) -> &'static [Column] {
        const {
            &[
                Column::NAME,
                Column::text("Class"),
                Column::text("Hosts"),
                Column::text("Address"),
                Column::text("Ports"),
                Column::AGE,
            ]
        }
    }

    fn row(&self, obj: &Value, now_unix: i64) -> Vec<Value> {
        let spec = &obj["spec"];
        let hosts: Vec<String> = items(spec, "rules")
            .iter()
            .map(|r| text(r, "host").to_owned())
            .filter(|h| !h.is_empty())
            .collect();
        let hosts = if hosts.is_empty() { "*".to_owned() } else { super::columns::some_of(&hosts) };
        let addresses: Vec<&str> = items(&obj["status"]["loadBalancer"], "ingress")
            .iter()
            .map(|i| if i["ip"].is_null() { text(i, "hostname") } else { text(i, "ip") })
            .collect();
        let ports = if items(spec, "tls").is_empty() { "80" } else { "80, 443" };
        vec![
            name(obj),
            or_none(text(spec, "ingressClassName")),
            hosts.into(),
            addresses.join(",").into(),
            ports.into(),
            age(obj, now_unix),
        ]
    }
}
