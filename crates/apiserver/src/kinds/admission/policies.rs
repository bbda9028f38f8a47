//! `ValidatingAdmissionPolicy` and `MutatingAdmissionPolicy`.

use std::collections::HashSet;

use serde_json::Value;

use super::matching::{self, expressed};
use crate::kinds::columns::{age, name};
use crate::kinds::fields::{default, is_unset, items, text};
use crate::kinds::{Cause, Causes, Column, Hooks};
use trine_cel::Known;
use trine_objects::names;

/// The most notes of one policy.
const MOST_NOTES: usize = 20;
/// The longest expression that makes a note, bytes.
const LONGEST_NOTE_EXPRESSION: usize = 5 * 1024;
/// What a mutation may be about: nothing is left to change of what is deleted.
const CHANGEABLE: [&str; 4] = ["*", "CONNECT", "CREATE", "UPDATE"];
/// Words that no variable may be called.
const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// The hooks of ValidatingAdmissionPolicies.
pub struct ValidatingPolicies;

/// The hooks of MutatingAdmissionPolicies.
pub struct MutatingPolicies;

impl Hooks for ValidatingPolicies {
    fn defaults(&self, obj: &mut Value) {
        defaults(obj);
    }

    fn validate(&self, obj: &Value, old: Option<&Value>) -> Vec<Cause> {
        let mut causes = Causes::default();
        let variables = common(obj, old, &mut causes);
        let spec = &obj["spec"];
        let (validations, notes) = (items(spec, "validations"), items(spec, "auditAnnotations"));
        if validations.is_empty() && notes.is_empty() {
            let detail = "validations or auditAnnotations must contain at least one item";
            causes.add(Cause::required("spec.validations", detail));
            causes.add(Cause::required("spec.auditAnnotations", detail));
        }
        let params = spec["paramKind"].is_object();
        let known =
            Known { params, authorizer: true, variables: &variables, objects: false, ..Known::default() };
        for (i, v) in validations.iter().enumerate() {
            validation(v, &format!("spec.validations[{i}]"), &known, &mut causes);
        }
        if notes.len() > MOST_NOTES {
            let detail = format!("must not have more than {MOST_NOTES} auditAnnotations");
            causes.add(Cause::invalid("spec.auditAnnotations", notes.to_vec(), &detail));
        }
        let mut seen = HashSet::new();
        for (i, note) in notes.iter().enumerate() {
            let path = format!("spec.auditAnnotations[{i}]");
            let key = text(note, "key");
            let whole = format!("{}/{key}", text(&obj["metadata"], "name"));
            causes.name(&format!("{path}.key"), &whole, names::qualified_name);
            let (expression, field) = (text(note, "valueExpression"), format!("{path}.valueExpression"));
            if expression.trim().len() > LONGEST_NOTE_EXPRESSION {
                let detail = format!("must not exceed {LONGEST_NOTE_EXPRESSION} bytes in length");
                causes.add(Cause::required(field, &detail));
            } else {
                expressed(expression, &field, "valueExpression is not specified", &known, &mut causes);
            }
            if !seen.insert(key) {
                causes.add(Cause::duplicate(format!("{path}.key"), key));
            }
        }
        causes.0
    }

    fn columns(&self) -> &'static [Column] {
        const { &[Column::NAME, Column::integer("Validations"), Column::text("ParamKind"), Column::AGE] }
    }

    fn row(&self, obj: &Value, now_unix: i64) -> Vec<Value> {
        row(obj, "validations", now_unix)
    }
}

impl Hooks for MutatingPolicies {
    fn defaults(&self, obj: &mut Value) {
        defaults(obj);
    }

    fn validate(&self, obj: &Value, old: Option<&Value>) -> Vec<Cause> {
        let mut causes = Causes::default();
        let variables = common(obj, old, &mut causes);
        let spec = &obj["spec"];
        operations(&spec["matchConstraints"], "spec.matchConstraints", &mut causes);
        let mutations = items(spec, "mutations");
        if mutations.is_empty() {
            causes.add(Cause::required("spec.mutations", "mutations must contain at least one item"));
        }
        let params = spec["paramKind"].is_object();
        let known =
            Known { params, authorizer: true, variables: &variables, objects: true, ..Known::default() };
        for (i, m) in mutations.iter().enumerate() {
            mutation(m, &format!("spec.mutations[{i}]"), &known, &mut causes);
        }
        causes.needed(spec, "reinvocationPolicy", "spec");
        causes.one_of(spec, "reinvocationPolicy", "spec", &["IfNeeded", "Never"]);
        causes.0
    }

    fn columns(&self) -> &'static [Column] {
        const { &[Column::NAME, Column::integer("Mutations"), Column::text("ParamKind"), Column::AGE] }
    }

    fn row(&self, obj: &Value, now_unix: i64) -> Vec<Value> {
        row(obj, "mutations", now_unix)
    }
}

