//! What is served, as clients ask for it: one document for all groups (`apidiscovery.k8s.io`), or a list a group.

use std::sync::Arc;

use crate::aggregation::Remote;
use crate::aggregation::order::{self, Group};
use crate::catalog::{Resources, Served};
use serde_json::{Value, json};

/// The minor version that is served.
pub const VERSION: &str = "v1.37.0";

/// The media type of the aggregated document, if the client takes it.
#[must_use]
pub fn aggregated_type(accept: &str) -> Option<&'static str> {
    for part in accept.split(',') {
        let words: Vec<&str> = part.split(';').map(str::trim).collect();
        if words.first() != Some(&"application/json") || !words.contains(&"g=apidiscovery.k8s.io") {
            continue;
        }
        if words.contains(&"v=v2") {
            return Some("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList");
        }
        if words.contains(&"v=v2beta1") {
            return Some("application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList");
        }
    }
    None
}

/// The groups but the core group: those of this server, and those of others.
#[must_use]
pub fn groups(resources: &Resources, others: &[Arc<Remote>]) -> Vec<Group> {
    order::groups(resources, others.iter().map(|o| (o.group.as_str(), o.version.as_str(), o.rank)))
}

/// The aggregated document of the core group, or of all others.
#[must_use]
pub fn aggregated(resources: &Resources, others: &[Arc<Remote>], core: bool, media_type: &str) -> Value {
    let version = if media_type.contains("v=v2beta1") { "v2beta1" } else { "v2" };
    let groups = if core {
        vec![Group { name: String::new(), versions: vec!["v1".to_owned()] }]
    } else {
        groups(resources, others)
    };
    let items: Vec<Value> = groups
        .into_iter()
        .map(|Group { name, versions }| {
            let versions = versions.into_iter().map(|version| {
                match others.iter().find(|o| o.group == name && o.version == version) {
                    Some(other) => of_other(other),
                    None => {
                        let of_version = resources.of_group(&name).filter(|r| r.version == version);
                        let list: Vec<Value> = of_version.map(|r| entry(r)).collect();
                        json!({"version": version, "resources": list, "freshness": "Current"})
                    }
                }
            });
            let versions: Vec<Value> = versions.collect();
            let meta = if name.is_empty() { json!({}) } else { json!({"name": name}) };
            json!({"metadata": meta, "versions": versions})
        })
        .collect();
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": format!("apidiscovery.k8s.io/{version}"),
        "metadata": {}, "items": items})
}

/// What another server said that it serves.
fn of_other(other: &Remote) -> Value {
    let learned = other.learned();
    let mut version = learned.discovery.clone().unwrap_or_else(|| json!({"version": other.version}));
    version["freshness"] = if learned.fresh { "Current" } else { "Stale" }.into();
    version
}

fn entry(r: &Served) -> Value {
    let kind =
        |group: &str, version: &str, kind: &str| json!({"group": group, "version": version, "kind": kind});
    let mut entry = json!({"resource": r.plural, "responseKind": kind(&r.group, &r.version, &r.kind),
        "scope": if r.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": r.singular, "verbs": r.verbs});
    if !r.short_names.is_empty() {
        entry["shortNames"] = json!(r.short_names);
    }
    if !r.categories.is_empty() {
        entry["categories"] = json!(r.categories);
    }
    let parts: Vec<Value> = r
        .subresources
        .iter()
        .map(|s| json!({"subresource": s.name, "responseKind": kind(&s.group, &s.version, &s.kind), "verbs": s.verbs}))
        .collect();
    if !parts.is_empty() {
        entry["subresources"] = json!(parts);
    }
    entry
}

/// `/api`.
#[must_use]
pub fn core_versions(address: &str) -> Value {
    json!({"kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]})
}

/// `/apis`.
#[must_use]
pub fn group_list(groups: &[Group]) -> Value {
    let list: Vec<Value> = groups.iter().map(group).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": list})
}

/// `/apis/GROUP`.
#[must_use]
pub fn group_document(groups: &[Group], name: &str) -> Option<Value> {
    let mut document = group(groups.iter().find(|g| g.name == name)?);
    document["kind"] = "APIGroup".into();
    document["apiVersion"] = "v1".into();
    Some(document)
}

fn group(group: &Group) -> Value {
    let name = &group.name;
    let one = |version: &String| json!({"groupVersion": format!("{name}/{version}"), "version": version});
    let versions: Vec<Value> = group.versions.iter().map(one).collect();
    json!({"name": name, "preferredVersion": versions.first(), "versions": versions})
}

/// `/api/v1` and `/apis/GROUP/VERSION`.
#[must_use]
pub fn resource_list(resources: &Resources, group: &str, version: &str) -> Option<Value> {
    let mut list = Vec::new();
    for r in resources.of_group(group).filter(|r| r.version == version) {
        let mut entry = json!({"name": r.plural, "singularName": r.singular, "namespaced": r.namespaced,
            "kind": r.kind, "verbs": r.verbs});
        if !r.short_names.is_empty() {
            entry["shortNames"] = json!(r.short_names);
        }
        if !r.categories.is_empty() {
            entry["categories"] = json!(r.categories);
        }
        list.push(entry);
        for s in &r.subresources {
            let mut entry = json!({"name": format!("{}/{}", r.plural, s.name), "singularName": "",
                "namespaced": r.namespaced, "kind": s.kind, "verbs": s.verbs});
            if s.group != r.group || s.version != r.version {
                entry["group"] = (&*s.group).into();
                entry["version"] = (&*s.version).into();
            }
            list.push(entry);
        }
    }
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    (!list.is_empty()).then(|| {
        json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": list})
    })
}

/// `/version`.
#[must_use]
pub fn version() -> Value {
    json!({"major": "1", "minor": "37", "gitVersion": format!("{VERSION}+trine"), "gitCommit": "",
        "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "rustc",
        "platform": format!("linux/{}", if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" })})
}
