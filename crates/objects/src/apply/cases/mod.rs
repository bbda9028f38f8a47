//! Server-side apply by tables: each case is a story of writes, with what the object and its managers are after them.
//!
//! The tables say what upstream documents (the website's page on server-side apply) and what its tests are named for.

mod random;

use super::*;
use crate::schema::{SchemaRef, Structural, of, prune};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

const TABLES: [(&str, &str); 6] = [
    ("objects", include_str!("objects.yaml")),
    ("lists", include_str!("lists.yaml")),
    ("ownership", include_str!("ownership.yaml")),
    ("conflicts", include_str!("conflicts.yaml")),
    ("kinds", include_str!("kinds.yaml")),
    ("unknown", include_str!("unknown.yaml")),
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    /// The schema of the custom kind that the cases are about.
    #[serde(default)]
    schema: Value,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    /// A built-in kind, `apps/v1 Deployment`, instead of the table's schema.
    kind: Option<String>,
    steps: Vec<Write>,
}

/// One write, and what is afterwards.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Write {
    /// The manager that applies.
    apply: Option<String>,
    /// The manager that creates or replaces the object.
    update: Option<String>,
    /// The manager that patches: the given fields are set (by a merge patch).
    patch: Option<String>,
    #[serde(default)]
    force: bool,
    /// `status`, or nothing.
    #[serde(default)]
    through: String,
    /// The apply claims to be of this version.
    version: Option<String>,
    /// What is sent.
    with: Value,
    /// The object afterwards: the fields that are named here, whole.
    gives: Option<Value>,
    /// The fields of all managers afterwards.
    owns: Option<BTreeMap<String, Vec<String>>>,
    /// The refusal.
    fails: Option<String>,
    /// Nothing is to be written.
    #[serde(default)]
    noop: bool,
}

struct Kind<'a> {
    api_version: String,
    kind: String,
    schema: SchemaRef<'a>,
}

struct Story<'a> {
    kind: &'a Kind<'a>,
    live: Value,
    clock: usize,
}

impl Story<'_> {
    fn complete(&self, object: &Value, version: Option<&str>) -> Value {
        let mut object = if object.is_null() { json!({}) } else { object.clone() };
        object["apiVersion"] = version.unwrap_or(&self.kind.api_version).into();
        object["kind"] = self.kind.kind.as_str().into();
        if !object["metadata"].is_object() {
            object["metadata"] = json!({});
        }
        object["metadata"]["name"] = "x".into();
        object
    }

    fn run(&mut self, write: &Write) -> Result<(), ApplyError> {
        self.clock += 1;
        let now = format!("2026-01-01T00:00:{:02}Z", self.clock);
        let versions = OneVersion { api_version: &self.kind.api_version, schema: self.kind.schema };
        let status = Set::of_fields(&[&["status"]]);
        let filter = if write.through == "status" { Filter::Only(status) } else { Filter::Without(status) };
        let manager = FieldManager {
            versions: &versions,
            api_version: &self.kind.api_version,
            kind: &self.kind.kind,
            subresource: &write.through,
            filter: &filter,
            now: &now,
        };
        let created = self.live.is_null();
        let mut new = match (&write.apply, &write.update, &write.patch) {
            (Some(name), None, None) => {
                let live = if created { self.complete(&Value::Null, None) } else { self.live.clone() };
                let config = self.complete(&write.with, write.version.as_deref());
                manager.apply(&live, &config, name, write.force)?
            }
            (None, Some(name), None) => {
                let mut new = self.complete(&write.with, None);
                if let Some(uid) = self.live["metadata"].get("uid") {
                    new["metadata"]["uid"] = uid.clone();
                }
                manager.update(&self.live, &mut new, name);
                new
            }
            (None, None, Some(name)) => {
                let mut new = self.live.clone();
                json_patch::merge(&mut new, &write.with);
                manager.update(&self.live, &mut new, name);
                new
            }
            _ => panic!("one of apply, update, patch"),
        };
        prune(self.kind.schema, &mut new);
        if created {
            new["metadata"]["uid"] = "1".into();
        } else {
            keep_times(&self.live, &mut new);
        }
        self.live = new;
        Ok(())
    }

    fn owners(&self) -> BTreeMap<String, Vec<String>> {
        let managers = Managers::decode(&self.live["metadata"]["managedFields"]).unwrap();
        let named = |(id, owned): (&ManagerId, &Owned)| {
            let through = if id.subresource.is_empty() { "" } else { "/" };
            let name = format!("{} {:?}{through}{}", id.manager, id.operation, id.subresource);
            (name, owned.fields.paths().iter().map(|p| shown(p)).collect())
        };
        managers.iter().map(named).collect()
    }
}

