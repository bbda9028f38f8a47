//! How `kubectl get services` sees a Service.

use crate::kinds::Column;
use crate::kinds::columns::{age, labels, name, or_none};
use crate::kinds::fields::{items, text};
use serde_json::Value;

/// The columns.
pub const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::text("Type"),
    Column::text("Cluster-IP"),
    Column::text("External-IP"),
    Column::text("Port(s)"),
    Column::AGE,
    Column::text("Selector").wide(),
];

/// The cells.
pub fn row(service: &Value, now: i64) -> Vec<Value> {
    let spec = &service["spec"];
    vec![
        name(service),
        text(spec, "type").into(),
        or_none(text(spec, "clusterIP")),
        external(service).into(),
        ports(spec).into(),
        age(service, now),
        labels(&spec["selector"]).into(),
    ]
}

fn external(service: &Value) -> String {
    let spec = &service["spec"];
    let mut list: Vec<&str> = items(spec, "externalIPs").iter().filter_map(Value::as_str).collect();
    match text(spec, "type") {
        "ExternalName" => return text(spec, "externalName").to_owned(),
        "LoadBalancer" => {
            let ingress = items(&service["status"]["loadBalancer"], "ingress").iter();
            list.extend(ingress.map(|i| if i["ip"].is_null() { text(i, "hostname") } else { text(i, "ip") }));
            if list.is_empty() {
                return "<pending>".to_owned();
            }
        }
        _ => {}
    }
    if list.is_empty() { "<none>".to_owned() } else { list.join(",") }
}

fn ports(spec: &Value) -> String {
    let one = |port: &Value| match port["nodePort"].as_i64().unwrap_or(0) {
        0 => format!("{}/{}", port["port"], text(port, "protocol")),
        node_port => format!("{}:{node_port}/{}", port["port"], text(port, "protocol")),
    };
    let list: Vec<String> = items(spec, "ports").iter().map(one).collect();
    if list.is_empty() { "<none>".to_owned() } else { list.join(",") }
}
