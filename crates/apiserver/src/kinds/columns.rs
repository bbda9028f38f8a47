//! The columns of a table, and the cells that many kinds share.

use serde_json::Value;

/// One column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ColumnOf<'a> {
    /// Heading.
    pub name: &'a str,
    /// JSON type of its cells.
    pub type_: &'a str,
    /// Further meaning: `name` marks the object's name.
    pub format: &'a str,
    /// What it shows.
    pub description: &'a str,
    /// 0 is always shown; 1 only in the wide form.
    pub priority: i32,
}

/// A column of a kind that is built in.
pub type Column = ColumnOf<'static>;

impl<'a> ColumnOf<'a> {
    /// A column of text that is always shown.
    pub const fn text(name: &'a str) -> Self {
        Self { name, type_: "string", format: "", description: "", priority: 0 }
    }

    /// A column of integers that is always shown.
    pub const fn integer(name: &'a str) -> Self {
        Self { type_: "integer", ..Self::text(name) }
    }

    /// The same column, shown in the wide form only.
    pub const fn wide(self) -> Self {
        Self { priority: 1, ..self }
    }

    /// The column of names.
    pub const NAME: Self = Self { format: "name", ..Self::text("Name") };

    /// The column of ages.
    pub const AGE: Self = Self::text("Age");
}

/// The object's name.
pub fn name(obj: &Value) -> Value {
    obj["metadata"]["name"].clone()
}

/// How long ago the object was made.
pub fn age(obj: &Value, now_unix: i64) -> Value {
    trine_objects::time::age(obj["metadata"]["creationTimestamp"].as_str(), now_unix).into()
}

/// A text, or `<none>`.
pub fn or_none(text: &str) -> Value {
    if text.is_empty() { "<none>".into() } else { text.into() }
}

/// A text, or `<unset>`.
pub fn or_unset(text: &str) -> Value {
    if text.is_empty() { "<unset>".into() } else { text.into() }
}

/// Labels on one line, or `<none>`.
pub fn labels(labels: &Value) -> String {
    let pairs: Vec<String> = labels
        .as_object()
        .into_iter()
        .flatten()
        .map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default()))
        .collect();
    if pairs.is_empty() { "<none>".to_owned() } else { pairs.join(",") }
}

/// At most three of a list, and how many more there are; `<none>` for none.
pub fn some_of(list: &[String]) -> String {
    match list {
        [] => "<none>".to_owned(),
        [a, b, c, rest @ ..] if !rest.is_empty() => format!("{a},{b},{c} + {} more...", rest.len()),
        all => all.join(","),
    }
}
