//! Unknown fields and wrong types, as the decoding of a request finds them.

use super::{ObjectRef, Scalar, SchemaRef, Shape};
use crate::{quantity, time};
use serde_json::{Map, Value};

/// The most errors reported for one object.
const MAX_ERRORS: usize = 100;

/// One field that does not fit its type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// Path, as `spec.containers[0].image`.
    pub path: String,
    /// What is wrong with it.
    pub problem: Problem,
}

/// What is wrong with a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// The type has no such field.
    Unknown,
    /// The same field is there twice.
    Duplicate,
    /// The value has another type.
    Type {
        /// What the type wants.
        expected: &'static str,
        /// What is there.
        got: String,
    },
}

impl FieldError {
    /// Whether the object cannot be read at all; unknown and duplicate fields are errors under strict validation only.
    pub fn is_fatal(&self) -> bool {
        matches!(self.problem, Problem::Type { .. })
    }
}

impl std::fmt::Display for FieldError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.problem {
            Problem::Unknown => write!(f, "unknown field {:?}", self.path),
            Problem::Duplicate => write!(f, "duplicate field {:?}", self.path),
            Problem::Type { expected, got } => write!(f, "{}: expected {expected}, got {got}", self.path),
        }
    }
}

/// Everything in the object that does not fit the schema. Null is the absence of a value and fits everywhere.
pub fn check<'a>(schema: impl Into<SchemaRef<'a>>, object: &Value) -> Vec<FieldError> {
    let mut walk = Walk { path: String::new(), errors: Vec::new(), lenient: false };
    walk.value(schema.into(), object);
    walk.errors
}

struct Walk {
    path: String,
    errors: Vec<FieldError>,
    /// Unknown fields go without a word: upstream's strict decoding does not look below what has two forms.
    lenient: bool,
}

impl Walk {
    fn report(&mut self, problem: Problem) {
        if self.errors.len() < MAX_ERRORS {
            self.errors.push(FieldError { path: self.path.clone(), problem });
        }
    }

    fn wrong(&mut self, expected: &'static str, got: &Value) {
        let got = match got {
            Value::Null => "null".to_owned(),
            Value::Bool(_) => "boolean".to_owned(),
            Value::Number(n) => format!("number {n}"),
            Value::String(s) if s.len() <= 64 => format!("string {s:?}"),
            Value::String(_) => "a long string".to_owned(),
            Value::Array(_) => "array".to_owned(),
            Value::Object(_) => "object".to_owned(),
        };
        self.report(Problem::Type { expected, got });
    }

    fn within(&mut self, step: &str, visit: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        if length > 0 && !step.starts_with('[') {
            self.path.push('.');
        }
        self.path.push_str(step);
        visit(self);
        self.path.truncate(length);
    }

    fn value(&mut self, schema: SchemaRef<'_>, value: &Value) {
        if value.is_null() {
            return;
        }
        let around = self.lenient;
        self.lenient |= schema.either().is_some();
        self.shaped(schema.shape_for(value), value);
        self.lenient = around;
    }

    fn shaped(&mut self, shape: Shape<'_>, value: &Value) {
        match (shape, value) {
            (Shape::Any, _) => {}
            (Shape::Scalar(scalar), value) => {
                if let Some(expected) = misfit(scalar, value) {
                    self.wrong(expected, value);
                }
            }
            (Shape::Object(object), Value::Object(map)) => self.fields(object, map),
            (Shape::Object(_), other) => self.wrong("object", other),
            (Shape::List(list), Value::Array(items)) => {
                for (i, inner) in items.iter().enumerate() {
                    self.within(&format!("[{i}]"), |walk| walk.value(list.items, inner));
                }
            }
            (Shape::List(_), other) => self.wrong("array", other),
        }
    }

    fn fields(&mut self, object: ObjectRef<'_>, map: &Map<String, Value>) {
        for (name, inner) in map {
            self.within(name, |walk| match object.below(name) {
                Some(schema) => walk.value(schema, inner),
                None if walk.lenient => {}
                None => walk.report(Problem::Unknown),
            });
        }
    }
}

/// What should be there, if it is something else.
fn misfit(scalar: Scalar, value: &Value) -> Option<&'static str> {
    let (fits, expected) = match scalar {
        Scalar::String => (value.is_string(), "string"),
        Scalar::Bool => (value.is_boolean(), "boolean"),
        Scalar::Int32 => (value.as_i64().is_some_and(|n| i32::try_from(n).is_ok()), "32-bit integer"),
        Scalar::Int64 => (value.as_i64().is_some(), "64-bit integer"),
        Scalar::Double => (value.is_number(), "number"),
        Scalar::Bytes => (value.as_str().is_some_and(is_base64), "base64 string"),
        Scalar::Time => (value.as_str().is_some_and(|s| time::parse(s).is_some()), "RFC 3339 time"),
        Scalar::Quantity => (quantity::from_value(value).is_ok(), "quantity"),
        Scalar::IntOrString => (value.is_string() || value.as_i64().is_some(), "integer or string"),
    };
    (!fits).then_some(expected)
}

