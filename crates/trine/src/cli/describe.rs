//! `trine describe`: an object's fields as an indented text, then its events.

use std::fmt::Write;

use serde_json::Value;
use trine_typed::kube::Client;

use super::args::DescribeArgs;
use super::connect::connect;
use super::resources::{discover, parse, request};

/// Fields that say nothing to a reader.
const HIDDEN: [&str; 3] =
    ["managedFields", "kubectl.kubernetes.io/last-applied-configuration", "resourceVersion"];

/// Runs the command.
///
/// # Errors
/// What the server says.
pub async fn run(args: DescribeArgs) -> anyhow::Result<()> {
    let client = connect(&args.target).await?;
    let resources = discover(&client).await?;
    for named in parse(&resources, &args.what)? {
        let namespace = args.target.namespace.as_str();
        let path = named.resource.path(Some(namespace), named.name.as_deref());
        let found = request(&client, &path).await?;
        let items = found["items"].as_array().cloned().unwrap_or_else(|| vec![found.clone()]);
        for item in items {
            let mut text = String::new();
            fields(&item, 0, &mut text);
            print!("{text}");
            print!("{}", events(&client, &item).await?);
        }
    }
    Ok(())
}

fn fields(value: &Value, depth: usize, text: &mut String) {
    let Value::Object(map) = value else { return };
    for (key, value) in map {
        if HIDDEN.contains(&key.as_str()) || value.is_null() {
            continue;
        }
        let indent = "  ".repeat(depth);
        let title = title(key);
        match value {
            Value::Object(inner) if inner.is_empty() => {}
            Value::Object(_) => {
                let _ = writeln!(text, "{indent}{title}:");
                fields(value, depth + 1, text);
            }
            Value::Array(items) => {
                let _ = writeln!(text, "{indent}{title}:");
                for item in items {
                    if item.is_object() {
                        let mut inner = String::new();
                        fields(item, depth + 2, &mut inner);
                        let inner = inner.trim_start();
                        let _ = write!(text, "{indent}  - {inner}");
                    } else {
                        let _ = writeln!(text, "{indent}  {}", scalar(item));
                    }
                }
            }
            other => {
                let _ = writeln!(text, "{indent}{title}: {}", scalar(other));
            }
        }
    }
}

/// `terminationGracePeriodSeconds` becomes `Termination Grace Period Seconds`; keys with punctuation stay.
fn title(key: &str) -> String {
    if !key.chars().all(char::is_alphanumeric) {
        return key.to_owned();
    }
    let mut title = String::new();
    let mut before = ' ';
    for (i, c) in key.chars().enumerate() {
        if i == 0 {
            title.extend(c.to_uppercase());
        } else {
            if c.is_uppercase() && !before.is_uppercase() {
                title.push(' ');
            }
            title.push(c);
        }
        before = c;
    }
    title
}

fn scalar(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

async fn events(client: &Client, object: &Value) -> anyhow::Result<String> {
    let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
    let path = format!("/api/v1/events?fieldSelector=involvedObject.uid%3D{uid}");
    let list = request(client, &path).await?;
    let items = list["items"].as_array().cloned().unwrap_or_default();
    if items.is_empty() {
        return Ok("Events: <none>\n".to_owned());
    }
    let mut text = "Events:\n".to_owned();
    for event in items {
        let word = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
        let count = event["count"].as_i64().unwrap_or(1);
        let from = event["source"]["component"].as_str().unwrap_or_default();
        let times = if count > 1 { format!(" (x{count})") } else { String::new() };
        let _ = writeln!(
            text,
            "  {:<8} {:<24} {}{times}  {from}: {}",
            word("type"),
            word("reason"),
            word("lastTimestamp"),
            word("message")
        );
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_are_indented_and_noise_is_left_out() {
        let mut text = String::new();
        let object = json!({"podIPs": [{"ip": "10.0.0.1"}], "managedFields": [1], "labels": {"a/b": "c"}, "list": [1]});
        fields(&object, 0, &mut text);
        assert_eq!(text, "Labels:\n  a/b: c\nList:\n  1\nPod IPs:\n  - Ip: 10.0.0.1\n");
    }
}
