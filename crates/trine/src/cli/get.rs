//! `trine get`: tables made by the server, or the objects themselves.

use anyhow::Context;
use futures::{AsyncBufReadExt, TryStreamExt};
use serde_json::Value;
use trine_typed::kube::Client;

use super::args::GetArgs;
use super::connect::connect;
use super::resources::{Named, discover, parse};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

/// Runs the command.
///
/// # Errors
/// What the server says.
pub async fn run(args: GetArgs) -> anyhow::Result<()> {
    let client = connect(&args.target).await?;
    let resources = discover(&client).await?;
    let named = parse(&resources, &args.what)?;
    let several = named.len() > 1;
    for one in named {
        match args.output.as_deref() {
            None | Some("wide") => table(&client, &args, &one, several).await?,
            Some(output) => objects(&client, &args, &one, output).await?,
        }
    }
    Ok(())
}

fn path(args: &GetArgs, named: &Named, watch: Option<&str>) -> String {
    let namespace = (!args.all_namespaces).then_some(args.target.namespace.as_str());
    // A watch of one object is a watch of the list with a field selector.
    let in_path = if watch.is_some() { None } else { named.name.as_deref() };
    let mut query = Vec::new();
    if let Some(selector) = &args.selector {
        query.push(format!("labelSelector={}", encode(selector)));
    }
    let by_name = named.name.as_ref().filter(|_| watch.is_some()).map(|n| format!("metadata.name={n}"));
    if let Some(fields) = by_name.or_else(|| args.field_selector.clone()) {
        query.push(format!("fieldSelector={}", encode(&fields)));
    }
    if let Some(version) = watch {
        query.push(format!("watch=true&resourceVersion={version}"));
    }
    format!("{}?{}", named.resource.path(namespace, in_path), query.join("&"))
}

/// Percent-encodes a query value.
fn encode(text: &str) -> String {
    let byte = |b: u8| match b {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(b).to_string(),
        _ => format!("%{b:02X}"),
    };
    text.bytes().map(byte).collect()
}

async fn table(client: &Client, args: &GetArgs, named: &Named, several: bool) -> anyhow::Result<()> {
    let ask = |path: String| http::Request::get(path).header("accept", TABLE).body(Vec::new());
    let wide = args.output.as_deref() == Some("wide");
    let list: Value = client.request(ask(path(args, named, None))?).await?;
    let mut printer = Printer { wide, all: args.all_namespaces, widths: Vec::new(), columns: Vec::new() };
    let prefix = if several { format!("{}/", named.resource.plural) } else { String::new() };
    let rows = list["rows"].as_array().map(Vec::as_slice).unwrap_or_default();
    if rows.is_empty() && !args.watch {
        let place = if args.all_namespaces || !named.resource.namespaced {
            String::new()
        } else {
            format!(" in {} namespace", args.target.namespace)
        };
        eprintln!("No resources found{place}.");
        return Ok(());
    }
    print!("{}", printer.print(&list, rows, true, &prefix));
    if !args.watch {
        return Ok(());
    }
    let version = list["metadata"]["resourceVersion"].as_str().unwrap_or("0").to_owned();
    let stream = client.request_stream(ask(path(args, named, Some(&version)))?).await?;
    let mut lines = stream.lines();
    while let Some(line) = lines.try_next().await? {
        let event: Value =
            serde_json::from_str(&line).context("the watch sent something that is not JSON")?;
        let object = &event["object"];
        if let Some(rows) = object["rows"].as_array().filter(|_| event["type"] != "BOOKMARK") {
            print!("{}", printer.print(object, rows, false, &prefix));
        }
    }
    Ok(())
}

struct Printer {
    wide: bool,
    all: bool,
    columns: Vec<(usize, String)>,
    widths: Vec<usize>,
}

impl Printer {
    fn print(&mut self, table: &Value, rows: &[Value], header: bool, prefix: &str) -> String {
        if self.columns.is_empty() {
            let definitions = table["columnDefinitions"].as_array().map(Vec::as_slice).unwrap_or_default();
            let shown = definitions.iter().enumerate();
            let shown = shown.filter(|(_, c)| self.wide || c["priority"].as_i64().unwrap_or_default() == 0);
            self.columns =
                shown.map(|(i, c)| (i, c["name"].as_str().unwrap_or_default().to_uppercase())).collect();
        }
        let mut lines: Vec<Vec<String>> = Vec::new();
        if header {
            let names = self.columns.iter().map(|(_, name)| name.clone());
            lines.push(self.all.then(|| "NAMESPACE".to_owned()).into_iter().chain(names).collect());
        }
        for row in rows {
            let namespace = row["object"]["metadata"]["namespace"].as_str().unwrap_or_default();
            let cells = self.columns.iter().enumerate().map(|(position, (index, _))| {
                let text = cell(&row["cells"][*index]);
                if position == 0 { format!("{prefix}{text}") } else { text }
            });
            lines.push(self.all.then(|| namespace.to_owned()).into_iter().chain(cells).collect());
        }
        for line in &lines {
            self.widths.resize(line.len().max(self.widths.len()), 0);
            for (width, text) in self.widths.iter_mut().zip(line) {
                *width = (*width).max(text.chars().count());
            }
        }
        let padded = |line: &Vec<String>| {
            let cells = line.iter().zip(&self.widths).map(|(text, width)| format!("{text:<width$}"));
            format!("{}\n", cells.collect::<Vec<_>>().join("   ").trim_end())
        };
        lines.iter().map(padded).collect()
    }
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => "<none>".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

async fn objects(client: &Client, args: &GetArgs, named: &Named, output: &str) -> anyhow::Result<()> {
    let found: Value = client.request(http::Request::get(path(args, named, None)).body(Vec::new())?).await?;
    match output {
        "json" => println!("{}", serde_json::to_string_pretty(&found)?),
        "yaml" => print!("{}", serde_saphyr::to_string(&found)?),
        "name" => {
            let items = found["items"].as_array().cloned().unwrap_or_else(|| vec![found.clone()]);
            for item in items {
                let name = item["metadata"]["name"].as_str().unwrap_or_default();
                println!("{}/{name}", named.resource.kind.to_lowercase());
            }
        }
        other => anyhow::bail!("unknown output {other:?}: wide, yaml, json or name"),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_table_is_aligned_and_hides_wide_columns() {
        let table = json!({"columnDefinitions": [{"name": "Name"}, {"name": "Ready"}, {"name": "IP", "priority": 1}],
            "rows": [{"cells": ["a-long-name", "1/1", "10.0.0.1"]}, {"cells": ["b", "0/1", null]}]});
        let mut narrow = Printer { wide: false, all: false, columns: Vec::new(), widths: Vec::new() };
        let rows = table["rows"].as_array().unwrap();
        let text = narrow.print(&table, rows, true, "");
        assert_eq!(text, "NAME          READY\na-long-name   1/1\nb             0/1\n");
        let mut wide = Printer { wide: true, all: false, columns: Vec::new(), widths: Vec::new() };
        assert!(wide.print(&table, rows, true, "").contains("<none>"));
    }
}
