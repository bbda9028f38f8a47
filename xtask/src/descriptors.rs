//! `cargo xtask descriptors DEFINITIONS`: writes the table of types that `trine-objects` reads.
//!
//! The input is the published OpenAPI definitions of the release as JSON (under `definitions` or `$defs`). The output keeps
//! what a server needs (names, types, list and patch marks) and leaves out the descriptions. One line per type, then one
//! line per field:
//!
//! ```text
//! =NAME [*] [group/version/Kind ...]      `*`: the whole object is one value for server-side apply
//! field type [!] [L:list-type[:keys]] [M:map-type] [P:strategy[:merge-key]]
//! ```
//!
//! Types: `s` string, `b` boolean, `i` int32, `l` int64, `d` double, `y` base64 bytes, `t` time, `u` time with microseconds,
//! `q` quantity, `x` integer or string, `o` any object, `*` any value, `&NAME` another type, `[T` list, `{T` map.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

const OUTPUT: &str = "crates/objects/src/schema/descriptors.txt";

/// Prefixes that are shortened in the output, longest first.
const PREFIXES: [(&str, &str); 2] = [("io.k8s.apimachinery.pkg.apis.", "~"), ("io.k8s.api.", "")];

/// Definitions that are values of their own kind rather than objects with fields.
const SPECIAL: [(&str, &str); 11] = [
    ("io.k8s.apimachinery.pkg.api.resource.Quantity", "q"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.Time", "t"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime", "u"),
    ("io.k8s.apimachinery.pkg.util.intstr.IntOrString", "x"),
    ("io.k8s.apimachinery.pkg.runtime.RawExtension", "o"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1", "o"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.Patch", "o"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON", "*"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray", "*"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool", "*"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray", "*"),
];

/// Reads the definitions at `path` and writes the table into the tree.
pub fn run(path: &str) -> Result<()> {
    let text = std::fs::read_to_string(path).with_context(|| format!("read {path}"))?;
    let document: Value = serde_json::from_str(&text).with_context(|| format!("parse {path}"))?;
    let definitions = ["definitions", "$defs"]
        .iter()
        .find_map(|key| document.get(*key))
        .and_then(Value::as_object)
        .context("neither `definitions` nor `$defs` in the input")?;
    let definitions: BTreeMap<&str, &Value> = definitions.iter().map(|(k, v)| (k.as_str(), v)).collect();
    let wanted = reachable(&definitions)?;
    let mut out = String::from("# Written by `cargo xtask descriptors`; see there for the form.\n");
    for name in &wanted {
        write_type(&mut out, name, definitions[name.as_str()])
            .with_context(|| format!("definition {name}"))?;
    }
    std::fs::write(OUTPUT, &out).with_context(|| format!("write {OUTPUT}"))?;
    println!("{OUTPUT}: {} types, {} bytes", wanted.len(), out.len());
    Ok(())
}

/// The kinds of stable versions, and all that they are made of.
fn reachable(definitions: &BTreeMap<&str, &Value>) -> Result<BTreeSet<String>> {
    let mut todo: Vec<&str> = definitions
        .iter()
        .filter(|(_, d)| kinds(d).iter().any(|g| is_stable(&g.1)))
        .map(|(n, _)| *n)
        .collect();
    let mut seen = BTreeSet::new();
    while let Some(name) = todo.pop() {
        if special(name).is_some() || !seen.insert(name.to_owned()) {
            continue;
        }
        let definition =
            definitions.get(name).with_context(|| format!("{name} is referred to and not defined"))?;
        collect_refs(definition, &mut todo);
    }
    Ok(seen)
}

fn collect_refs<'a>(value: &'a Value, into: &mut Vec<&'a str>) {
    match value {
        Value::Object(map) => {
            for (key, inner) in map {
                match inner.as_str() {
                    Some(target) if key == "$ref" => into.extend(target.rsplit('/').next()),
                    _ => collect_refs(inner, into),
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|v| collect_refs(v, into)),
        _ => {}
    }
}

fn is_stable(version: &str) -> bool {
    version.strip_prefix('v').is_some_and(|n| !n.is_empty() && n.bytes().all(|c| c.is_ascii_digit()))
}

fn special(name: &str) -> Option<&'static str> {
    SPECIAL.iter().find(|(n, _)| *n == name).map(|(_, code)| *code)
}

