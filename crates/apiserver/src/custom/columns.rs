//! The table of a custom kind: its name, and what the definition adds.

use serde_json::Value;
use trine_objects::jsonpath::JsonPath;
use trine_objects::time;

use super::Version;
use crate::kinds::ColumnOf;
use crate::registry::text;

/// A column that a definition adds.
#[derive(Debug)]
pub(super) struct PrinterColumn {
    name: String,
    type_: String,
    format: String,
    description: String,
    priority: i32,
    path: Option<JsonPath>,
}

impl PrinterColumn {
    /// Those of `additionalPrinterColumns`; the age where there are none.
    pub(super) fn read_all(columns: &Value) -> Vec<Self> {
        let read = |column: &Value| Self {
            name: text(&column["name"]).to_owned(),
            type_: text(&column["type"]).to_owned(),
            format: text(&column["format"]).to_owned(),
            description: text(&column["description"]).to_owned(),
            priority: column["priority"].as_i64().and_then(|p| i32::try_from(p).ok()).unwrap_or_default(),
            path: JsonPath::parse(text(&column["jsonPath"])).ok(),
        };
        match columns.as_array().map(Vec::as_slice) {
            None | Some([]) => {
                let age = "CreationTimestamp is a timestamp representing the server time when this object was created.";
                vec![Self {
                    name: "Age".to_owned(),
                    type_: "date".to_owned(),
                    format: String::new(),
                    description: age.to_owned(),
                    priority: 0,
                    path: JsonPath::parse(".metadata.creationTimestamp").ok(),
                }]
            }
            Some(list) => list.iter().map(read).collect(),
        }
    }

    /// The value's cell. Source: `apiextensions-apiserver` tableconvertor: dates are ages, the rest is of the column's type.
    fn cell(&self, object: &Value, now_unix: i64) -> Value {
        let found = self.path.as_ref().map(|p| p.find(object)).unwrap_or_default();
        let Some(first) = found.first().copied().filter(|v| !v.is_null()) else {
            return Value::Null;
        };
        match self.type_.as_str() {
            "date" => match time::parse(text(first)) {
                Some(_) => time::age(first.as_str(), now_unix).into(),
                None => "<invalid>".into(),
            },
            "integer" | "number" if !first.is_number() => Value::Null,
            "boolean" if !first.is_boolean() => Value::Null,
            "string" if found.len() > 1 => {
                let all: Vec<String> = found.iter().map(|v| shown(v)).collect();
                format!("[{}]", all.join(" ")).into()
            }
            "string" => shown(first).into(),
            _ => first.clone(),
        }
    }
}

/// A value as text.
fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

impl Version {
    /// The columns of its table.
    #[must_use]
    pub fn columns(&self) -> Vec<ColumnOf<'_>> {
        let own = self.columns.iter().map(|c| ColumnOf {
            name: &c.name,
            type_: &c.type_,
            format: &c.format,
            description: &c.description,
            priority: c.priority,
        });
        [ColumnOf::NAME].into_iter().chain(own).collect()
    }

    /// An object's cells, one for each column.
    #[must_use]
    pub fn row(&self, object: &Value, now_unix: i64) -> Vec<Value> {
        let own = self.columns.iter().map(|c| c.cell(object, now_unix));
        [object["metadata"]["name"].clone()].into_iter().chain(own).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn cells_are_of_their_columns_types() {
        let columns = PrinterColumn::read_all(&json!([
            {"name": "Spec", "type": "string", "jsonPath": ".spec.cron"},
            {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas", "priority": 1},
            {"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"},
            {"name": "Old", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
            {"name": "Wrong", "type": "integer", "jsonPath": ".spec.cron"}]));
        let object = json!({"metadata": {"creationTimestamp": "1970-01-01T00:00:00Z"}, "spec": {"cron": "* *", "replicas": 2},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        let cells: Vec<Value> = columns.iter().map(|c| c.cell(&object, 300)).collect();
        assert_eq!(cells, [json!("* *"), json!(2), json!("True"), json!("5m"), Value::Null]);
        assert_eq!(PrinterColumn::read_all(&Value::Null)[0].name, "Age");
    }
}
