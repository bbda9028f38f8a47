//! Field numbers, from the Go modules that define the kinds: the struct tags know JSON's name of each number, the `.proto` files
//! its type. Nothing but names, types and numbers is taken.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

/// The release that is served, as Go modules number it.
const VERSION: &str = "v0.37.0";
/// A module, where its packages of types lie, and what definitions call it.
const MODULES: [(&str, &str, &str); 4] = [
    ("k8s.io/api", "", "io.k8s.api"),
    ("k8s.io/apimachinery", "pkg/apis/meta", "io.k8s.apimachinery.pkg.apis.meta"),
    (
        "k8s.io/apiextensions-apiserver",
        "pkg/apis/apiextensions",
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions",
    ),
    ("k8s.io/kube-aggregator", "pkg/apis/apiregistration", "io.k8s.kube-aggregator.pkg.apis.apiregistration"),
];

/// A field as Go has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// JSON name; empty for a struct whose fields count as fields of the outer one.
    pub json: String,
    /// Go type.
    pub ty: String,
    /// Field number; `None` where nothing is said.
    pub number: Option<u32>,
    /// Whether JSON leaves it out when it is empty.
    pub omits_empty: bool,
}

/// The place of a field on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Field numbers from the outer message to the field: more than one where Go embeds a struct.
    pub path: Vec<u32>,
    /// Whether absence differs from the zero value.
    pub pointer: bool,
    /// Whether JSON leaves the zero value out.
    pub omits_empty: bool,
    /// `optional`, `repeated` or `map`.
    pub label: String,
    /// The type in the `.proto` file, without its package; of a map, that of the values.
    pub proto: String,
}

/// Label and type of the fields of a message, by number.
type Message = BTreeMap<u32, (String, String)>;

/// All structs and messages, by the name of their definition.
#[derive(Debug, Default)]
pub struct Structs {
    structs: BTreeMap<String, Vec<Field>>,
    messages: BTreeMap<String, Message>,
}

impl Structs {
    /// Reads the modules, which `go` fetches if need be.
    ///
    /// # Errors
    /// If there is no `go`, or it cannot get a module.
    pub fn load() -> Result<Self> {
        let mut structs = Self::default();
        for (module, packages, name) in MODULES {
            let root = directory(module)?.join(packages);
            for file in source_files(&root)? {
                let package = file.parent().and_then(|p| p.strip_prefix(&root).ok()).unwrap_or(Path::new(""));
                let words: Vec<_> = package.iter().map(|w| w.to_string_lossy()).collect();
                let prefix = format!("{name}.{}", words.join("."));
                let text = std::fs::read_to_string(&file)?;
                if file.extension().is_some_and(|e| e == "proto") {
                    let found = messages_of(&text).into_iter().map(|(n, m)| (format!("{prefix}.{n}"), m));
                    structs.messages.extend(found);
                } else {
                    let found = structs_of(&text).into_iter().map(|(n, f)| (format!("{prefix}.{n}"), f));
                    structs.structs.extend(found);
                }
            }
        }
        Ok(structs)
    }

    /// Where the fields of a definition lie on the wire, by JSON name.
    ///
    /// # Errors
    /// If there is no such struct, or an embedded one is missing.
    pub fn places(&self, definition: &str) -> Result<BTreeMap<String, Place>> {
        let mut places = BTreeMap::new();
        self.collect(definition, &[], &mut places)?;
        Ok(places)
    }

    fn collect(&self, name: &str, above: &[u32], into: &mut BTreeMap<String, Place>) -> Result<()> {
        let fields = self.structs.get(name).with_context(|| format!("no Go struct for {name}"))?;
        for field in fields {
            let Some(number) = field.number else { continue };
            let path = [above, &[number]].concat();
            if field.json.is_empty() {
                let package = name.rsplit_once('.').map_or("", |(p, _)| p);
                self.collect(&format!("{package}.{}", field.ty), &path, into)?;
            } else {
                let pointer = field.ty.starts_with('*');
                let wire = self.messages.get(name).and_then(|m| m.get(&number));
                let (label, proto) =
                    wire.with_context(|| format!("{name} has no message with a field {number}"))?.clone();
                let omits_empty = field.omits_empty;
                into.insert(field.json.clone(), Place { path, pointer, omits_empty, label, proto });
            }
        }
        Ok(())
    }
}

fn directory(module: &str) -> Result<PathBuf> {
    let output = Command::new("go")
        .args(["mod", "download", "-json", &format!("{module}@{VERSION}")])
        .current_dir(std::env::temp_dir())
        .output()
        .context("cannot run go, which fetches the modules")?;
    let answer: Value = serde_json::from_slice(&output.stdout).context("the answer of go mod download")?;
    let dir = answer["Dir"].as_str().with_context(|| format!("{module}: {}", answer["Error"]))?;
    Ok(PathBuf::from(dir))
}

