//! What is wrong with an object, field by field.

use serde_json::Value;

/// One thing that is wrong with one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// What sort of wrong.
    pub kind: CauseKind,
    /// Path of the field, as `spec.containers[0].image`.
    pub field: String,
    /// What is wrong, with the value where there is one: the `message` of a `StatusCause`.
    pub message: String,
}

/// The sorts of wrong that the API knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CauseKind {
    /// The field is needed and absent.
    Required,
    /// Another item has the same key.
    Duplicate,
    /// The value has the wrong form.
    Invalid,
    /// The value is not one of those known.
    NotSupported,
    /// The field may not be set, or not changed.
    Forbidden,
    /// The value is longer than allowed.
    TooLong,
    /// The list is longer than allowed.
    TooMany,
    /// What the field refers to is not there.
    NotFound,
    /// The server could not judge the value.
    Internal,
    /// No fault of the object's: a step of admission does not let it in.
    Denied,
}

impl CauseKind {
    /// The `reason` of a `StatusCause`.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::NotFound => "FieldValueNotFound",
            Self::Internal => "InternalError",
            Self::Denied => "Forbidden",
        }
    }
}

fn with_detail(head: String, detail: &str) -> String {
    if detail.is_empty() { head } else { format!("{head}: {detail}") }
}

/// A value as messages show it: strings quoted, numbers bare, the rest as JSON.
fn shown(value: &Value) -> String {
    value.to_string()
}

impl Cause {
    fn new(kind: CauseKind, field: impl Into<String>, message: String) -> Self {
        Self { kind, field: field.into(), message }
    }

    /// Admission does not let the object in. It is answered as forbidden, whatever else is wrong.
    pub fn denied(why: impl Into<String>) -> Self {
        Self::new(CauseKind::Denied, "", why.into())
    }

    /// A needed field is absent.
    pub fn required(field: impl Into<String>, detail: &str) -> Self {
        Self::new(CauseKind::Required, field, with_detail("Required value".to_owned(), detail))
    }

    /// A key is there twice.
    pub fn duplicate(field: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::new(CauseKind::Duplicate, field, format!("Duplicate value: {}", shown(&value.into())))
    }

    /// A value has the wrong form.
    pub fn invalid(field: impl Into<String>, value: impl Into<Value>, detail: &str) -> Self {
        Self::new(
            CauseKind::Invalid,
            field,
            with_detail(format!("Invalid value: {}", shown(&value.into())), detail),
        )
    }

    /// A value is none of those known.
    pub fn not_supported(field: impl Into<String>, value: impl Into<Value>, supported: &[&str]) -> Self {
        let mut names: Vec<String> = supported.iter().map(|s| format!("{s:?}")).collect();
        names.sort();
        let head = format!("Unsupported value: {}", shown(&value.into()));
        let detail =
            if names.is_empty() { String::new() } else { format!("supported values: {}", names.join(", ")) };
        Self::new(CauseKind::NotSupported, field, with_detail(head, &detail))
    }

    /// A field may not be set or changed.
    pub fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self::new(CauseKind::Forbidden, field, with_detail("Forbidden".to_owned(), detail))
    }

    /// A value is too long.
    pub fn too_long(field: impl Into<String>, max: usize) -> Self {
        Self::new(CauseKind::TooLong, field, format!("Too long: may not be more than {max} bytes"))
    }

    /// A list is too long.
    pub fn too_many(field: impl Into<String>, has: usize, max: usize) -> Self {
        let message = format!("Too many: {has}: must have at most {max} items");
        Self::new(CauseKind::TooMany, field, message)
    }

    /// What is referred to is not there.
    pub fn not_found(field: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::new(CauseKind::NotFound, field, format!("Not found: {}", shown(&value.into())))
    }
}

/// Path and message on one line, as they stand in a Status.
impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// An object was refused (422). Never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid(pub Vec<Cause>);

impl From<Cause> for Invalid {
    fn from(cause: Cause) -> Self {
        Self(vec![cause])
    }
}

/// The part of a Status message after `Kind "name" is invalid: `.
impl std::fmt::Display for Invalid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.as_slice() {
            [one] => write!(f, "{one}"),
            many => {
                let lines: Vec<String> = many.iter().map(Cause::to_string).collect();
                write!(f, "[{}]", lines.join(", "))
            }
        }
    }
}

impl std::error::Error for Invalid {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_read_as_clients_know_them() {
        let cases = [
            (Cause::required("spec.a", ""), "spec.a: Required value"),
            (Cause::required("spec.a", "must be set"), "spec.a: Required value: must be set"),
            (Cause::duplicate("spec.c[1].name", "x"), "spec.c[1].name: Duplicate value: \"x\""),
            (Cause::invalid("spec.n", 7, "too big"), "spec.n: Invalid value: 7: too big"),
            (
                Cause::not_supported("spec.p", "x", &["b", "a"]),
                "spec.p: Unsupported value: \"x\": supported values: \"a\", \"b\"",
            ),
            (Cause::forbidden("spec", "no"), "spec: Forbidden: no"),
            (Cause::not_found("spec.v", "data"), "spec.v: Not found: \"data\""),
        ];
        for (cause, text) in cases {
            assert_eq!(cause.to_string(), text);
        }
        let two = Invalid(vec![Cause::required("a", ""), Cause::required("b", "")]);
        assert_eq!(two.to_string(), "[a: Required value, b: Required value]");
    }
}
