//! `trine apply`: creates what is missing and changes what differs, with the last applied text kept in the object as
//! kubectl keeps it, so that fields removed from a file are removed from the object.

use std::io::Read;
use std::path::Path;

use anyhow::Context;
use serde::Deserialize;
use serde_json::{Value, json};
use trine_typed::kube::Client;

use super::args::ApplyArgs;
use super::connect::connect;
use super::resources::{Resource, discover, find_kind};

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Runs the command.
///
/// # Errors
/// What the server says about the first object that it refuses; those before are applied.
pub async fn run(args: ApplyArgs) -> anyhow::Result<()> {
    let client = connect(&args.target).await?;
    let resources = discover(&client).await?;
    for name in &args.filename {
        for object in read(name)? {
            let done = apply(&client, &resources, &args.target.namespace, object).await?;
            println!("{done}");
        }
    }
    Ok(())
}

/// The objects in a file, a folder or standard input (`-`); Lists are opened.
///
/// # Errors
/// If a file cannot be read or is neither YAML nor JSON.
pub fn read(name: &str) -> anyhow::Result<Vec<Value>> {
    let mut texts = Vec::new();
    let path = Path::new(name);
    if name == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text)?;
        texts.push((name.to_owned(), text));
    } else if path.is_dir() {
        let mut files: Vec<_> = std::fs::read_dir(path)?.filter_map(|e| Some(e.ok()?.path())).collect();
        files.sort();
        let wanted =
            |p: &std::path::PathBuf| p.extension().is_some_and(|e| e == "yaml" || e == "yml" || e == "json");
        for file in files.into_iter().filter(wanted) {
            texts.push((file.display().to_string(), std::fs::read_to_string(&file)?));
        }
    } else {
        texts.push((
            name.to_owned(),
            std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?,
        ));
    }
    let mut objects = Vec::new();
    for (file, text) in texts {
        objects.extend(parse(&text).with_context(|| format!("{file} is not a manifest"))?);
    }
    Ok(objects)
}

/// The objects of a text with YAML documents.
///
/// # Errors
/// If a document is not YAML, or not an object with `apiVersion` and `kind`.
pub fn parse(text: &str) -> anyhow::Result<Vec<Value>> {
    let mut objects = Vec::new();
    for document in serde_saphyr::from_multiple::<Value>(text)? {
        match document {
            Value::Null => {}
            document if document["kind"] == "List" => {
                objects.extend(document["items"].as_array().cloned().unwrap_or_default());
            }
            document => {
                let header = Header::deserialize(&document).context("apiVersion or kind is missing")?;
                anyhow::ensure!(!header.kind.is_empty(), "kind is empty");
                objects.push(document);
            }
        }
    }
    Ok(objects)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Header {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    kind: String,
}

/// Applies one object; gives `kind/name created`, `configured` or `unchanged`.
///
/// # Errors
/// What the server says.
pub async fn apply(
    client: &Client,
    resources: &[Resource],
    namespace: &str,
    mut object: Value,
) -> anyhow::Result<String> {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let resource = find_kind(resources, &text(&object["apiVersion"]), &text(&object["kind"]))?;
    let name = text(&object["metadata"]["name"]);
    let of = object["metadata"]["namespace"].as_str().unwrap_or(namespace).to_owned();
    if resource.namespaced {
        object["metadata"]["namespace"] = json!(of);
    }
    let label = format!("{}/{name}", resource.kind.to_lowercase());
    let path = resource.path(Some(&of), Some(&name));
    let current: Result<Value, _> = client.request(http::Request::get(&path).body(Vec::new())?).await;
    let applied = object.to_string();
    object["metadata"]["annotations"][LAST_APPLIED] = json!(applied);
    match current {
        Err(trine_typed::kube::Error::Api(status)) if status.code == 404 => {
            let list =
                format!("{}?fieldValidation=Strict&fieldManager=trine", resource.path(Some(&of), None));
            let create = http::Request::post(list).header("content-type", "application/json");
            client
                .request::<Value>(create.body(object.to_string().into_bytes())?)
                .await
                .with_context(|| format!("cannot create {label}"))?;
            Ok(format!("{label} created"))
        }
        Err(error) => Err(error).with_context(|| format!("cannot read {label}")),
        Ok(current) => {
            let before = current["metadata"]["annotations"][LAST_APPLIED].as_str();
            let before: Value = before.and_then(|t| serde_json::from_str(t).ok()).unwrap_or(Value::Null);
            let mut patch = object;
            remove_dropped(&before, &mut patch);
            let path = format!("{path}?fieldValidation=Strict&fieldManager=trine");
            let change = |form: &str| {
                let request = http::Request::patch(&path).header("content-type", form);
                request.body(patch.to_string().into_bytes())
            };
            let mut after = client.request::<Value>(change("application/strategic-merge-patch+json")?).await;
            // Custom kinds say nothing of how their lists are merged.
            if matches!(&after, Err(trine_typed::kube::Error::Api(status)) if status.code == 415) {
                after = client.request(change("application/merge-patch+json")?).await;
            }
            let after = after.with_context(|| format!("cannot change {label}"))?;
            let same = after["metadata"]["resourceVersion"] == current["metadata"]["resourceVersion"];
            Ok(format!("{label} {}", if same { "unchanged" } else { "configured" }))
        }
    }
}

/// Sets to null in `patch` what `before` had and the file has no more.
fn remove_dropped(before: &Value, patch: &mut Value) {
    let (Value::Object(before), Value::Object(patch)) = (before, patch) else { return };
    for (key, old) in before {
        match patch.get_mut(key) {
            None => {
                patch.insert(key.clone(), Value::Null);
            }
            Some(new) => remove_dropped(old, new),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_and_lists_are_opened_and_junk_is_refused() {
        let text = "apiVersion: v1\nkind: Pod\n---\n---\napiVersion: v1\nkind: List\nitems: [{kind: A}, {kind: B}]\n";
        assert_eq!(parse(text).unwrap().len(), 3);
        assert!(parse("just words").is_err());
        assert!(parse("kind: Pod").is_err());
    }

    #[test]
    fn a_field_that_left_the_file_is_set_to_null() {
        let before = json!({"spec": {"a": 1, "b": {"c": 1}}});
        let mut patch = json!({"spec": {"b": {}}});
        remove_dropped(&before, &mut patch);
        assert_eq!(patch, json!({"spec": {"a": null, "b": {"c": null}}}));
    }
}
