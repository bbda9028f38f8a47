//! What a write does to `metadata.managedFields`.

use super::last_applied::{self, KUBECTL};
use super::managers::{BadEntry, ManagerId, Managers, Operation, Owned};
use super::ownership::{self, Conflict, Refused, View};
use super::set::{Set, shown};
use super::{Filter, TypeErrors, validate};
use crate::schema::SchemaRef;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::LazyLock;

/// Who owns what was there before anything was applied.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";
/// Fields that nobody owns.
static UNOWNED: LazyLock<Set> = LazyLock::new(|| {
    let metadata = [
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    ];
    let mut paths: Vec<Vec<&str>> = vec![vec!["apiVersion"], vec!["kind"], vec!["metadata"]];
    paths.extend(metadata.iter().map(|name| vec!["metadata", name]));
    Set::of_fields(&paths.iter().map(Vec::as_slice).collect::<Vec<_>>())
});

/// The versions in which a kind is served.
pub trait Versions {
    /// The schema of a version; `None` if it is not served: what is owned in it is forgotten.
    fn schema(&self, api_version: &str) -> Option<SchemaRef<'_>>;

    /// An object of the kind in another version.
    fn convert<'v>(&self, object: &'v Value, to: &str) -> Option<Cow<'v, Value>>;
}

/// A kind with one version.
#[derive(Debug, Clone, Copy)]
pub struct OneVersion<'a> {
    /// `apps/v1`.
    pub api_version: &'a str,
    /// Its schema.
    pub schema: SchemaRef<'a>,
}

impl Versions for OneVersion<'_> {
    fn schema(&self, api_version: &str) -> Option<SchemaRef<'_>> {
        (api_version == self.api_version).then_some(self.schema)
    }

    fn convert<'v>(&self, object: &'v Value, to: &str) -> Option<Cow<'v, Value>> {
        (to == self.api_version).then_some(Cow::Borrowed(object))
    }
}

/// Why an apply was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// Others own some of the fields, with other values (409).
    #[error("{}", conflicts_text(.0))]
    Conflicts(Vec<Conflict>),
    /// The configuration cannot be applied (400).
    #[error("{0}")]
    BadRequest(String),
    /// The configuration or the object does not fit the schema. Upstream answers 500.
    #[error("{0}")]
    Failed(String),
}

fn conflicts_text(conflicts: &[Conflict]) -> String {
    if let [only] = conflicts {
        return format!("Apply failed with 1 conflict: {}: {}", only.message(), shown(&only.path));
    }
    let mut by_owner: BTreeMap<&ManagerId, Vec<&Conflict>> = BTreeMap::new();
    for conflict in conflicts {
        by_owner.entry(&conflict.owner).or_default().push(conflict);
    }
    let mut text = format!("Apply failed with {} conflicts: ", conflicts.len());
    for (i, (owner, conflicts)) in by_owner.into_iter().enumerate() {
        let line = if i > 0 { "\n" } else { "" };
        let _ = write!(text, "{line}conflicts with {owner}:");
        for conflict in conflicts {
            let _ = write!(text, "\n- {}", shown(&conflict.path));
        }
    }
    text
}

/// Records ownership for the writes of one request.
#[derive(Clone, Copy)]
pub struct FieldManager<'a> {
    /// The versions of the kind.
    pub versions: &'a dyn Versions,
    /// The version of the request, in which the objects are: `apps/v1`.
    pub api_version: &'a str,
    /// The kind.
    pub kind: &'a str,
    /// The subresource that is written; empty for the object itself.
    pub subresource: &'a str,
    /// The fields that this write cannot touch.
    pub filter: &'a Filter,
    /// Now, RFC 3339.
    pub now: &'a str,
}

