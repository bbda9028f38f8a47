//! The CEL rules of a custom kind (`x-kubernetes-validations`).

use kube_cel::{CompiledSchema, ErrorKind, RootContext, Validator, compile_schema};
use serde_json::Value;

use super::Version;
use super::definition::mentions;
use super::values::{at, named};
use crate::kinds::Cause;
use trine_cel::{bounded, evaluating, reading};

const RULES: &str = "x-kubernetes-validations";

/// The rules of a schema, compiled once.
pub enum Rules {
    /// There are none.
    None,
    /// Those of the whole schema.
    Compiled(Box<CompiledSchema>),
    /// Some cannot be read, or are too long or deep to be; nothing can be said about an object.
    Refused(Vec<(String, String)>),
}

impl std::fmt::Debug for Rules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Compiled(_) => "Compiled",
            Self::Refused(_) => "Refused",
        })
    }
}

impl Rules {
    /// Compiles the rules of a schema, if it has any.
    #[must_use]
    pub fn compile(schema: &Value) -> Self {
        if !mentions(schema, RULES) {
            return Self::None;
        }
        let mut refused = Vec::new();
        refuse(schema, "", &mut refused);
        // What is not bounded must not reach the compiler, which reads it once more.
        if refused.is_empty() {
            Self::Compiled(Box::new(reading(|| compile_schema(schema))))
        } else {
            Self::Refused(refused)
        }
    }

    /// The rules that cannot be compiled: where each stands below the schema, and why.
    #[must_use]
    pub fn errors(&self) -> Vec<(String, String)> {
        match self {
            Self::None => Vec::new(),
            Self::Compiled(compiled) => {
                let mut found = Vec::new();
                failed(compiled, "", &mut found);
                found
            }
            Self::Refused(errors) => errors.clone(),
        }
    }
}

fn failed(node: &CompiledSchema, path: &str, found: &mut Vec<(String, String)>) {
    let rules = node.validations.iter().enumerate();
    let errors = rules.filter_map(|(i, rule)| Some((i, rule.as_ref().err()?)));
    found.extend(errors.map(|(i, e)| (format!("{path}.{RULES}[{i}].rule"), e.to_string())));
    let mut names: Vec<&String> = node.properties.keys().collect();
    names.sort();
    for name in names {
        failed(&node.properties[name], &format!("{path}.properties[{name}]"), found);
    }
    for (below, child) in [("items", &node.items), ("additionalProperties", &node.additional_properties)] {
        if let Some(child) = child {
            failed(child, &format!("{path}.{below}"), found);
        }
    }
}

/// The rules of a schema that are not [`bounded`], as [`Rules::errors`] names them.
fn refuse(schema: &Value, path: &str, found: &mut Vec<(String, String)>) {
    for (i, rule) in schema[RULES].as_array().into_iter().flatten().enumerate() {
        for field in ["rule", "messageExpression"] {
            let error = rule[field].as_str().and_then(|text| bounded(text).err());
            found.extend(error.map(|why| (format!("{path}.{RULES}[{i}].{field}"), why)));
        }
    }
    for (name, child) in schema["properties"].as_object().into_iter().flatten() {
        refuse(child, &format!("{path}.properties[{name}]"), found);
    }
    for below in ["items", "additionalProperties"] {
        if schema[below].is_object() {
            refuse(&schema[below], &format!("{path}.{below}"), found);
        }
    }
    for below in ["allOf", "anyOf", "oneOf"] {
        for (i, child) in schema[below].as_array().into_iter().flatten().enumerate() {
            refuse(child, &format!("{path}.{below}[{i}]"), found);
        }
    }
}

/// What the rules of its version say against an object.
pub(super) fn against(version: &Version, object: &Value, old: Option<&Value>) -> Vec<Cause> {
    let compiled = match &version.rules {
        Rules::None => return Vec::new(),
        Rules::Refused(errors) => {
            return errors.iter().map(|(_, why)| Cause::invalid(String::new(), Value::Null, why)).collect();
        }
        Rules::Compiled(compiled) => compiled,
    };
    let group = version.api_version.split('/').next().unwrap_or_default().to_owned();
    let root = RootContext {
        api_version: version.api_version.clone(),
        api_group: group,
        kind: version.kind.clone(),
    };
    let judge = || Validator::new().validate_compiled_with_context(compiled, object, old, Some(&root));
    let Err(errors) = evaluating(judge) else { return Vec::new() };
    errors.into_vec().into_iter().map(|error| cause(&error, object)).collect()
}

