//! Who owns which fields: `metadata.managedFields`.

use super::codec::NotASet;
use super::set::Set;
use crate::time;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;

/// The most entries of updates; older ones are put together. Source: upstream's `DefaultMaxUpdateManagers`.
const MAX_UPDATERS: usize = 10;
/// In whose name they are put together.
const ANCIENT: &str = "ancient-changes";

/// How a manager came to own fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// It applied them.
    Apply,
    /// It wrote them in any other way.
    Update,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// What tells entries apart. Appliers are the same manager in all versions.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ManagerId {
    /// The client's name.
    pub manager: String,
    /// How it owns.
    pub operation: Operation,
    /// Version of an update; empty for appliers.
    pub api_version: String,
    /// Subresource through which it writes; empty for the object itself.
    pub subresource: String,
}

impl ManagerId {
    /// The identity of a manager that works in this version.
    pub fn new(manager: &str, operation: Operation, api_version: &str, subresource: &str) -> Self {
        let manager = if manager.is_empty() { "unknown" } else { manager };
        let api_version = if operation == Operation::Apply { "" } else { api_version };
        Self {
            manager: manager.to_owned(),
            operation,
            api_version: api_version.to_owned(),
            subresource: subresource.to_owned(),
        }
    }
}

/// As conflicts name it: `"kubectl" using apps/v1`.
impl fmt::Display for ManagerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.manager)?;
        if !self.subresource.is_empty() {
            write!(f, " with subresource {:?}", self.subresource)?;
        }
        if self.operation == Operation::Update {
            write!(f, " using {}", self.api_version)?;
        }
        Ok(())
    }
}

/// What a manager owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owned {
    /// The version in which the fields are named.
    pub api_version: String,
    /// When it last took or changed one, RFC 3339.
    pub time: Option<String>,
    /// The fields.
    pub fields: Set,
}

/// All managers of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Managers(pub(super) BTreeMap<ManagerId, Owned>);

/// Why entries cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadEntry {
    /// Neither `Apply` nor `Update`.
    #[error("operation must be `Apply` or `Update`")]
    Operation,
    /// No version.
    #[error("apiVersion must not be empty")]
    ApiVersion,
    /// Fields in a form that is not known.
    #[error("{}", fields_type(got, *at))]
    FieldsType {
        /// The form.
        got: String,
        /// Place of the entry.
        at: usize,
    },
    /// Not a list of objects.
    #[error("managedFields must be a list of objects")]
    Form,
    /// The fields cannot be read.
    #[error("error decoding set: {0}")]
    Fields(#[from] NotASet),
}

fn fields_type(got: &str, at: usize) -> String {
    if got.is_empty() {
        format!("missing fieldsType in managed fields entry {at}")
    } else {
        format!("invalid fieldsType {got:?} in managed fields entry {at}")
    }
}

impl Managers {
    /// Reads `metadata.managedFields`; null is nobody.
    ///
    /// # Errors
    /// [`BadEntry`].
    pub fn decode(entries: &Value) -> Result<Self, BadEntry> {
        let entries = match entries {
            Value::Null => return Ok(Self::default()),
            Value::Array(entries) => entries,
            _ => return Err(BadEntry::Form),
        };
        let mut out = BTreeMap::new();
        for (at, entry) in entries.iter().enumerate() {
            if !entry.is_object() {
                return Err(BadEntry::Form);
            }
            let text = |field: &str| entry[field].as_str().unwrap_or_default();
            let operation = match text("operation") {
                "Apply" => Operation::Apply,
                "Update" => Operation::Update,
                _ => return Err(BadEntry::Operation),
            };
            let api_version = text("apiVersion");
            if api_version.is_empty() {
                return Err(BadEntry::ApiVersion);
            }
            if text("fieldsType") != "FieldsV1" {
                return Err(BadEntry::FieldsType { got: text("fieldsType").to_owned(), at });
            }
            let fields = match &entry["fieldsV1"] {
                Value::Null => Set::EMPTY,
                fields => Set::decode(fields)?,
            };
            // The name is taken as it is: an entry without one stays one.
            let id = ManagerId {
                manager: text("manager").to_owned(),
                ..ManagerId::new("", operation, api_version, text("subresource"))
            };
            let time = entry["time"].as_str().map(str::to_owned);
            out.insert(id, Owned { api_version: api_version.to_owned(), time, fields });
        }
        Ok(Self(out))
    }

    /// Writes them, appliers first, each kind by time. Nobody is null.
    pub fn encode(&self) -> Value {
        if self.0.is_empty() {
            return Value::Null;
        }
        let mut ordered: Vec<(&ManagerId, &Owned)> = self.0.iter().collect();
        ordered.sort_by_cached_key(|(id, owned)| {
            (
                id.operation,
                seconds(owned),
                id.manager.clone(),
                owned.api_version.clone(),
                id.subresource.clone(),
            )
        });
        Value::Array(ordered.into_iter().map(|(id, owned)| encode(id, owned)).collect())
    }

    /// Whether nobody owns anything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What this manager owns.
    pub fn get(&self, id: &ManagerId) -> Option<&Owned> {
        self.0.get(id)
    }

