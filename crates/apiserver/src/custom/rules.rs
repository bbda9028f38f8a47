//! The CEL rules of a custom kind (`x-kubernetes-validations`).

use kube_cel::{CompiledSchema, ErrorKind, RootContext, Validator, compile_schema};
use serde_json::Value;

use super::Version;
use super::definition::mentions;
use super::values::{at, named};
use crate::cel::{bounded, evaluating};
use crate::kinds::Cause;

/// The rules of a schema, compiled once.
#[derive(Default)]
pub struct Rules {
    compiled: Option<CompiledSchema>,
    /// Rules that are not compiled at all.
    refused: Vec<String>,
}

impl std::fmt::Debug for Rules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.compiled.is_some() { "Rules" } else { "no Rules" })
    }
}

impl Rules {
    /// Compiles the rules of a schema, if it has any.
    #[must_use]
    pub fn compile(schema: &Value) -> Self {
        if !mentions(schema, "x-kubernetes-validations") {
            return Self::default();
        }
        let mut refused = Vec::new();
        each(schema, &mut |rule| {
            if let Err(why) = bounded(rule) {
                refused.push(format!("failed to compile rule {rule:?}: {why}"));
            }
        });
        // What is not bounded must not reach the compiler.
        let compiled = refused.is_empty().then(|| evaluating(|| compile_schema(schema)));
        Self { compiled, refused }
    }

    /// The rules that cannot be compiled.
    #[must_use]
    pub fn errors(&self) -> Vec<String> {
        let errors = self.compiled.iter().flat_map(CompiledSchema::compilation_errors);
        self.refused.iter().cloned().chain(errors.map(ToString::to_string)).collect()
    }
}

/// Does something with every expression of a schema.
fn each(schema: &Value, act: &mut impl FnMut(&str)) {
    match schema {
        Value::Object(map) => {
            let rules = map.get("x-kubernetes-validations").and_then(Value::as_array).into_iter().flatten();
            let texts = rules.flat_map(|rule| [&rule["rule"], &rule["messageExpression"]]);
            texts.filter_map(Value::as_str).for_each(&mut *act);
            map.values().for_each(|value| each(value, act));
        }
        Value::Array(list) => list.iter().for_each(|value| each(value, act)),
        _ => {}
    }
}

/// What the rules of its version say against an object.
pub(super) fn against(version: &Version, object: &Value, old: Option<&Value>) -> Vec<Cause> {
    let Some(compiled) = &version.rules.compiled else { return Vec::new() };
    let group = version.api_version.split('/').next().unwrap_or_default().to_owned();
    let root = RootContext {
        api_version: version.api_version.clone(),
        api_group: group,
        kind: version.kind.clone(),
    };
    let judged =
        evaluating(|| Validator::new().validate_compiled_with_context(compiled, object, old, Some(&root)));
    let Err(errors) = judged else { return Vec::new() };
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
        assert!(
            Rules::compile(&json!({"x-kubernetes-validations": [{"rule": "self.("}]})).errors().len() == 1
        );
    }

    #[test]
    fn a_rule_that_would_stop_the_server_is_refused() {
        for (rule, wanted) in [
            (vec!["1"; 3000].join("+"), "expression recursion limit exceeded"),
            ("[".repeat(3000), "failed to compile rule"),
            ("Pod{} == self".to_owned(), "undeclared reference to 'Pod'"),
        ] {
            let schema = json!({"properties": {"a": {"x-kubernetes-validations": [{"rule": rule}]}}});
            let errors = Rules::compile(&schema).errors();
            assert!(errors.len() == 1 && errors[0].contains(wanted), "{errors:?}");
        }
    }
}