fn cause(error: &kube_cel::ValidationError, object: &Value) -> Cause {
    let field = named(&error.field_path);
    let shown = shown(at(object, &field).unwrap_or(&Value::Null));
    if error.kind != ErrorKind::ValidationFailure {
        return Cause::invalid(field, shown, &format!("{} (rule: {})", error.message, error.rule));
    }
    let message = error.message.as_str();
    match error.reason.as_deref() {
        Some("FieldValueForbidden") => Cause::forbidden(field, message),
        Some("FieldValueRequired") => Cause::required(field, message),
        Some("FieldValueDuplicate") => Cause::duplicate(field, shown),
        _ => Cause::invalid(field, shown, message),
    }
}

/// Upstream shows plain values as they are and the type of the rest.
fn shown(value: &Value) -> Value {
    match value {
        Value::Object(_) => "object".into(),
        Value::Array(_) => "array".into(),
        plain => plain.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Definition;
    use super::*;
    use serde_json::json;

    #[test]
    fn rules_and_transition_rules_are_kept() {
        let definition = Definition::read(
            &json!({"metadata": {"name": "a.x.io"}, "spec": {"group": "x.io", "names": {"plural": "as", "kind": "A"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object",
                    "x-kubernetes-validations": [{"rule": "self.min <= self.max", "message": "min is above max"}],
                    "properties": {"min": {"type": "integer"}, "max": {"type": "integer"},
                        "name": {"type": "string", "x-kubernetes-validations": [
                            {"rule": "self == oldSelf", "message": "is immutable", "reason": "FieldValueForbidden"}]}}}}}}}]}}),
        );
        let version = definition.storage().unwrap();
        let good = json!({"spec": {"min": 1, "max": 2, "name": "a"}});
        assert_eq!(against(version, &good, None), []);
        assert_eq!(against(version, &good, Some(&good)), []);
        let bad = json!({"spec": {"min": 3, "max": 2, "name": "b"}});
        let causes: Vec<String> =
            against(version, &bad, Some(&good)).iter().map(ToString::to_string).collect();
        assert_eq!(
            causes,
            ["spec: Invalid value: \"object\": min is above max", "spec.name: Forbidden: is immutable"]
        );
    }

    #[test]
    fn rules_that_cannot_be_compiled_are_named_wherever_they_stand() {
        let bad = |rule: &str| json!({"type": "object", "x-kubernetes-validations": [{"rule": "true"}, {"rule": rule}]});
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "list": {"type": "array", "items": bad("self.(")},
            "map": {"type": "object", "additionalProperties": bad("&&")}}}}});
        let found = Rules::compile(&schema).errors();
        let paths: Vec<&str> = found.iter().map(|(path, _)| path.as_str()).collect();
        let wanted = [
            ".properties[spec].properties[list].items.x-kubernetes-validations[1].rule",
            ".properties[spec].properties[map].additionalProperties.x-kubernetes-validations[1].rule",
        ];
        assert_eq!(paths, wanted);
    }

    #[test]
    fn a_rule_without_end_is_refused_and_harms_nobody() {
        let deep = vec!["1"; 4000].join("+") + " > 0";
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object",
            "x-kubernetes-validations": [{"rule": deep}]}}});
        let rules = Rules::compile(&schema);
        let path = ".properties[spec].x-kubernetes-validations[0].rule".to_owned();
        assert_eq!(rules.errors(), [(path, "expression recursion limit exceeded".to_owned())]);
        // Twenty pairs of parentheses were more than a thread's stack could take.
        let nested = json!({"type": "object", "x-kubernetes-validations": [
            {"rule": format!("{}self.a{} > 0", "(".repeat(200), ")".repeat(200))}]});
        assert!(Rules::compile(&nested).errors().len() < 2);
        // The interpreter has no structs, and would panic.
        let structs = json!({"type": "object", "x-kubernetes-validations": [{"rule": "Pod{} == self"}]});
        let undeclared = "undeclared reference to 'Pod' (in container '')";
        assert_eq!(
            Rules::compile(&structs).errors(),
            [(".x-kubernetes-validations[0].rule".to_owned(), undeclared.to_owned())]
        );
    }

    #[test]
    fn a_rule_that_would_stop_the_server_is_refused() {
        for (rule, wanted) in [
            (vec!["1"; 3000].join("+"), "expression recursion limit exceeded"),
            ("[".repeat(3000), "ERROR"),
            ("Pod{} == self".to_owned(), "undeclared reference to 'Pod'"),
        ] {
            let schema = json!({"properties": {"a": {"x-kubernetes-validations": [{"rule": rule}]}}});
            let errors = Rules::compile(&schema).errors();
            assert!(errors.len() == 1 && errors[0].1.contains(wanted), "{errors:?}");
        }
    }
}
