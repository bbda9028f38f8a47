//! `cargo xtask descriptors DEFINITIONS`: writes the table of types that `trine-objects` reads.
//!
//! The input is the published OpenAPI definitions of the release as JSON (under `definitions` or `$defs`), and the Go modules
//! of the same release for the field numbers. The output keeps what a server needs (names, types, list and patch marks, places
//! on the wire) and leaves out the descriptions. One line per type, then one line per field:
//!
//! ```text
//! =NAME [*] [group/version/Kind ...]      `*`: the whole object is one value for server-side apply
//! field type [#PLACE] [!] [L:list-type[:keys]] [M:map-type] [P:strategy[:merge-key]]
//! ```
//!
//! Types: `s` string, `b` boolean, `i` int32, `l` int64, `d` double, `y` base64 bytes, `t` time, `u` time with microseconds,
//! `q` quantity, `x` integer or string, `o` any object, `*` any value, `A&NAME`, `B&NAME`, `S&NAME` another type or a list
//! of these, a boolean, a list of strings, `&NAME` another type, `[T` list, `{T` map.
//!
//! A place is the protobuf field number, after those of the embedded structs that it lies in, as `2.1`; behind it `?` if
//! absence differs from the zero value, `z` if JSON writes the zero value, `w` if a list (of a map: each) lies in a message of
//! its own, as its field 1. `apiVersion` and `kind` of whole objects have none: they travel in the envelope.

mod go;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

const OUTPUT: &str = "crates/objects/src/schema/descriptors.txt";

/// What the special codes `A`, `B` and `S` may be besides.
const SCHEMA: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";

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
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray", "A"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool", "B"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray", "S"),
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
    let partial = partial_metadata();
    let definitions: BTreeMap<&str, &Value> = definitions
        .iter()
        .map(|(k, v)| (k.as_str(), v))
        .chain(partial.iter().map(|(k, v)| (k.as_str(), v)))
        .collect();
    let wanted = reachable(&definitions)?;
    let structs = go::Structs::load()?;
    let mut out = String::from("# Written by `cargo xtask descriptors`; see there for the form.\n");
    for name in &wanted {
        structs
            .places(name)
            .and_then(|places| write_type(&mut out, name, definitions[name.as_str()], &places))
            .with_context(|| format!("definition {name}"))?;
    }
    std::fs::write(OUTPUT, &out).with_context(|| format!("write {OUTPUT}"))?;
    println!("{OUTPUT}: {} types, {} bytes", wanted.len(), out.len());
    Ok(())
}

/// Definitions of the objects that are reduced to their metadata, which belong to `meta.k8s.io` alone.
fn partial_metadata() -> BTreeMap<String, Value> {
    let meta = "io.k8s.apimachinery.pkg.apis.meta.v1";
    let reference = |name: &str| json!({"$ref": format!("#/definitions/{meta}.{name}")});
    let one = |kind: &str, metadata: &str| {
        json!({"properties": {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": reference(metadata)},
            "x-kubernetes-group-version-kind": [{"group": "meta.k8s.io", "version": "v1", "kind": kind}]})
    };
    let mut list = one("PartialObjectMetadataList", "ListMeta");
    list["properties"]["items"] = json!({"type": "array", "items": reference("PartialObjectMetadata")});
    list["required"] = json!(["items"]);
    let object = one("PartialObjectMetadata", "ObjectMeta");
    [("PartialObjectMetadata", object), ("PartialObjectMetadataList", list)]
        .map(|(kind, definition)| (format!("{meta}.{kind}"), definition))
        .into()
}

/// The kinds of the versions that are served, and all that they are made of.
fn reachable(definitions: &BTreeMap<&str, &Value>) -> Result<BTreeSet<String>> {
    let mut todo: Vec<&str> = definitions
        .iter()
        .filter(|(_, d)| kinds(d).iter().any(|g| is_served(&g.0, &g.1)))
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

/// Stable versions, and those that are off unless they are asked for.
fn is_served(group: &str, version: &str) -> bool {
    let stable =
        version.strip_prefix('v').is_some_and(|n| !n.is_empty() && n.bytes().all(|c| c.is_ascii_digit()));
    stable || (group == "resource.k8s.io" && version.starts_with("v1beta"))
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

fn write_type(
    out: &mut String,
    name: &str,
    definition: &Value,
    places: &BTreeMap<String, go::Place>,
) -> Result<()> {
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
        let code = type_code(schema).with_context(|| format!("field {field}"))?;
        write!(out, "{field} {code}")?;
        if let Some(place) = places.get(field) {
            write_place(out, &code, place).with_context(|| format!("field {field}"))?;
        }
        if required.contains(field.as_str()) {
            out.push_str(" !");
        }
        write_marks(out, schema)?;
        out.push('\n');
    }
    Ok(())
}

fn write_place(out: &mut String, code: &str, place: &go::Place) -> Result<()> {
    let path: Vec<String> = place.path.iter().map(u32::to_string).collect();
    write!(out, " #{}", path.join("."))?;
    let wrapped = match (code.as_bytes(), place.label.as_str()) {
        ([b'[', ..], label) => label != "repeated",
        ([b'{', b'[', ..], "map") => true,
        ([b'{', ..], "map") => false,
        (_, label) => {
            ensure!(label == "optional", "is {label} on the wire, and {code} in JSON");
            false
        }
    };
    let scalar = code.trim_start_matches(['[', '{']).as_bytes().first().copied().unwrap_or_default();
    let expected = match scalar {
        _ if wrapped => place.proto.as_str(),
        b's' => "string",
        b'b' => "bool",
        b'i' => "int32",
        b'l' => "int64",
        b'd' => "double",
        b'y' => "bytes",
        b't' => "Time",
        b'u' => "MicroTime",
        b'q' => "Quantity",
        b'x' => "IntOrString",
        b'&' => code.rsplit('.').next().unwrap_or_default(),
        _ => place.proto.as_str(),
    };
    ensure!(place.proto == expected, "is {} on the wire, and {code} in JSON", place.proto);
    for (flag, set) in [('?', place.pointer), ('z', !place.omits_empty), ('w', wrapped)] {
        if set {
            out.push(flag);
        }
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
        return Ok(match special(name) {
            None => format!("&{}", short(name)),
            Some(code @ ("A" | "B" | "S")) => format!("{code}&{}", short(SCHEMA)),
            Some(code) => code.to_owned(),
        });
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
