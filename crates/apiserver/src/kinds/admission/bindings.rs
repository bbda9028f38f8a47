//! `ValidatingAdmissionPolicyBinding` and `MutatingAdmissionPolicyBinding`.

use std::collections::HashSet;

use serde_json::Value;

use super::policies::operations;
use crate::kinds::columns::{age, name};
use crate::kinds::fields::{items, text};
use crate::kinds::workload::template::label_selector;
use crate::kinds::{Cause, Causes, Column, Hooks};
use trine_objects::names;

const ACTIONS: [&str; 3] = ["Audit", "Deny", "Warn"];

/// The hooks of ValidatingAdmissionPolicyBindings.
pub struct ValidatingBindings;

/// The hooks of MutatingAdmissionPolicyBindings.
pub struct MutatingBindings;

impl Hooks for ValidatingBindings {
    fn defaults(&self, obj: &mut Value) {
        defaults(obj);
    }

    fn validate(&self, obj: &Value, _old: Option<&Value>) -> Vec<Cause> {
        let mut causes = check(obj);
        actions(&obj["spec"], &mut causes);
        causes.0
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, obj: &Value, now_unix: i64) -> Vec<Value> {
        row(obj, now_unix)
    }
}

impl Hooks for MutatingBindings {
    fn defaults(&self, obj: &mut Value) {
        defaults(obj);
    }

    fn validate(&self, obj: &Value, _old: Option<&Value>) -> Vec<Cause> {
        let mut causes = check(obj);
        operations(&obj["spec"]["matchResources"], "spec.matchResources", &mut causes);
        causes.0
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, obj: &Value, now_unix: i64) -> Vec<Value> {
        row(obj, now_unix)
    }
}

const COLUMNS: &[Column] = &[Column::NAME, Column::text("PolicyName"), Column::text("ParamRef"), Column::AGE];

fn row(obj: &Value, now_unix: i64) -> Vec<Value> {
    let spec = &obj["spec"];
    let params = &spec["paramRef"];
    let shown = match (params.is_object(), text(params, "namespace"), text(params, "name")) {
        (false, ..) => "<unset>".to_owned(),
        (true, _, "") => "*".to_owned(),
        (true, "", name) => name.to_owned(),
        (true, namespace, name) => format!("{namespace}/{name}"),
    };
    vec![name(obj), text(spec, "policyName").into(), shown.into(), age(obj, now_unix)]
}

fn defaults(obj: &mut Value) {
    if let Some(resources) = obj.pointer_mut("/spec/matchResources").filter(|r| r.is_object()) {
        super::resources_defaults(resources);
    }
}

fn check(obj: &Value) -> Causes {
    let mut causes = Causes::default();
    let spec = &obj["spec"];
    causes.needed_name("spec.policyName", text(spec, "policyName"), names::dns1123_subdomain);
    param_ref(&spec["paramRef"], &mut causes);
    if spec["matchResources"].is_object() {
        super::resources(&spec["matchResources"], "spec.matchResources", &mut causes);
    }
    causes
}

fn param_ref(params: &Value, causes: &mut Causes) {
    if !params.is_object() {
        return;
    }
    let path = "spec.paramRef";
    let (own, selects) = (text(params, "name"), params["selector"].is_object());
    if own.contains(['/', '%']) || matches!(own, "." | "..") {
        causes.add(Cause::invalid(format!("{path}.name"), own, "may not contain '/'"));
    }
    if selects {
        label_selector(&params["selector"], &format!("{path}.selector"), causes);
    }
    match (own.is_empty(), selects) {
        (false, true) => {
            for key in ["name", "selector"] {
                let detail = "name and selector are mutually exclusive";
                causes.add(Cause::forbidden(format!("{path}.{key}"), detail));
            }
        }
        (true, false) => causes.add(Cause::required(path, "one of name or selector must be specified")),
        _ => {}
    }
    causes.needed(params, "parameterNotFoundAction", path);
    causes.one_of(params, "parameterNotFoundAction", path, &["Allow", "Deny"]);
}

fn actions(spec: &Value, causes: &mut Causes) {
    let field = "spec.validationActions";
    let list = items(spec, "validationActions");
    let mut seen = HashSet::new();
    for (i, action) in list.iter().enumerate() {
        let action = action.as_str().unwrap_or_default();
        if !ACTIONS.contains(&action) {
            causes.add(Cause::not_supported(format!("{field}[{i}]"), action, &ACTIONS));
        }
        if !seen.insert(action) {
            causes.add(Cause::duplicate(format!("{field}[{i}]"), action));
        }
    }
    if seen.contains("Deny") && seen.contains("Warn") {
        let detail = "must not contain both Deny and Warn (repeating the same validation failure information in the API \
                      response and headers serves no purpose)";
        causes.add(Cause::invalid(field, list.to_vec(), detail));
    }
    if list.is_empty() {
        causes.add(Cause::required(field, "at least one validation action is required"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_binding_names_a_policy_its_actions_and_perhaps_parameters() {
        let binding = |more: Value| {
            let mut binding = json!({"metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}});
            more.as_object().unwrap().iter().for_each(|(k, v)| binding["spec"][k] = v.clone());
            ValidatingBindings.defaults(&mut binding);
            let causes = ValidatingBindings.validate(&binding, None);
            causes.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(binding(json!({"matchResources": {}})), Vec::<String>::new());
        for (more, wanted) in [
            (json!({"policyName": ""}), "spec.policyName: Required value"),
            (json!({"validationActions": []}), "at least one validation action is required"),
            (json!({"validationActions": ["Deny", "Warn"]}), "must not contain both Deny and Warn"),
            (
                json!({"validationActions": ["Deny", "Deny"]}),
                "spec.validationActions[1]: Duplicate value: \"Deny\"",
            ),
            (
                json!({"paramRef": {"parameterNotFoundAction": "Deny"}}),
                "one of name or selector must be specified",
            ),
            (json!({"paramRef": {"name": "x"}}), "spec.paramRef.parameterNotFoundAction: Required value"),
            (
                json!({"paramRef": {"name": "x", "selector": {}, "parameterNotFoundAction": "Allow"}}),
                "mutually exclusive",
            ),
        ] {
            let causes = binding(more);
            assert!(causes.iter().any(|c| c.contains(wanted)), "{wanted}: {causes:?}");
        }
    }
}