impl FieldManager<'_> {
    /// Records what a create, replace or patch changed: `manager` owns it from now on. `live` is null for a create.
    ///
    /// What a client itself writes into `managedFields` counts: an empty list, or a list of one empty entry, forgets all
    /// entries; what cannot be read is as if it had not been sent. An object without entries gets none until it is applied
    /// to, except when it is created.
    pub fn update(&self, live: &Value, new: &mut Value, manager: &str) {
        let sent = new["metadata"].as_object_mut().and_then(|m| m.remove("managedFields"));
        let managers = self.managers(live, sent);
        let created = live["metadata"]["uid"].as_str().is_none_or(str::is_empty);
        if managers.is_empty() && !created {
            return;
        }
        let entries = match self.recorded(live, new, managers, manager) {
            Ok(managers) => managers.encode(),
            Err(_) => live["metadata"]["managedFields"].clone(),
        };
        set_entries(new, entries);
    }

    fn managers(&self, live: &Value, sent: Option<Value>) -> Managers {
        let stored = || Managers::decode(&live["metadata"]["managedFields"]).unwrap_or_default();
        if !self.subresource.is_empty() {
            return stored();
        }
        match sent {
            Some(Value::Array(entries))
                if entries.is_empty()
                    || entries.len() == 1 && entries[0].as_object().is_some_and(Map::is_empty) =>
            {
                Managers::default()
            }
            Some(entries) => match Managers::decode(&entries) {
                Ok(managers) if !managers.is_empty() => managers,
                _ => stored(),
            },
            None => stored(),
        }
    }

    fn view(&self) -> Option<View<'_>> {
        let schema = self.versions.schema(self.api_version)?;
        Some(View { versions: self.versions, api_version: self.api_version, schema, filter: self.filter })
    }

    /// The managers after a write that is no apply.
    fn recorded(
        &self,
        live: &Value,
        new: &Value,
        managers: Managers,
        manager: &str,
    ) -> Result<Managers, Refused> {
        let Some(view) = self.view() else { return Ok(managers) };
        let (fields, mut managers) = ownership::update(view, live, new, managers)?;
        let fields = fields.difference(&UNOWNED);
        if !fields.is_empty() {
            let id = ManagerId::new(manager, Operation::Update, self.api_version, self.subresource);
            let (api_version, time) = (self.api_version.to_owned(), None);
            let entry = managers.0.entry(id).or_insert(Owned { api_version, time, fields: Set::EMPTY });
            entry.fields = std::mem::take(&mut entry.fields).union(fields);
            entry.time = Some(self.now.to_owned());
        }
        managers.cap();
        Ok(managers)
    }

    /// Applies a configuration to a live object (one with no more than its kind if there is none yet) in the name of
    /// `manager`. Gives the object as it then is; it is not defaulted yet, and nulls are in it.
    ///
    /// # Errors
    /// [`ApplyError`].
    pub fn apply(
        &self,
        live: &Value,
        config: &Value,
        manager: &str,
        force: bool,
    ) -> Result<Value, ApplyError> {
        let (version, kind) =
            (config["apiVersion"].as_str().unwrap_or_default(), config["kind"].as_str().unwrap_or_default());
        if version != self.api_version || kind != self.kind {
            return Err(ApplyError::BadRequest(format!(
                "invalid object type: {}",
                group_kind(version, kind)
            )));
        }
        if config["metadata"].get("managedFields").is_some_and(|m| !m.is_null()) {
            return Err(ApplyError::BadRequest("metadata.managedFields must be nil".to_owned()));
        }
        let managers = Managers::decode(&live["metadata"]["managedFields"])
            .map_err(|e: BadEntry| ApplyError::Failed(format!("failed to decode managed fields: {e}")))?;
        let Some(view) = self.view() else {
            return Err(ApplyError::Failed(format!(
                "no corresponding type for {}",
                group_kind(version, kind)
            )));
        };
        let typed = |what: &str, object: &Value, errors: TypeErrors| {
            let of = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
            let (namespace, name) = (of("namespace"), of("name"));
            let kind = group_kind(version, kind);
            ApplyError::Failed(format!(
                "failed to create typed {what} object ({namespace}/{name}; {kind}): {errors}"
            ))
        };
        validate(view.schema, config, false).map_err(|e| typed("patch", config, e))?;
        validate(view.schema, live, true).map_err(|e| typed("live", live, e))?;
        let managers = self.with_the_past(live, managers)?;
        let (object, managers) = self.settled(view, live, config, managers, manager, force)?;
        let mut object = object.unwrap_or_else(|| live.clone());
        if manager == KUBECTL {
            last_applied::refresh(&mut object, config);
        }
        set_entries(&mut object, managers.encode());
        Ok(object)
    }

    /// An object to which nothing was applied yet: what is there has an owner, too.
    fn with_the_past(&self, live: &Value, managers: Managers) -> Result<Managers, ApplyError> {
        if !managers.is_empty() {
            return Ok(managers);
        }
        self.recorded(&Value::Object(Map::new()), live, managers, BEFORE_FIRST_APPLY)
            .map_err(|e| ApplyError::Failed(format!("failed to create manager for existing fields: {e}")))
    }

    fn settled(
        &self,
        view: View<'_>,
        live: &Value,
        config: &Value,
        managers: Managers,
        manager: &str,
        force: bool,
    ) -> Result<(Option<Value>, Managers), ApplyError> {
        let id = ManagerId::new(manager, Operation::Apply, self.api_version, self.subresource);
        let run = |force| ownership::apply(view, live, config, managers.clone(), &id, force);
        let mut done = run(force);
        if let (Err(Refused::Conflicts(conflicts)), KUBECTL) = (&done, manager)
            && let Some(agreed) = last_applied::agreed(view, live)
        {
            let left: Vec<Conflict> =
                conflicts.iter().filter(|c| !agreed.contains(&c.path)).cloned().collect();
            done = if left.is_empty() { run(true) } else { Err(Refused::Conflicts(left)) };
        }
        let (object, mut managers) = done.map_err(|refused| match refused {
            Refused::Conflicts(conflicts) => ApplyError::Conflicts(conflicts),
            other @ Refused::Types(..) => ApplyError::Failed(other.to_string()),
        })?;
        if let Some(owned) = managers.0.get_mut(&id) {
            owned.fields = std::mem::take(&mut owned.fields).difference(&UNOWNED);
            if object.is_some() || owned.time.is_none() {
                owned.time = Some(self.now.to_owned());
            }
            if owned.fields.is_empty() {
                managers.0.remove(&id);
            }
        }
        Ok((object, managers))
    }
}

