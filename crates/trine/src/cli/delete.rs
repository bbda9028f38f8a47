//! `trine delete`: deletes and waits until the objects are gone.

use std::time::Duration;

use anyhow::Context;
use serde_json::{Value, json};
use trine_typed::kube::{Client, Error};

use super::args::DeleteArgs;
use super::connect::connect;
use super::resources::{discover, find_kind, parse};

/// How long an object may take to go. Pods may have long grace periods.
const DEADLINE: Duration = Duration::from_secs(600);
const POLL: Duration = Duration::from_millis(50);

/// Runs the command.
///
/// # Errors
/// What the server says.
pub async fn run(args: DeleteArgs) -> anyhow::Result<()> {
    let client = connect(&args.target).await?;
    let resources = discover(&client).await?;
    let namespace = args.target.namespace.clone();
    let mut paths = Vec::new();
    for file in &args.filename {
        for object in super::apply::read(file)? {
            let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
            let resource = find_kind(&resources, &text(&object["apiVersion"]), &text(&object["kind"]))?;
            let of = object["metadata"]["namespace"].as_str().unwrap_or(&namespace);
            let name = text(&object["metadata"]["name"]);
            paths.push((
                format!("{}/{name}", resource.kind.to_lowercase()),
                resource.path(Some(of), Some(&name)),
            ));
        }
    }
    if !args.what.is_empty() {
        for named in parse(&resources, &args.what)? {
            let kind = named.resource.kind.to_lowercase();
            let names = match (&named.name, &args.selector) {
                (Some(name), _) => vec![name.clone()],
                (None, Some(selector)) => {
                    let list =
                        format!("{}?labelSelector={selector}", named.resource.path(Some(&namespace), None));
                    let found: Value = client.request(http::Request::get(list).body(Vec::new())?).await?;
                    let items = found["items"].as_array().cloned().unwrap_or_default();
                    items.iter().filter_map(|i| i["metadata"]["name"].as_str().map(str::to_owned)).collect()
                }
                (None, None) => anyhow::bail!("name the {kind} to delete, or give --selector"),
            };
            let path = |name: &String| named.resource.path(Some(&namespace), Some(name));
            paths.extend(names.iter().map(|name| (format!("{kind}/{name}"), path(name))));
        }
    }
    anyhow::ensure!(!paths.is_empty(), "nothing to delete");
    for (label, path) in &paths {
        let uid = delete(&client, path, args.grace_period)
            .await
            .with_context(|| format!("cannot delete {label}"))?;
        println!("{label} deleted");
        if !args.no_wait {
            wait_gone(&client, path, &uid).await.with_context(|| format!("waiting for {label} to go"))?;
        }
    }
    Ok(())
}

/// Deletes; gives the uid of what was deleted.
async fn delete(client: &Client, path: &str, grace: Option<u32>) -> anyhow::Result<Value> {
    let mut options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"});
    if let Some(seconds) = grace {
        options["gracePeriodSeconds"] = json!(seconds);
    }
    let request = http::Request::delete(path).header("content-type", "application/json");
    let answer: Value = client.request(request.body(options.to_string().into_bytes())?).await?;
    let of_object = answer["metadata"]["uid"].clone();
    Ok(if of_object.is_null() { answer["details"]["uid"].clone() } else { of_object })
}

async fn wait_gone(client: &Client, path: &str, uid: &Value) -> anyhow::Result<()> {
    let started = std::time::Instant::now();
    while started.elapsed() < DEADLINE {
        match client.request::<Value>(http::Request::get(path).body(Vec::new())?).await {
            Err(Error::Api(status)) if status.code == 404 => return Ok(()),
            Err(error) => return Err(error.into()),
            Ok(object) if object["metadata"]["uid"] != *uid => return Ok(()),
            Ok(_) => tokio::time::sleep(POLL).await,
        }
    }
    anyhow::bail!("still there after {DEADLINE:?}")
}