fn row(obj: &Value, what: &str, now_unix: i64) -> Vec<Value> {
    let spec = &obj["spec"];
    let kind = &spec["paramKind"];
    let shown = if kind.is_object() {
        format!("{}/{}", text(kind, "apiVersion"), text(kind, "kind"))
    } else {
        "<unset>".to_owned()
    };
    vec![name(obj), items(spec, what).len().into(), shown.into(), age(obj, now_unix)]
}

fn defaults(obj: &mut Value) {
    let spec = &mut obj["spec"];
    if !spec.is_object() {
        return;
    }
    default(spec, "failurePolicy", "Fail");
    if let Some(constraints) = spec.get_mut("matchConstraints").filter(|c| c.is_object()) {
        super::resources_defaults(constraints);
    }
}

/// What all policies have in common; gives the names of the variables.
fn common(obj: &Value, old: Option<&Value>, causes: &mut Causes) -> Vec<String> {
    let spec = &obj["spec"];
    causes.needed(spec, "failurePolicy", "spec");
    causes.one_of(spec, "failurePolicy", "spec", &["Fail", "Ignore"]);
    let params = spec["paramKind"].is_object();
    if params {
        param_kind(&spec["paramKind"], causes);
    }
    let constraints = &spec["matchConstraints"];
    if is_unset(constraints) {
        causes.add(Cause::required("spec.matchConstraints", ""));
    } else {
        super::resources(constraints, "spec.matchConstraints", causes);
        if items(constraints, "resourceRules").is_empty() {
            causes.add(Cause::required("spec.matchConstraints.resourceRules", ""));
        }
    }
    let same = |key: &str| old.is_some_and(|old| old["spec"][key] == spec[key]);
    if !(same("paramKind") && same("matchConditions")) {
        let known = Known { params, authorizer: true, ..Known::default() };
        matching::conditions(items(spec, "matchConditions"), "spec.matchConditions", &known, causes);
    }
    let mut variables: Vec<String> = Vec::new();
    for (i, variable) in items(spec, "variables").iter().enumerate() {
        let path = format!("spec.variables[{i}]");
        let own = text(variable, "name");
        if own.trim().is_empty() {
            causes.add(Cause::required(format!("{path}.name"), "name is not specified"));
        } else if !is_identifier(own) {
            causes.add(Cause::invalid(format!("{path}.name"), own, "must be a valid CEL identifier"));
        }
        let known =
            Known { params, authorizer: true, variables: &variables, objects: false, ..Known::default() };
        let field = format!("{path}.expression");
        expressed(text(variable, "expression"), &field, "expression is not specified", &known, causes);
        variables.push(own.to_owned());
    }
    variables
}

fn is_identifier(name: &str) -> bool {
    name.starts_with(|c: char| c == '_' || c.is_ascii_alphabetic())
        && name.chars().all(|c| c == '_' || c.is_ascii_alphanumeric())
        && !RESERVED.contains(&name)
}

fn param_kind(kind: &Value, causes: &mut Causes) {
    causes.needed(kind, "apiVersion", "spec.paramKind");
    let version = text(kind, "apiVersion");
    if !version.is_empty() {
        let field = "spec.paramKind.apiVersion";
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        if !group.is_empty() {
            causes.name(field, group, names::dns1123_subdomain);
        }
        causes.name(field, version, names::dns1035_label);
    }
    causes.needed(kind, "kind", "spec.paramKind");
    let own = text(kind, "kind");
    if !own.is_empty() {
        causes.name("spec.paramKind.kind", &own.to_lowercase(), names::dns1035_label);
    }
}

fn validation(v: &Value, path: &str, known: &Known<'_>, causes: &mut Causes) {
    let field = format!("{path}.expression");
    expressed(text(v, "expression"), &field, "expression is not specified", known, causes);
    let made = text(v, "messageExpression");
    if !made.is_empty() {
        let field = format!("{path}.messageExpression");
        if made.trim().is_empty() {
            causes.add(Cause::invalid(field, made, "must be non-empty if specified"));
        } else {
            expressed(made, &field, "", &Known { authorizer: false, ..*known }, causes);
        }
    }
    let message = text(v, "message");
    if !message.is_empty() && message.trim().is_empty() {
        causes.add(Cause::invalid(format!("{path}.message"), message, "must be non-empty if specified"));
    } else if message.trim().contains(['\n', '\r']) {
        causes.add(Cause::invalid(format!("{path}.message"), message, "must not contain line breaks"));
    }
    causes.one_of(v, "reason", path, &["Forbidden", "Invalid", "RequestEntityTooLarge"]);
}

fn mutation(m: &Value, path: &str, known: &Known<'_>, causes: &mut Causes) {
    let kinds = [("JSONPatch", "jsonPatch"), ("ApplyConfiguration", "applyConfiguration")];
    causes.needed(m, "patchType", path);
    causes.one_of(m, "patchType", path, &kinds.map(|(kind, _)| kind));
    let given = text(m, "patchType");
    if !kinds.iter().any(|(kind, _)| *kind == given) {
        return;
    }
    for (kind, key) in kinds {
        let field = format!("{path}.{key}");
        match (kind == given, m[key].is_object()) {
            (true, true) => {
                expressed(text(&m[key], "expression"), &format!("{field}.expression"), "", known, causes);
            }
            (true, false) => {
                let detail = format!("must be specified when patchType is {kind}");
                causes.add(Cause::required(field, &detail));
            }
            (false, true) => {
                let detail = format!("must not be specified when patchType is {given}");
                causes.add(Cause::invalid(field, format!("{{{key}}}"), &detail));
            }
            (false, false) => {}
        }
    }
}

