//! The columns of a table, and the cells that many kinds share.

use serde_json::Value;

/// One column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// Heading.
    pub name: &'static str,
    /// JSON type of its cells.
    pub type_: &'static str,
    /// Further meaning: `name` marks the object's name.
    pub format: &'static str,
    /// What it shows.
    pub description: &'static str,
    /// 0 is always shown; 1 only in the wide form.
    pub priority: i32,
}

impl Column {
    /// A column of text that is always shown.
    pub const fn text(name: &'static str) -> Self {
        Self { name, type_: "string", format: "", description: "", priority: 0 }
    }

    /// A column of integers that is always shown.
    pub const fn integer(name: &'static str) -> Self {
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