fn short(name: &str) -> String {
    for (prefix, replacement) in PREFIXES {
        if let Some(rest) = name.strip_prefix(prefix) {
            return format!("{replacement}{rest}");
        }
    }
    format!("!{name}")
}

/// Group, version and kind of a definition. The few that belong to every group count as the core group's.
fn kinds(definition: &Value) -> Vec<(String, String, String)> {
    let listed = definition.get("x-kubernetes-group-version-kind").and_then(Value::as_array);
    let all: Vec<_> = listed
        .into_iter()
        .flatten()
        .map(|g| {
            let text = |key: &str| g.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
            (text("group"), text("version"), text("kind"))
        })
        .collect();
    if all.len() < 4 { all } else { all.into_iter().filter(|g| g.0.is_empty() && g.1 == "v1").collect() }
}

fn write_type(out: &mut String, name: &str, definition: &Value) -> Result<()> {
    write!(out, "={}", short(name))?;
    if definition.get("x-kubernetes-map-type").and_then(Value::as_str) == Some("atomic") {
        out.push_str(" *");
    }
    for (group, version, kind) in kinds(definition) {
        write!(out, " {group}/{version}/{kind}")?;
    }
    out.push('\n');
    let required: BTreeSet<&str> = definition
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let Some(properties) = definition.get("properties").and_then(Value::as_object) else { return Ok(()) };
    let sorted: BTreeMap<&String, &Value> = properties.iter().collect();
    for (field, schema) in sorted {
        write!(out, "{field} {}", type_code(schema).with_context(|| format!("field {field}"))?)?;
        if required.contains(field.as_str()) {
            out.push_str(" !");
        }
        write_marks(out, schema)?;
        out.push('\n');
    }
    Ok(())
}

fn write_marks(out: &mut String, schema: &Value) -> Result<()> {
    let mark = |name: &str| schema.get(format!("x-kubernetes-{name}"));
    if let Some(list) = mark("list-type").and_then(Value::as_str) {
        write!(out, " L:{list}")?;
        let keys: Vec<&str> = mark("list-map-keys")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        if !keys.is_empty() {
            write!(out, ":{}", keys.join(","))?;
        }
    }
    if let Some(map) = mark("map-type").and_then(Value::as_str) {
        write!(out, " M:{map}")?;
    }
    if let Some(strategy) = mark("patch-strategy").and_then(Value::as_str) {
        write!(out, " P:{strategy}")?;
        if let Some(key) = mark("patch-merge-key").and_then(Value::as_str) {
            write!(out, ":{key}")?;
        }
    }
    Ok(())
}

fn type_code(schema: &Value) -> Result<String> {
    if let Some(target) = schema.get("$ref").and_then(Value::as_str) {
        let name = target.rsplit('/').next().unwrap_or_default();
        return Ok(special(name).map_or_else(|| format!("&{}", short(name)), str::to_owned));
    }
    let named = match schema.get("type") {
        Some(Value::String(one)) => one.as_str(),
        Some(Value::Array(several)) => {
            several.iter().filter_map(Value::as_str).find(|t| *t != "null").unwrap_or_default()
        }
        _ => return Ok("*".to_owned()),
    };
    let format = schema.get("format").and_then(Value::as_str).unwrap_or_default();
    Ok(match (named, format) {
        ("string", "byte") => "y".to_owned(),
        ("string", "date-time") => "t".to_owned(),
        ("string", _) => "s".to_owned(),
        ("boolean", _) => "b".to_owned(),
        ("integer", "int64") => "l".to_owned(),
        ("integer", _) => "i".to_owned(),
        ("number", _) => "d".to_owned(),
        ("array", _) => format!("[{}", type_code(schema.get("items").context("a list without items")?)?),
        ("object", _) => match schema.get("additionalProperties") {
            Some(values) if values.is_object() => format!("{{{}", type_code(values)?),
            _ => "o".to_owned(),
        },
        (other, _) => bail!("unknown type {other:?}"),
    })
}