fn is_base64(text: &str) -> bool {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.decode(text.replace(['\n', '\r'], "")).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn messages(kind: &str, object: &Value) -> Vec<String> {
        check(super::super::of("", "v1", kind).unwrap(), object).iter().map(FieldError::to_string).collect()
    }

    #[test]
    fn a_good_pod_has_no_errors() {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "web", "labels": {"a": "b"}, "creationTimestamp": null,
                "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {}}, "time": "2026-01-02T03:04:05Z"}]},
            "spec": {"nodeName": null, "overhead": {"cpu": 1, "memory": "1Gi"}, "containers": [{"name": "c", "image": "i",
                "livenessProbe": {"httpGet": {"port": "http"}}, "readinessProbe": {"tcpSocket": {"port": 80}},
                "resources": {"limits": {"cpu": 0.5}}}]},
        });
        assert_eq!(messages("Pod", &pod), Vec::<String>::new());
    }

    #[test]
    fn below_what_has_two_forms_types_count_and_unknown_fields_do_not() {
        let found = |property: Value| -> Vec<String> {
            let version = json!({"schema": {"openAPIV3Schema": {"properties": {"p": property}}}});
            let definition = json!({"spec": {"versions": [version]}});
            let ty = super::super::of("apiextensions.k8s.io", "v1", "CustomResourceDefinition").unwrap();
            let errors = check(ty, &definition);
            errors
                .iter()
                .map(|e| e.to_string().replace("spec.versions[0].schema.openAPIV3Schema.", ""))
                .collect()
        };
        let none = Vec::<String>::new();
        assert_eq!(found(json!({"items": {"type": "string", "odd": 1}, "additionalProperties": true})), none);
        assert_eq!(
            found(json!({"items": {"type": 1}})),
            ["properties.p.items.type: expected string, got number 1"]
        );
        assert_eq!(found(json!({"items": 1})), ["properties.p.items: expected object, got number 1"]);
        assert_eq!(found(json!({"odd": 1})), ["unknown field \"properties.p.odd\""]);
    }

    #[test]
    fn each_misfit_is_named_with_its_path() {
        for (kind, object, wanted) in [
            ("Pod", json!({"spec": {"foo": 1}}), "unknown field \"spec.foo\""),
            (
                "Pod",
                json!({"spec": {"containers": [{"imagee": "x"}]}}),
                "unknown field \"spec.containers[0].imagee\"",
            ),
            ("Pod", json!({"spec": {"containers": {}}}), "spec.containers: expected array, got object"),
            ("Pod", json!({"spec": []}), "spec: expected object, got array"),
            ("Pod", json!([]), ": expected object, got array"),
            (
                "Pod",
                json!({"metadata": {"labels": {"a": 1}}}),
                "metadata.labels.a: expected string, got number 1",
            ),
            (
                "Pod",
                json!({"spec": {"containers": [{"ports": [{"containerPort": "80"}]}]}}),
                "spec.containers[0].ports[0].containerPort: expected 32-bit integer, got string \"80\"",
            ),
            (
                "Pod",
                json!({"spec": {"priority": 3_000_000_000_i64}}),
                "spec.priority: expected 32-bit integer, got number 3000000000",
            ),
            (
                "Pod",
                json!({"spec": {"priority": 1.5}}),
                "spec.priority: expected 32-bit integer, got number 1.5",
            ),
            (
                "Pod",
                json!({"spec": {"hostNetwork": "true"}}),
                "spec.hostNetwork: expected boolean, got string \"true\"",
            ),
            (
                "Pod",
                json!({"spec": {"overhead": {"cpu": "lots"}}}),
                "spec.overhead.cpu: expected quantity, got string \"lots\"",
            ),
            (
                "Pod",
                json!({"metadata": {"creationTimestamp": "now"}}),
                "metadata.creationTimestamp: expected RFC 3339 time, got string \"now\"",
            ),
            ("Secret", json!({"data": {"k": "%"}}), "data.k: expected base64 string, got string \"%\""),
            (
                "Service",
                json!({"spec": {"ports": [{"targetPort": true}]}}),
                "spec.ports[0].targetPort: expected integer or string, got boolean",
            ),
        ] {
            assert_eq!(messages(kind, &object), [wanted]);
        }
    }
}