    /// All managers, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&ManagerId, &Owned)> {
        self.0.iter()
    }

    /// Puts the oldest updates of each version together when there are too many.
    pub(super) fn cap(&mut self) {
        let mut updaters: Vec<ManagerId> =
            self.0.keys().filter(|id| id.operation == Operation::Update).cloned().collect();
        let mut count = updaters.len();
        if count <= MAX_UPDATERS {
            return;
        }
        updaters.sort_by_cached_key(|id| (self.0.get(id).map(seconds), id.clone()));
        let mut firsts: BTreeMap<String, ManagerId> = BTreeMap::new();
        for id in updaters {
            if count <= MAX_UPDATERS {
                break;
            }
            let Some(version) = self.0.get(&id).map(|o| o.api_version.clone()) else { continue };
            let Some(first) = firsts.get(&version) else {
                firsts.insert(version, id);
                continue;
            };
            let bucket = ManagerId::new(ANCIENT, Operation::Update, &version, "");
            if !self.0.contains_key(&bucket)
                && let Some(owned) = self.0.remove(first)
            {
                self.0.insert(bucket.clone(), owned);
            }
            if let Some(owned) = self.0.remove(&id)
                && let Some(into) = self.0.get_mut(&bucket)
            {
                into.fields = std::mem::take(&mut into.fields).union(owned.fields);
                into.time = owned.time;
                count -= 1;
            }
        }
    }

    /// Whether they are the same, times aside.
    pub fn same_but_times(&self, other: &Self) -> bool {
        self.0.len() == other.0.len()
            && self
                .0
                .iter()
                .zip(&other.0)
                .all(|((a, x), (b, y))| a == b && x.api_version == y.api_version && x.fields == y.fields)
    }
}

fn seconds(owned: &Owned) -> i64 {
    owned.time.as_deref().and_then(time::parse).unwrap_or_default()
}

fn encode(id: &ManagerId, owned: &Owned) -> Value {
    let mut out = Map::new();
    let mut set = |name: &str, value: Value| drop(out.insert(name.to_owned(), value));
    set("manager", id.manager.as_str().into());
    set("operation", id.operation.name().into());
    set("apiVersion", owned.api_version.as_str().into());
    if let Some(time) = &owned.time {
        set("time", time.as_str().into());
    }
    set("fieldsType", "FieldsV1".into());
    set("fieldsV1", owned.fields.encode());
    if !id.subresource.is_empty() {
        set("subresource", id.subresource.as_str().into());
    }
    Value::Object(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn entry(manager: &str, operation: &str, time: &str, field: &str) -> Value {
        json!({"manager": manager, "operation": operation, "apiVersion": "v1", "time": time, "fieldsType": "FieldsV1",
            "fieldsV1": {format!("f:{field}"): {}}})
    }

    #[test]
    fn entries_are_written_in_order_and_read_again() {
        let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z");
        let given = json!([
            entry("b", "Update", early, "x"),
            entry("a", "Update", early, "x"),
            entry("z", "Update", late, "x"),
            entry("c", "Apply", late, "x")
        ]);
        let written = Managers::decode(&given).unwrap().encode();
        let names: Vec<&str> =
            written.as_array().unwrap().iter().map(|e| e["manager"].as_str().unwrap()).collect();
        assert_eq!(names, ["c", "a", "b", "z"]);
        assert_eq!(written[1], given[1]);
        assert_eq!(Managers::decode(&Value::Null).unwrap().encode(), Value::Null);
    }

    #[test]
    fn bad_entries_are_named() {
        let good = entry("a", "Apply", "2026-01-01T00:00:00Z", "x");
        for (field, value, wanted) in [
            ("operation", json!("Patch"), "operation must be `Apply` or `Update`"),
            ("apiVersion", json!(null), "apiVersion must not be empty"),
            ("fieldsType", json!(null), "missing fieldsType in managed fields entry 0"),
            ("fieldsType", json!("V2"), "invalid fieldsType \"V2\" in managed fields entry 0"),
            ("fieldsV1", json!({"spec": {}}), "error decoding set: \"spec\" is no path element"),
        ] {
            let mut entry = good.clone();
            entry[field] = value;
            assert_eq!(Managers::decode(&json!([entry])).unwrap_err().to_string(), wanted);
        }
    }

    #[test]
    fn the_oldest_updates_are_put_together() {
        let entries: Vec<Value> = (0..12)
            .map(|i| {
                entry(&format!("m{i:02}"), "Update", &format!("2026-01-01T00:00:{i:02}Z"), &format!("x{i}"))
            })
            .chain([entry("a", "Apply", "2026-01-01T00:00:00Z", "x")])
            .collect();
        let mut managers = Managers::decode(&json!(entries)).unwrap();
        managers.cap();
        assert_eq!(managers.0.len(), 11);
        let ancient = managers.get(&ManagerId::new(ANCIENT, Operation::Update, "v1", "")).unwrap();
        assert_eq!(ancient.fields, Set::of_fields(&[&["x0"], &["x1"], &["x2"]]));
        assert_eq!(ancient.time.as_deref(), Some("2026-01-01T00:00:02Z"));
    }
}
