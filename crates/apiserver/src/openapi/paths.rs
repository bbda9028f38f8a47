//! The operations of a document: one path per form of URL, one operation per verb.

use super::custom::type_name;
use super::schemas::reference;
use crate::catalog::Served;
use crate::custom::Version;
use serde_json::{Map, Value, json};
use trine_objects::resources::Subresource;
use trine_objects::schema;

const JSON: &str = "application/json";
/// What a patch may be, in the order of the table; custom kinds lack the last.
const PATCHES: [&str; 4] = [
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];
/// What objects are answered in; custom kinds lack the last.
const ANSWERS: [&str; 3] = [JSON, "application/yaml", trine_objects::protobuf::MEDIA_TYPE];

/// Group, version and kind of what an operation is about.
#[derive(Clone, Copy)]
struct Subject<'a> {
    group: &'a str,
    version: &'a str,
    kind: &'a str,
    /// The version of the definition whose objects these are.
    custom: Option<&'a Version>,
    /// Whether it is part of what is built in, which can be patched strategically and spoken of in protobuf.
    built_in: bool,
}

impl<'a> Subject<'a> {
    fn of(r: &'a Served) -> Self {
        let custom = r.custom().map(|v| &**v);
        Self { group: &r.group, version: &r.version, kind: &r.kind, custom, built_in: custom.is_none() }
    }

    fn built_in(group: &'a str, version: &'a str, kind: &'a str) -> Self {
        Self { group, version, kind, custom: None, built_in: true }
    }

    fn answers(self) -> &'static [&'static str] {
        if self.built_in { &ANSWERS } else { &ANSWERS[..2] }
    }

    fn patches(self) -> &'static [&'static str] {
        if self.built_in { &PATCHES } else { &PATCHES[..3] }
    }

    fn marks(self) -> Value {
        json!({"group": self.group, "version": self.version, "kind": self.kind})
    }

    /// Its type, or any object for what is described nowhere (options of connections).
    fn schema(self) -> Value {
        if let Some(version) = self.custom {
            return reference(&type_name(version, &version.kind));
        }
        schema::of(self.group, self.version, self.kind)
            .map_or_else(|| json!({"type": "object"}), |ty| reference(&ty.name()))
    }

    fn list_schema(self) -> Value {
        if let Some(version) = self.custom {
            return reference(&type_name(version, &version.list_kind));
        }
        let list = format!("{}List", self.kind);
        schema::of(self.group, self.version, &list)
            .map_or_else(|| json!({"type": "object"}), |ty| reference(&ty.name()))
    }
}

/// All paths of resources below `root`, as `/api/v1`.
pub(super) fn of(root: &str, served: &[&Served]) -> Value {
    let mut paths = Map::new();
    for r in served {
        let subject = Subject::of(r);
        let all = format!("{root}/{}", r.plural);
        let within = format!("{root}/namespaces/{{namespace}}/{}", r.plural);
        let collection = if r.namespaced { &within } else { &all };
        if r.namespaced && r.serves("list") {
            paths.insert(all.clone(), path(&[], vec![("get", list(subject))]));
        }
        let scope: &[&str] = if r.namespaced { &["namespace"] } else { &[] };
        paths.insert(collection.clone(), path(scope, collection_operations(r, subject)));
        let named: &[&str] = if r.namespaced { &["namespace", "name"] } else { &["name"] };
        if r.serves("get") {
            paths.insert(format!("{collection}/{{name}}"), path(named, object_operations(r, subject)));
        }
        for s in &r.subresources {
            paths.insert(
                format!("{collection}/{{name}}/{}", s.name),
                path(named, subresource_operations(s, subject)),
            );
        }
    }
    Value::Object(paths)
}

fn path(parameters: &[&str], operations: Vec<(&str, Value)>) -> Value {
    let mut out: Map<String, Value> =
        operations.into_iter().map(|(method, op)| (method.to_owned(), op)).collect();
    let parameters = parameters.iter().map(|name| {
        json!({"name": name, "in": "path", "required": true, "schema": {"type": "string", "uniqueItems": true}})
    });
    out.insert("parameters".to_owned(), parameters.collect());
    Value::Object(out)
}

