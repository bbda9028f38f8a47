//! Pods, and templates of Pods.
//!
//! - `defaults` what may be left open
//! - `admit` what the server adds
//! - `validate`, `container`, `volume`, `projected`, `probe`, `sysctls` what is refused
//! - `update` what may change, `resize` through that part
//! - `table` how `kubectl get` sees one

mod admit;
mod container;
mod defaults;
mod probe;
mod projected;
mod resize;
mod scheduling;
mod sysctls;
mod table;
mod update;
mod validate;
mod volume;

use super::fields::{child, set, take, text};
use super::hooks::metadata_fields;
use super::{Cause, Column, Cx, Hooks, Invalid};
use serde_json::{Value, json};

pub use admit::qos as class_of_service;
pub use defaults::spec as template_defaults;
pub use scheduling::{EFFECTS, node_selector};
pub use validate::spec as validate_spec;

/// The hooks of Pods.
pub struct Pods;

impl Hooks for Pods {
    fn defaults(&self, obj: &mut Value) {
        defaults::pod(obj);
    }

    fn prepare_create(&self, obj: &mut Value, cx: &mut Cx) -> Result<(), Invalid> {
        admit::admit(obj, cx)?;
        let class = admit::qos(&obj["spec"]);
        set(obj, "status", json!({"phase": "Pending", "qosClass": class}));
        Ok(())
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, _cx: &mut Cx) -> Result<(), Invalid> {
        // What was added at creation is not taken away by a client that sends what it first sent.
        for field in ["priority", "preemptionPolicy", "serviceAccountName", "serviceAccount"] {
            let kept = old["spec"][field].clone();
            if new["spec"][field].is_null() && !kept.is_null() {
                set(child(new, "spec"), field, kept);
            }
        }
        admit::tolerate_node_trouble(child(new, "spec"));
        Ok(())
    }

    fn validate(&self, obj: &Value, old: Option<&Value>) -> Vec<Cause> {
        let mut causes = validate::spec(&obj["spec"], "spec");
        match old {
            None => causes.extend(validate::create(&obj["spec"])),
            Some(old) => causes.extend(update::spec(&obj["spec"], &old["spec"])),
        }
        causes
    }

    fn only_part(&self, part: &str, new: &Value, old: &Value) -> Option<Value> {
        match part {
            "ephemeralcontainers" => {
                let mut pod = old.clone();
                match new["spec"].get("ephemeralContainers") {
                    Some(list) => set(&mut pod["spec"], "ephemeralContainers", list.clone()),
                    None => drop(take(&mut pod["spec"], "ephemeralContainers")),
                }
                Some(pod)
            }
            "resize" => Some(resize::take_over(old, new)),
            _ => None,
        }
    }

    fn validate_part(&self, part: &str, obj: &Value, old: &Value) -> Vec<Cause> {
        match part {
            "ephemeralcontainers" => update::ephemeral(obj, old),
            "resize" => resize::check(obj, old),
            _ => self.validate(obj, Some(old)),
        }
    }

    fn columns(&self) -> &'static [Column] {
        table::COLUMNS
    }

    fn row(&self, obj: &Value, now_unix: i64) -> Vec<Value> {
        table::row(obj, now_unix)
    }

    fn fields(&self, obj: &Value) -> Vec<(String, String)> {
        let (spec, status) = (&obj["spec"], &obj["status"]);
        let mut fields = metadata_fields(obj);
        for field in ["nodeName", "restartPolicy", "schedulerName", "serviceAccountName"] {
            fields.push((format!("spec.{field}"), text(spec, field).to_owned()));
        }
        fields.push(("spec.hostNetwork".to_owned(), (spec["hostNetwork"] == true).to_string()));
        for field in ["phase", "podIP", "nominatedNodeName"] {
            fields.push((format!("status.{field}"), text(status, field).to_owned()));
        }
        fields
    }
}

/// The hooks of PodTemplates.
pub struct Templates;

impl Hooks for Templates {
    fn defaults(&self, obj: &mut Value) {
        if obj["template"]["spec"].is_object() {
            defaults::spec(&mut obj["template"]["spec"]);
        }
    }

    fn prepare_create(&self, obj: &mut Value, _cx: &mut Cx) -> Result<(), Invalid> {
        take(obj, "status");
        Ok(())
    }

    fn validate(&self, obj: &Value, _old: Option<&Value>) -> Vec<Cause> {
        validate::spec(&obj["template"]["spec"], "template.spec")
    }

    fn columns(&self) -> &'static [Column] {
        const { &[Column::NAME, Column::text("Containers"), Column::text("Images"), Column::text("Pod Labels")] }
    }

    fn row(&self, obj: &Value, _now_unix: i64) -> Vec<Value> {
        let containers = super::fields::items(&obj["template"]["spec"], "containers");
        let joined = |key: &str| containers.iter().map(|c| text(c, key)).collect::<Vec<_>>().join(",");
        let labels = super::columns::labels(&obj["template"]["metadata"]["labels"]);
        vec![super::columns::name(obj), joined("name").into(), joined("image").into(), labels.into()]
    }
}

#[cfg(test)]
mod tests;