/// Nothing can be changed of what is deleted.
pub(super) fn operations(resources: &Value, path: &str, causes: &mut Causes) {
    for rule in items(resources, "resourceRules") {
        for operation in items(rule, "operations").iter().filter(|o| !CHANGEABLE.iter().any(|c| *o == c)) {
            let field = format!("{path}.resourceRules.operations");
            causes.add(Cause::not_supported(field, operation.clone(), &CHANGEABLE));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn policy() -> Value {
        let mut policy = json!({"metadata": {"name": "p.example.org"}, "spec": {
            "matchConstraints": {"resourceRules": [
                {"operations": ["CREATE"], "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"]}]},
            "variables": [{"name": "replicas", "expression": "object.spec.replicas"}],
            "validations": [{"expression": "variables.replicas > 1", "messageExpression": "'got ' + string(variables.replicas)"}],
            "auditAnnotations": [{"key": "k", "valueExpression": "'v'"}]}});
        ValidatingPolicies.defaults(&mut policy);
        policy
    }

    #[test]
    fn a_policy_is_checked_with_its_expressions() {
        assert_eq!(ValidatingPolicies.validate(&policy(), None), []);
        assert_eq!(policy()["spec"]["failurePolicy"], "Fail");
        assert_eq!(policy()["spec"]["matchConstraints"]["matchPolicy"], "Equivalent");
        for (pointer, value, wanted) in [
            ("/validations", json!([]), None),
            (
                "/validations/0/expression",
                json!(" "),
                Some("spec.validations[0].expression: Required value: expression is not specified"),
            ),
            ("/validations/0/expression", json!("variables.other"), Some("undefined field 'other'")),
            ("/validations/0/expression", json!("params.x"), Some("undeclared reference to 'params'")),
            (
                "/validations/0/messageExpression",
                json!("authorizer.path('/')"),
                Some("undeclared reference to 'authorizer'"),
            ),
            (
                "/validations/0/reason",
                json!("Whim"),
                Some("spec.validations[0].reason: Unsupported value: \"Whim\""),
            ),
            ("/validations/0/message", json!("a\nb"), Some("must not contain line breaks")),
            ("/variables/0/name", json!("if"), Some("must be a valid CEL identifier")),
            ("/variables/0/expression", json!("variables.replicas"), Some("undefined field 'replicas'")),
            ("/paramKind", json!({"apiVersion": "v1"}), Some("spec.paramKind.kind: Required value")),
            ("/matchConstraints", json!(null), Some("spec.matchConstraints: Required value")),
            ("/failurePolicy", json!("Perhaps"), Some("spec.failurePolicy: Unsupported value")),
            ("/auditAnnotations/0/key", json!("a/b"), Some("spec.auditAnnotations[0].key")),
        ] {
            let mut changed = policy();
            for key in ["reason", "message"] {
                changed["spec"]["validations"][0][key] = json!(null);
            }
            changed["spec"]["paramKind"] = json!(null);
            *changed.pointer_mut(&format!("/spec{pointer}")).unwrap() = value;
            let causes: Vec<String> =
                ValidatingPolicies.validate(&changed, None).iter().map(ToString::to_string).collect();
            match wanted {
                Some(wanted) => assert!(causes.iter().any(|c| c.contains(wanted)), "{wanted}: {causes:?}"),
                None => assert_eq!(causes, Vec::<String>::new(), "{pointer}"),
            }
        }
    }

    #[test]
    fn a_mutation_is_of_one_kind_and_never_of_what_is_deleted() {
        let mut policy = policy();
        policy["spec"]["reinvocationPolicy"] = "Never".into();
        policy["spec"]["mutations"] = json!([
            {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{spec: Object.spec{replicas: 2}}"}},
            {"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 'remove', path: '/x'}]"}}]);
        assert_eq!(MutatingPolicies.validate(&policy, None), []);
        policy["spec"]["mutations"][1]["applyConfiguration"] = json!({"expression": "Object{}"});
        policy["spec"]["matchConstraints"]["resourceRules"][0]["operations"] = json!(["DELETE"]);
        policy["spec"]["reinvocationPolicy"] = json!(null);
        let causes: Vec<String> =
            MutatingPolicies.validate(&policy, None).iter().map(|c| c.field.clone()).collect();
        assert_eq!(
            causes,
            [
                "spec.matchConstraints.resourceRules.operations",
                "spec.mutations[1].applyConfiguration",
                "spec.reinvocationPolicy"
            ]
        );
    }
}