fn query(names: &[(&str, &str)]) -> Value {
    let one = |(name, kind): &(&str, &str)| json!({"name": name, "in": "query", "schema": {"type": kind, "uniqueItems": true}});
    names.iter().map(one).collect()
}

fn operation(action: &str, subject: Subject, parameters: &[(&str, &str)], answer: &Value) -> Value {
    let content: Map<String, Value> =
        subject.answers().iter().map(|t| ((*t).to_owned(), json!({"schema": answer}))).collect();
    json!({
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": subject.marks(),
        "parameters": query(parameters),
        "responses": {"200": {"description": "OK", "content": content}},
    })
}

const SELECTION: [(&str, &str); 9] = [
    ("allowWatchBookmarks", "boolean"),
    ("continue", "string"),
    ("fieldSelector", "string"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("timeoutSeconds", "integer"),
    ("watch", "boolean"),
];
const WRITING: [(&str, &str); 4] =
    [("pretty", "string"), ("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string")];
const DELETION: [(&str, &str); 4] = [
    ("dryRun", "string"),
    ("gracePeriodSeconds", "integer"),
    ("orphanDependents", "boolean"),
    ("propagationPolicy", "string"),
];

fn list(subject: Subject) -> Value {
    operation("list", subject, &SELECTION, &subject.list_schema())
}

fn with_body(mut operation: Value, types: &[&str], schema: &Value) -> Value {
    let content: Map<String, Value> =
        types.iter().map(|t| ((*t).to_owned(), json!({"schema": schema}))).collect();
    operation["requestBody"] = json!({"content": content, "required": true});
    operation
}

fn write(action: &str, subject: Subject) -> Value {
    with_body(operation(action, subject, &WRITING, &subject.schema()), &[JSON], &subject.schema())
}

fn patch(subject: Subject) -> Value {
    with_body(
        operation("patch", subject, &WRITING, &subject.schema()),
        subject.patches(),
        &json!({"type": "object"}),
    )
}

fn delete(action: &str, subject: Subject) -> Value {
    let options = Subject::built_in("", "v1", "DeleteOptions").schema();
    let status = Subject::built_in("", "v1", "Status").schema();
    let mut operation = with_body(operation(action, subject, &DELETION, &status), &[JSON], &options);
    operation["requestBody"]["required"] = false.into();
    operation
}

fn collection_operations(r: &Served, subject: Subject) -> Vec<(&'static str, Value)> {
    let mut operations = Vec::new();
    if r.serves("list") {
        operations.push(("get", list(subject)));
    }
    if r.serves("create") {
        operations.push(("post", write("post", subject)));
    }
    if r.serves("deletecollection") {
        operations.push(("delete", delete("deletecollection", subject)));
    }
    operations
}

fn object_operations(r: &Served, subject: Subject) -> Vec<(&'static str, Value)> {
    let mut operations = vec![("get", operation("get", subject, &[("pretty", "string")], &subject.schema()))];
    if r.serves("update") {
        operations.push(("put", write("put", subject)));
    }
    if r.serves("patch") {
        operations.push(("patch", patch(subject)));
    }
    if r.serves("delete") {
        operations.push(("delete", delete("delete", subject)));
    }
    operations
}

fn subresource_operations(s: &Subresource, of: Subject) -> Vec<(&'static str, Value)> {
    let own = of.kind == s.kind && of.version == s.version;
    let other = Subject { built_in: of.built_in, ..Subject::built_in(&s.group, &s.version, &s.kind) };
    let subject = if own { of } else { other };
    let connects = s.kind.ends_with("Options");
    let mut operations = Vec::new();
    for verb in s.verbs {
        operations.push(match *verb {
            "get" if connects => ("get", operation("connect", subject, &[], &json!({"type": "string"}))),
            "create" if connects => ("post", operation("connect", subject, &[], &json!({"type": "string"}))),
            "get" => ("get", operation("get", subject, &[("pretty", "string")], &subject.schema())),
            "create" => ("post", write("post", subject)),
            "update" => ("put", write("put", subject)),
            "patch" => ("patch", patch(subject)),
            _ => continue,
        });
    }
    operations
}
