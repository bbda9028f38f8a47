//! What a server serves, and how it describes that.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::pass::as_user;
use super::{Aggregation, Remote};
use crate::openapi::{Document, Swagger};
use crate::registry::text;
use crate::user::{MASTERS, User};

/// How long an answer may take.
const DEADLINE: Duration = Duration::from_secs(10);
/// The largest description that is taken, bytes.
const MOST: usize = 32 << 20;
const JSON: &str = "application/json";
const AGGREGATED: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;q=0.9";

/// What a server said of itself.
#[derive(Debug, Clone, Default)]
pub struct Learned {
    /// Its `APIVersionDiscovery`; `None` before it was asked.
    pub discovery: Option<Value>,
    /// Whether that is what it serves now.
    pub fresh: bool,
    /// Its description in version 3.
    pub three: Option<Document>,
    /// Its description in the older form.
    pub two: Option<Arc<Swagger>>,
}

impl Learned {
    /// The same, of a server that cannot be asked any more.
    pub(super) fn stale(&self) -> Self {
        Self { fresh: false, ..self.clone() }
    }
}

/// Asks a server for all of it. What it does not say is left out.
pub(super) async fn learn(aggregation: &Aggregation, remote: &Remote) -> Learned {
    let get = async |path: &str, accept: &str| ask(aggregation, remote, path, accept).await;
    let discovery = match get("/apis", AGGREGATED).await {
        Some((media, body)) if media.contains("g=apidiscovery.k8s.io") && media.contains("v=v2") => {
            of_group(&serde_json::from_slice(&body).unwrap_or_default(), remote)
        }
        _ => None,
    };
    let discovery = match discovery {
        Some(discovery) => Some(discovery),
        None => get(&remote.root(), JSON).await.map(|(_, body)| {
            let list: Value = serde_json::from_slice(&body).unwrap_or_default();
            from_list(&list, &remote.group, &remote.version)
        }),
    };
    let root = remote.root();
    let three = match get("/openapi/v3", JSON).await {
        None => None,
        Some((_, index)) => {
            let index: Value = serde_json::from_slice(&index).unwrap_or_default();
            match text(&index["paths"][root.trim_start_matches('/')]["serverRelativeURL"]) {
                "" => None,
                url => get(url, JSON).await.map(|(_, bytes)| document(bytes)),
            }
        }
    };
    let two = get("/openapi/v2", JSON).await.and_then(|(_, body)| Swagger::read(&body, &root)).map(Arc::new);
    let fresh = discovery.is_some();
    let discovery = discovery.or_else(|| Some(json!({"version": remote.version})));
    Learned { discovery, fresh, three, two }
}

fn document(bytes: Bytes) -> Document {
    let hash = hex::encode(&Sha256::digest(&bytes)[..16]).to_uppercase();
    Document { bytes, hash }
}

/// Media type and body of a good answer.
async fn ask(
    aggregation: &Aggregation,
    remote: &Remote,
    path: &str,
    accept: &str,
) -> Option<(String, Bytes)> {
    let mut request = Request::get(path).header(header::ACCEPT, accept).body(Body::empty()).ok()?;
    let user = User { groups: vec![MASTERS.to_owned()], ..User::new("system:kube-aggregator", &[]) };
    as_user(request.headers_mut(), &user);
    let asked = async {
        let answer = remote.send(&aggregation.registry, request).await.ok()?;
        if answer.status() != StatusCode::OK {
            return None;
        }
        let media = answer.headers().get(header::CONTENT_TYPE).and_then(|m| m.to_str().ok());
        let media = media.unwrap_or_default().to_owned();
        let body = Limited::new(answer.into_body(), MOST).collect().await.ok()?;
        Some((media, body.to_bytes()))
    };
    tokio::time::timeout(DEADLINE, asked).await.ok().flatten()
}

/// The part of an `APIGroupDiscoveryList` that is about a group and version.
fn of_group(list: &Value, remote: &Remote) -> Option<Value> {
    let groups = list["items"].as_array()?;
    let group = groups.iter().find(|g| text(&g["metadata"]["name"]) == remote.group)?;
    group["versions"].as_array()?.iter().find(|v| text(&v["version"]) == remote.version).cloned()
}

/// An `APIResourceList` as an `APIVersionDiscovery`.
fn from_list(list: &Value, group: &str, version: &str) -> Value {
    let all = || list["resources"].as_array().into_iter().flatten();
    let kind = |r: &Value| {
        let or = |given: &Value, default: &str| match text(given) {
            "" => default.to_owned(),
            given => given.to_owned(),
        };
        json!({"group": or(&r["group"], group), "version": or(&r["version"], version), "kind": r["kind"]})
    };
    let resources = all().filter(|r| !text(&r["name"]).contains('/')).map(|r| {
        let mut entry = json!({"resource": r["name"], "responseKind": kind(r), "verbs": r["verbs"],
            "scope": if r["namespaced"] == true { "Namespaced" } else { "Cluster" }, "singularResource": r["singularName"]});
        for field in ["shortNames", "categories"] {
            if r[field].is_array() {
                entry[field] = r[field].clone();
            }
        }
        let below = format!("{}/", text(&r["name"]));
        let parts: Vec<Value> = all()
            .filter_map(|s| Some((s, text(&s["name"]).strip_prefix(&below)?)))
            .map(|(s, name)| json!({"subresource": name, "responseKind": kind(s), "verbs": s["verbs"]}))
            .collect();
        if !parts.is_empty() {
            entry["subresources"] = parts.into();
        }
        entry
    });
    json!({"version": version, "resources": resources.collect::<Vec<_>>()})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_older_form_of_discovery_says_the_same() {
        let list = json!({"resources": [
            {"name": "flunders", "singularName": "flunder", "namespaced": true, "kind": "Flunder", "verbs": ["get"], "shortNames": ["fl"]},
            {"name": "flunders/scale", "singularName": "", "namespaced": true, "group": "autoscaling", "version": "v1", "kind": "Scale",
                "verbs": ["update"]},
            {"name": "fischers", "singularName": "fischer", "namespaced": false, "kind": "Fischer", "verbs": ["list"]}]});
        let wanted = json!({"version": "v1", "resources": [
            {"resource": "flunders", "responseKind": {"group": "w.io", "version": "v1", "kind": "Flunder"}, "scope": "Namespaced",
                "singularResource": "flunder", "verbs": ["get"], "shortNames": ["fl"], "subresources": [{"subresource": "scale",
                    "responseKind": {"group": "autoscaling", "version": "v1", "kind": "Scale"}, "verbs": ["update"]}]},
            {"resource": "fischers", "responseKind": {"group": "w.io", "version": "v1", "kind": "Fischer"}, "scope": "Cluster",
                "singularResource": "fischer", "verbs": ["list"]}]});
        assert_eq!(from_list(&list, "w.io", "v1"), wanted);
    }
}