/// `apps/v1, Kind=Deployment`; the core group shows as nothing before the slash.
fn group_kind(api_version: &str, kind: &str) -> String {
    let slash = if api_version.contains('/') { "" } else { "/" };
    format!("{slash}{api_version}, Kind={kind}")
}

fn set_entries(object: &mut Value, entries: Value) {
    match (entries, object["metadata"].as_object_mut()) {
        (Value::Null, Some(metadata)) => drop(metadata.remove("managedFields")),
        (entries, Some(metadata)) => drop(metadata.insert("managedFields".to_owned(), entries)),
        (_, None) => {}
    }
}

/// Keeps the entries of `old` in `new` if the two are the same but for the times of entries, so that nothing is written.
pub fn keep_times(old: &Value, new: &mut Value) {
    let (before, after) = (&old["metadata"]["managedFields"], &new["metadata"]["managedFields"]);
    if before == after {
        return;
    }
    let (Ok(a), Ok(b)) = (Managers::decode(before), Managers::decode(after)) else { return };
    if !a.same_but_times(&b) || !same_but_entries(old, new) {
        return;
    }
    set_entries(new, before.clone());
}

fn same_but_entries(old: &Value, new: &Value) -> bool {
    let (Some(a), Some(b)) = (old.as_object(), new.as_object()) else { return false };
    let equal = |a: &Map<String, Value>, b: &Map<String, Value>, aside: &[&str]| {
        let count = |m: &Map<String, Value>| m.keys().filter(|k| !aside.contains(&k.as_str())).count();
        count(a) == count(b)
            && a.iter().filter(|(k, _)| !aside.contains(&k.as_str())).all(|(k, v)| b.get(k) == Some(v))
    };
    let (Some(am), Some(bm)) =
        (a.get("metadata").and_then(Value::as_object), b.get("metadata").and_then(Value::as_object))
    else {
        return false;
    };
    equal(a, b, &["metadata"]) && equal(am, bm, &["managedFields", "resourceVersion"])
}
