//! In which form a client wants objects: as they are, as table rows, or their metadata alone.

use axum::body::Body;
use serde_json::{Value, json};
use std::sync::Arc;
use trine_store::Object;

use super::accept::{Accept, Shape};
use super::items::Items;
use crate::catalog::Served;
use crate::registry::now_unix;
use crate::verbs::list::Page;

/// The form of an answer.
#[derive(Debug, Clone)]
pub enum Form {
    /// The objects' own bytes.
    Plain(Arc<Served>),
    /// `meta.k8s.io/v1` Table.
    Table {
        /// What is shown.
        resource: Arc<Served>,
        /// The columns are sent with the first table only, in a watch.
        with_columns: bool,
        /// `None`, `Metadata` or `Object`: what each row carries.
        include: String,
    },
    /// `meta.k8s.io/v1` PartialObjectMetadata.
    Metadata,
}

impl Form {
    /// The shape that the client takes first, or objects as they are.
    #[must_use]
    pub fn parse(accept: &str, resource: &Arc<Served>, include: Option<&str>) -> Self {
        match Accept::parse(accept, false).best().map(|choice| choice.shape) {
            Some(Shape::Table) => {
                let include = include.unwrap_or("Metadata").to_owned();
                Self::Table { resource: Arc::clone(resource), with_columns: true, include }
            }
            Some(Shape::Metadata) => Self::Metadata,
            Some(Shape::Whole) | None => Self::Plain(Arc::clone(resource)),
        }
    }

    /// The name of the form where writing costs something and all clients of that name read the same.
    #[must_use]
    pub fn shared(&self) -> Option<String> {
        match self {
            // A copy of what is there.
            Self::Plain(resource) if !resource.is_converted() => None,
            Self::Plain(resource) => Some(format!("plain {} {}", resource.group, resource.version)),
            Self::Metadata => Some("metadata".to_owned()),
            // Those before the first differ by the columns.
            Self::Table { resource, with_columns: false, include } => {
                Some(format!("table {} {} {include}", resource.group, resource.version))
            }
            Self::Table { .. } => None,
        }
    }

    /// Writes one object.
    pub fn one(&mut self, out: &mut Vec<u8>, object: &Object, revision: u64) {
        match self {
            Self::Plain(resource) if resource.is_served_as_stored(object.json()) => {
                out.extend_from_slice(object.json());
            }
            Self::Plain(resource) => {
                let value = served(resource, parse(object));
                append(out, &value);
            }
            Self::Metadata => append(out, &metadata(&parse(object))),
            Self::Table { resource, with_columns, include } => {
                let value = parse(object);
                let mut table = table(resource, &[value], include, &revision.to_string());
                if !std::mem::take(with_columns) {
                    table["columnDefinitions"] = json!([]);
                }
                append(out, &table);
            }
        }
    }

    /// A single value, as the answer to GET of one object or to a write.
    #[must_use]
    pub fn value(&self, value: Value) -> Value {
        match self {
            Self::Plain(resource) => served(resource, value),
            Self::Metadata => metadata(&value),
            Self::Table { resource, include, .. } => {
                let revision = value["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
                table(resource, &[value], include, &revision)
            }
        }
    }

    /// A page of a list.
    pub fn page(&self, resource: &Served, page: Page) -> Body {
        let mut meta = json!({"resourceVersion": page.revision.to_string()});
        if let Some(next) = &page.next {
            meta["continue"] = next.as_str().into();
        }
        if let Some(remaining) = page.remaining {
            meta["remainingItemCount"] = remaining.into();
        }
        if let Self::Table { resource, include, .. } = self {
            let values: Vec<Value> = page.objects.iter().map(|o| parse(o)).collect();
            let mut table = table(resource, &values, include, "");
            table["metadata"] = meta;
            return table.to_string().into();
        }
        let (kind, version) = match self {
            Self::Metadata => ("PartialObjectMetadataList".into(), "meta.k8s.io/v1".to_owned()),
            _ => (resource.list_kind(), resource.api_version()),
        };
        let head =
            format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{version}\",\"metadata\":{meta},\"items\":[");
        if let Self::Plain(resource) = self
            && page.objects.iter().all(|o| resource.is_served_as_stored(o.json()))
        {
            return Body::new(Items::new(head.into(), page.objects));
        }
        let mut out = head.into_bytes();
        out.reserve(page.objects.iter().map(|o| o.json().len() + 1).sum::<usize>() + 2);
        let mut form = self.clone();
        for (i, object) in page.objects.iter().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            form.one(&mut out, object, page.revision);
        }
        out.extend_from_slice(b"]}");
        out.into()
    }
}

/// A stored object in the form of the group under which it was asked for.
fn served(resource: &Served, mut object: Value) -> Value {
    if object["kind"] == *resource.kind {
        resource.from_stored(&mut object);
    }
    object
}

/// A value can always be written into memory.
fn append(out: &mut Vec<u8>, value: &Value) {
    let _ = serde_json::to_writer(out, value);
}

fn parse(object: &Object) -> Value {
    serde_json::from_slice(object.json()).unwrap_or(Value::Null)
}

fn metadata(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}

fn table(resource: &Served, objects: &[Value], include: &str, revision: &str) -> Value {
    let columns: Vec<Value> = resource
        .columns()
        .iter()
        .map(|c| {
            json!({"name": c.name, "type": c.type_, "format": c.format, "description": c.description,
                "priority": c.priority})
        })
        .collect();
    let now = now_unix();
    let rows: Vec<Value> = objects
        .iter()
        .map(|object| {
            let carried = match include {
                "None" => Value::Null,
                "Object" => served(resource, object.clone()),
                _ => metadata(object),
            };
            json!({"cells": resource.row(object, now), "object": carried})
        })
        .collect();
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": revision},
        "columnDefinitions": columns, "rows": rows})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_form_that_is_served_is_taken() {
        let pods = &crate::catalog::Catalog::new().now().find("", "v1", "pods").unwrap().clone();
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
        assert!(matches!(Form::parse(table, pods, None), Form::Table { .. }));
        let list = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        assert!(matches!(Form::parse(list, pods, None), Form::Metadata));
        for plain in ["*/*", "", "application/vnd.kubernetes.protobuf,application/json"] {
            assert!(matches!(Form::parse(plain, pods, None), Form::Plain(_)), "{plain}");
        }
    }
}