/// Plays a case; gives what is not as told.
fn play(case: &Case, kind: &Kind<'_>) -> Result<(), String> {
    let mut story = Story { kind, live: Value::Null, clock: 0 };
    for (i, write) in case.steps.iter().enumerate() {
        let before = story.live.clone();
        let done = story.run(write);
        told(write, &before, &story, done).map_err(|why| format!("{}, step {}: {why}", case.name, i + 1))?;
    }
    Ok(())
}

fn told(
    write: &Write,
    before: &Value,
    story: &Story<'_>,
    done: Result<(), ApplyError>,
) -> Result<(), String> {
    let equal = |what: &str, got: &dyn std::fmt::Debug, wanted: &dyn std::fmt::Debug| {
        let (got, wanted) = (format!("{got:?}"), format!("{wanted:?}"));
        if got == wanted { Ok(()) } else { Err(format!("{what}\n  is     {got}\n  wanted {wanted}")) }
    };
    match (&write.fails, done) {
        (None, Ok(())) => {}
        (None, Err(error)) => return Err(error.to_string()),
        (Some(wanted), Ok(())) => return Err(format!("not refused with {wanted}")),
        (Some(wanted), Err(error)) => equal("the refusal", &error.to_string(), &wanted.trim_end())?,
    }
    for (field, wanted) in write.gives.as_ref().and_then(Value::as_object).into_iter().flatten() {
        let mut got = story.live[field].clone();
        if let ("metadata", Some(metadata)) = (field.as_str(), got.as_object_mut()) {
            metadata.retain(|k, _| !["managedFields", "uid", "name"].contains(&k.as_str()));
        }
        equal(field, &got, wanted)?;
    }
    if let Some(wanted) = &write.owns {
        let mut wanted = wanted.clone();
        wanted.values_mut().for_each(|fields| fields.sort());
        let mut got = story.owners();
        got.values_mut().for_each(|fields| fields.sort());
        equal("the owners", &got, &wanted)?;
    }
    if (write.noop || write.fails.is_some()) && story.live != *before {
        return Err("something changed".to_owned());
    }
    Ok(())
}

#[test]
fn every_story_ends_as_told() {
    let (mut count, mut wrong) = (0, Vec::new());
    for (name, text) in TABLES {
        let table: Table = serde_saphyr::from_str(text).unwrap_or_else(|e| panic!("{name}: {e}"));
        let structural = Structural::root(&table.schema);
        for case in &table.cases {
            let kind = match &case.kind {
                None => Kind {
                    api_version: "example.com/v1".to_owned(),
                    kind: "Sample".to_owned(),
                    schema: (&structural).into(),
                },
                Some(kind) => {
                    let (version, kind) = kind.split_once(' ').unwrap();
                    let (group, v) = version.split_once('/').unwrap_or(("", version));
                    let ty = of(group, v, kind).unwrap_or_else(|| panic!("{version} {kind}"));
                    Kind { api_version: version.to_owned(), kind: kind.to_owned(), schema: ty.into() }
                }
            };
            count += 1;
            if let Err(why) = play(case, &kind) {
                wrong.push(format!("{name}: {why}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(count >= 60, "{count} cases");
}

#[test]
fn an_empty_object_needs_no_schema_to_be_walked() {
    let empty = Value::Object(Map::new());
    assert_eq!(diff(SchemaRef::ANY, &empty, &empty), Ok(Diff::default()));
    assert_eq!(fields_of(SchemaRef::ANY, &empty), Set::EMPTY);
}
