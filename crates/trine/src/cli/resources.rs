//! Which kind a word means (`po`, `pods`, `pod`, `Pod`, `pvc/data`), from the server's discovery.

use anyhow::Context;
use serde::Deserialize;
use serde_json::Value;
use trine_typed::kube::Client;

/// A resource that the server serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    /// `v1`, `storage.k8s.io/v1`.
    pub api_version: String,
    /// Plural, as in paths.
    pub plural: String,
    /// Kind.
    pub kind: String,
    /// Lives in a namespace.
    pub namespaced: bool,
    names: Vec<String>,
}

/// What the user named: a resource, with objects or without.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// The resource.
    pub resource: Resource,
    /// The object, or all of them.
    pub name: Option<String>,
}

impl Resource {
    /// The REST path of all objects, of those of a namespace, or of one object.
    #[must_use]
    pub fn path(&self, namespace: Option<&str>, name: Option<&str>) -> String {
        let root = if self.api_version.contains('/') { "apis" } else { "api" };
        let mut path = format!("/{root}/{}", self.api_version);
        if let Some(namespace) = namespace.filter(|_| self.namespaced) {
            path.push_str(&format!("/namespaces/{namespace}"));
        }
        path.push('/');
        path.push_str(&self.plural);
        if let Some(name) = name {
            path.push('/');
            path.push_str(name);
        }
        path
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ApiResource {
    name: String,
    #[serde(default)]
    singular_name: String,
    namespaced: bool,
    kind: String,
    #[serde(default)]
    short_names: Vec<String>,
}

#[derive(Deserialize)]
struct ApiResourceList {
    resources: Vec<ApiResource>,
}

/// All resources of the server, core first. A group that does not answer is left out, and said: another server's may be away, and
/// what is asked for need not be its.
///
/// # Errors
/// If the groups, or the core, cannot be read.
pub async fn discover(client: &Client) -> anyhow::Result<Vec<Resource>> {
    let mut versions = vec![("v1".to_owned(), "/api/v1".to_owned())];
    let groups: Value = request(client, "/apis").await?;
    for group in groups["groups"].as_array().into_iter().flatten() {
        if let Some(version) = group["preferredVersion"]["groupVersion"].as_str() {
            versions.push((version.to_owned(), format!("/apis/{version}")));
        }
    }
    let mut resources = Vec::new();
    for (api_version, path) in versions {
        let answer = match request(client, &path).await {
            Err(error) if api_version.contains('/') => {
                eprintln!("trine: {api_version} is left out: {error}");
                continue;
            }
            answer => answer?,
        };
        let list: ApiResourceList = serde_json::from_value(answer)?;
        for r in list.resources.into_iter().filter(|r| !r.name.contains('/')) {
            let mut names = r.short_names;
            let group = api_version.split_once('/').map(|(group, _)| group);
            names.extend(group.map(|g| format!("{}.{g}", r.name)));
            names.extend([r.name.clone(), r.singular_name, r.kind.to_lowercase()]);
            let (plural, kind) = (r.name, r.kind);
            resources.push(Resource {
                api_version: api_version.clone(),
                plural,
                kind,
                namespaced: r.namespaced,
                names,
            });
        }
    }
    Ok(resources)
}

/// GETs `path` as JSON.
///
/// # Errors
/// What the server says.
pub async fn request(client: &Client, path: &str) -> anyhow::Result<Value> {
    Ok(client.request(http::Request::get(path).body(Vec::new())?).await?)
}

/// The resource that `word` means.
///
/// # Errors
/// If the server has none of that name.
pub fn find(resources: &[Resource], word: &str) -> anyhow::Result<Resource> {
    let word = word.to_lowercase();
    let found = resources.iter().find(|r| r.names.contains(&word));
    found.cloned().with_context(|| format!("the server doesn't have a resource type {word:?}"))
}

/// The resource of an object's `apiVersion` and `kind`.
///
/// # Errors
/// If the server does not serve it.
pub fn find_kind(resources: &[Resource], api_version: &str, kind: &str) -> anyhow::Result<Resource> {
    let found = resources.iter().find(|r| r.kind == kind && r.api_version == api_version);
    found.cloned().with_context(|| format!("no matches for kind {kind:?} in version {api_version:?}"))
}

/// Reads `pod`, `pod/a`, `pod a b`, `pod/a svc/b`, `pod,svc`.
///
/// # Errors
/// If a kind is not served, or names and kinds are mixed in a way that means nothing.
pub fn parse(resources: &[Resource], words: &[String]) -> anyhow::Result<Vec<Named>> {
    if words.iter().any(|w| w.contains('/')) {
        let one = |word: &String| {
            let (kind, name) = word.split_once('/').with_context(|| format!("{word:?} is not kind/name"))?;
            Ok(Named { resource: find(resources, kind)?, name: Some(name.to_owned()) })
        };
        return words.iter().map(one).collect();
    }
    let (kinds, names) = words.split_first().context("name a kind")?;
    let mut named = Vec::new();
    for kind in kinds.split(',') {
        let resource = find(resources, kind)?;
        if names.is_empty() {
            named.push(Named { resource, name: None });
        } else {
            let each = names.iter().map(|n| Named { resource: resource.clone(), name: Some(n.clone()) });
            named.extend(each);
        }
    }
    Ok(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pods() -> Resource {
        let names = vec!["po".to_owned(), "pods".to_owned(), "pod".to_owned()];
        let (api_version, plural) = ("v1".to_owned(), "pods".to_owned());
        Resource { api_version, plural, kind: "Pod".to_owned(), namespaced: true, names }
    }

    #[test]
    fn words_mean_what_kubectl_takes_them_for() {
        let resources = [pods()];
        let rows: [(&[&str], usize); 4] =
            [(&["po"], 1), (&["Pod/a"], 1), (&["pods", "a", "b"], 2), (&["po,pods"], 2)];
        for (words, count) in rows {
            let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
            assert_eq!(parse(&resources, &words).unwrap().len(), count, "{words:?}");
        }
        assert!(parse(&resources, &["nothing".to_owned()]).is_err());
    }

    #[test]
    fn paths_are_those_of_the_api() {
        assert_eq!(pods().path(Some("d"), Some("a")), "/api/v1/namespaces/d/pods/a");
        let mut node = pods();
        node.namespaced = false;
        node.api_version = "storage.k8s.io/v1".to_owned();
        assert_eq!(node.path(Some("d"), None), "/apis/storage.k8s.io/v1/pods");
    }
}