fn source_files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && name != "testdata" {
            files.extend(source_files(&path)?);
        } else if name == "generated.proto"
            || (name.ends_with(".go") && ["zz_", "generated", "_test."].iter().all(|m| !name.contains(m)))
        {
            files.push(path);
        }
    }
    Ok(files)
}

/// The structs of a file whose fields have tags.
fn structs_of(text: &str) -> Vec<(String, Vec<Field>)> {
    let mut found: Vec<(String, Vec<Field>)> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        let head = line.strip_prefix("type ").and_then(|l| l.split_once(" struct"));
        if let Some((name, rest)) = head {
            inside = !rest.ends_with('}');
            found.push((name.to_owned(), Vec::new()));
        } else if line.starts_with('}') {
            inside = false;
        } else if inside && let (Some(field), Some(last)) = (field(line.trim()), found.last_mut()) {
            last.1.push(field);
        }
    }
    found
}

fn field(line: &str) -> Option<Field> {
    let (code, tags) = line.split_once('`')?;
    if code.starts_with("//") {
        return None;
    }
    let tags = tags.split('`').next().unwrap_or_default();
    let ty = code.split_whitespace().last()?.to_owned();
    let mut json = tag(tags, "json")?.split(',');
    let name = json.next().unwrap_or_default().to_owned();
    if name == "-" {
        return None;
    }
    let omits_empty = json.any(|word| word.starts_with("omit"));
    let number = tag(tags, "protobuf").and_then(|wire| wire.split(',').nth(1)?.parse().ok());
    Some(Field { json: name, ty, number, omits_empty })
}

fn tag<'a>(tags: &'a str, key: &str) -> Option<&'a str> {
    let rest = tags.split(&format!("{key}:\"")).nth(1)?;
    rest.split('"').next()
}

/// The messages of a `.proto` file.
fn messages_of(text: &str) -> Vec<(String, Message)> {
    let mut found: Vec<(String, Message)> = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("message ").and_then(|l| l.strip_suffix(" {")) {
            found.push((name.to_owned(), Message::new()));
        } else if let (Some((number, label, ty)), Some(last)) = (proto_field(line), found.last_mut()) {
            last.1.insert(number, (label, ty));
        }
    }
    found
}

fn proto_field(line: &str) -> Option<(u32, String, String)> {
    let (code, number) = line.strip_suffix(';')?.split_once(" = ")?;
    let (label, ty) = match code.strip_prefix("map<") {
        Some(rest) => ("map", rest.split_once(", ")?.1.split_once('>')?.0),
        None => {
            let (label, rest) = code.split_once(' ')?;
            (label, rest.split_once(' ')?.0)
        }
    };
    let ty = ty.rsplit('.').next().unwrap_or(ty);
    Some((number.split(' ').next()?.parse().ok()?, label.to_owned(), ty.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "package v1\n\
        type A struct {\n\tmetav1.TypeMeta `json:\"\"`\n\
        \t// Old *string `json:\"old\" protobuf:\"bytes,9,opt,name=old\"`\n\
        \tB `json:\"\" protobuf:\"bytes,2,opt,name=b\"`\n\
        \tN *int32 `json:\"n,omitempty\" protobuf:\"varint,3,opt,name=n\"`\n\
        \tL []string `json:\"l\" protobuf:\"bytes,4,opt,name=l\"`\n\
        \tM map[string]Extra `json:\"m,omitempty\" protobuf:\"bytes,5,opt,name=m\"`\n}\n\
        type B struct {\n\tRef string `json:\"$ref\" protobuf:\"bytes,7,name=ref\"`\n}\n";

    const PROTO: &str = "message A {\n  // b is embedded = 1;\n  optional B b = 2;\n  optional int32 n = 3;\n\
        \n  repeated string l = 4;\n  map<string, .k8s.io.p.Extra> m = 5;\n}\n\
        message B {\n  optional string ref = 7;\n}\n";

    #[test]
    fn the_fields_of_embedded_structs_lie_below_their_number() {
        let structs = structs_of(TEXT).into_iter().map(|(n, f)| (format!("p.{n}"), f)).collect();
        let messages = messages_of(PROTO).into_iter().map(|(n, m)| (format!("p.{n}"), m)).collect();
        let places = Structs { structs, messages }.places("p.A").unwrap();
        let place = |path: &[u32], pointer, omits_empty, label: &str, proto: &str| Place {
            path: path.to_vec(),
            pointer,
            omits_empty,
            label: label.to_owned(),
            proto: proto.to_owned(),
        };
        let wanted = [
            ("$ref".to_owned(), place(&[2, 7], false, false, "optional", "string")),
            ("l".to_owned(), place(&[4], false, false, "repeated", "string")),
            ("m".to_owned(), place(&[5], false, true, "map", "Extra")),
            ("n".to_owned(), place(&[3], true, true, "optional", "int32")),
        ];
        assert_eq!(places, BTreeMap::from(wanted));
    }
}
