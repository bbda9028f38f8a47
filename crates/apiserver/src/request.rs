//! What a request asks for: the path, the query, and whether its object fits.

use std::collections::BTreeMap;

use serde_json::Value;
use std::sync::Arc;
use trine_objects::json::Duplicates;
use trine_objects::schema::{self, FieldError};
use trine_objects::selector;

use crate::catalog::{Resources, Served};
use crate::custom::Version;
use crate::kinds::{Hooks, metadata};
use crate::status::ApiError;

/// What a path names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The resource.
    pub resource: Arc<Served>,
    /// Empty for all namespaces, and for resources outside of them.
    pub namespace: String,
    /// One object, or all.
    pub name: Option<String>,
    /// Below the object.
    pub subresource: Option<String>,
}

impl Target {
    /// The same, as it is stored.
    #[must_use]
    pub fn stored(&self) -> Self {
        Self { resource: self.resource.stored(), ..self.clone() }
    }
}

/// `api/v1` or `apis/GROUP/VERSION`: what the paths of a group's resources begin with, behind their slash.
#[must_use]
pub fn group_path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// Reads `/api/v1/...` or `/apis/group/version/...`; `None` for other paths and unknown resources.
#[must_use]
pub fn target(path: &str, resources: &Resources) -> Option<Target> {
    let mut parts = path.trim_matches('/').split('/');
    let (group, version) = match parts.next()? {
        "api" => ("", parts.next()?),
        "apis" => (parts.next()?, parts.next()?),
        _ => return None,
    };
    let rest: Vec<&str> = parts.collect();
    let find = |plural: &str| resources.find(group, version, plural).cloned();
    let made = |resource: Arc<Served>, namespace: &str, name: Option<&str>, sub: Option<&str>| {
        let (namespace, name) = (namespace.to_owned(), name.map(str::to_owned));
        Some(Target { resource, namespace, name, subresource: sub.map(str::to_owned) })
    };
    match rest.as_slice() {
        // `namespaces/x/status` and `/finalize` are parts of a namespace, everything else there is inside of it.
        ["namespaces", name, sub @ ("status" | "finalize")] => {
            made(find("namespaces")?, "", Some(name), Some(sub))
        }
        ["namespaces", namespace, plural, rest @ ..] => {
            let resource = find(plural).filter(|r| r.namespaced)?;
            match rest {
                [] => made(resource, namespace, None, None),
                [name] => made(resource, namespace, Some(name), None),
                [name, sub] | [name, sub @ "proxy", ..] => made(resource, namespace, Some(name), Some(sub)),
                _ => None,
            }
        }
        [plural] => made(find(plural)?, "", None, None),
        [plural, name] => made(find(plural).filter(|r| !r.namespaced)?, "", Some(name), None),
        [plural, name, sub] | [plural, name, sub @ "proxy", ..] => {
            made(find(plural).filter(|r| !r.namespaced)?, "", Some(name), Some(sub))
        }
        _ => None,
    }
}

/// The query's parameters.
#[derive(Debug, Clone, Default)]
pub struct Query(BTreeMap<String, String>);

impl Query {
    /// Reads `a=b&c=d`; of repeated ones the last counts.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|p| !p.is_empty()).map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(key), decode(value))
        });
        Self(pairs.collect())
    }

    /// A parameter that is there and not empty.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str).filter(|v| !v.is_empty())
    }

    /// True for `true` and `1`.
    #[must_use]
    pub fn flag(&self, key: &str) -> bool {
        matches!(self.get(key), Some("true" | "1"))
    }

    /// A number.
    ///
    /// # Errors
    /// [`ApiError::BadRequest`] if it is none.
    pub fn number(&self, key: &str) -> Result<Option<u64>, ApiError> {
        let parsed =
            self.get(key).map(|v| v.parse().map_err(|_| bad(format!("{key}: {v:?} is not a number"))));
        parsed.transpose()
    }

    /// True if nothing is to be written.
    ///
    /// # Errors
    /// [`ApiError::BadRequest`] for anything but `All`.
    pub fn dry_run(&self) -> Result<bool, ApiError> {
        match self.get("dryRun") {
            None => Ok(false),
            Some("All") => Ok(true),
            Some(other) => Err(bad(format!("invalid dryRun {other:?}: only \"All\" is supported"))),
        }
    }
}

fn bad(message: String) -> ApiError {
    ApiError::BadRequest(message)
}

/// A path with its `%XX` decoded, except for slashes, which stay within their segment.
#[must_use]
pub fn decoded_path(path: &str) -> String {
    let segments: Vec<String> =
        path.split('/').map(|s| decode(&s.replace('+', "%2B")).replace('/', "%2F")).collect();
    segments.join("/")
}

/// Text with its `%XX` and `+` decoded.
#[must_use]
pub fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = bytes.get(at + 1..at + 3).and_then(|h| std::str::from_utf8(h).ok());
        match (bytes[at], hex.and_then(|h| u8::from_str_radix(h, 16).ok())) {
            (b'%', Some(byte)) => {
                out.push(byte);
                at += 3;
            }
            (byte, _) => {
                out.push(if byte == b'+' { b' ' } else { byte });
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Which objects of a list or watch are wanted.
#[derive(Debug, Clone)]
pub struct Selection {
    labels: selector::label::LabelSelector,
    fields: selector::field::FieldSelector,
    /// Where fields that only a definition knows are looked at: they are not kept beside the object.
    custom: Option<Arc<Version>>,
    /// What is stored may be of another version, whose fields say nothing: objects are judged as they are shown.
    converted: bool,
}

impl Selection {
    /// Reads `labelSelector` and `fieldSelector`; a path with a name selects by it.
    ///
    /// # Errors
    /// [`ApiError::BadRequest`] for what is no selector, or a field that the resource does not select by.
    pub fn parse(query: &Query, target: &Target) -> Result<Self, ApiError> {
        let labels = selector::label::LabelSelector::parse(query.get("labelSelector").unwrap_or_default());
        let fields = selector::field::FieldSelector::parse(query.get("fieldSelector").unwrap_or_default());
        let labels = labels.map_err(|e| bad(format!("unable to parse labelSelector: {e}")))?;
        let mut fields = fields.map_err(|e| bad(format!("unable to parse fieldSelector: {e}")))?;
        let hooks = target.resource.hooks();
        for term in &mut fields.terms {
            let label = hooks.field_label(&target.resource.group, &term.field);
            term.field = label.ok_or_else(|| bad(format!("field label not supported: {}", term.field)))?;
        }
        let known = hooks.fields(&Value::Null);
        let known: Vec<&str> = known.iter().map(|(name, _)| name.as_str()).collect();
        if let Some(field) = fields.unsupported(&known) {
            return Err(bad(format!("field label not supported: {field}")));
        }
        if let Some(name) = &target.name {
            if !fields.is_empty() && fields.required("metadata.name") != Some(name) {
                return Err(bad("fieldSelector metadata.name doesn't match requested name".to_owned()));
            }
            let (field, value) = ("metadata.name".to_owned(), name.clone());
            fields.terms.push(selector::field::Term { field, value, equal: true });
        }
        let special = fields.terms.iter().any(|t| !t.field.starts_with("metadata."));
        let custom = target.resource.custom().filter(|_| special).cloned();
        let converted = custom.is_some() && target.resource.converter().is_some();
        Ok(Self { labels, fields, custom, converted })
    }

    /// True if the object is wanted.
    #[must_use]
    pub fn wants(&self, object: &trine_store::Object) -> bool {
        self.labels.matches_with(|key| object.label(key))
            && match &self.custom {
                None => self.fields.matches(&object.decoded.fields),
                Some(version) => serde_json::from_slice(object.json())
                    .is_ok_and(|object| self.fields.matches(&version.fields(&object))),
            }
    }

    /// True if objects can only be judged as they are shown, after a webhook has converted them.
    #[must_use]
    pub fn is_of_converted(&self) -> bool {
        self.converted
    }

    /// False if a stored object is not wanted for certain.
    #[must_use]
    pub fn may_want(&self, stored: &trine_store::Object) -> bool {
        if self.converted { self.labels.matches_with(|key| stored.label(key)) } else { self.wants(stored) }
    }

    /// The value that a field of a wanted object has for certain.
    #[must_use]
    pub fn required(&self, field: &str) -> Option<&str> {
        self.fields.required(field)
    }

    /// True if every object is wanted.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }
}

/// What is done about fields that the schema does not know, or that are there twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldValidation {
    /// Dropped silently.
    Ignore,
    /// Dropped, with a warning. The default.
    Warn,
    /// Refused.
    Strict,
}

impl FieldValidation {
    /// Reads `fieldValidation`.
    ///
    /// # Errors
    /// [`ApiError::BadRequest`] for other words.
    pub fn parse(query: &Query) -> Result<Self, ApiError> {
        match query.get("fieldValidation") {
            Some("Strict") => Ok(Self::Strict),
            Some("Ignore") => Ok(Self::Ignore),
            Some("Warn") | None => Ok(Self::Warn),
            Some(other) => Err(bad(format!("fieldValidation: Unsupported value: {other:?}"))),
        }
    }
}

/// Checks an object against its schema, drops what it does not know, and gives the warnings.
///
/// # Errors
/// [`ApiError::BadRequest`] for wrong types, and for unknown or duplicate fields under strict validation.
pub fn check(
    resource: &Served,
    object: &mut Value,
    duplicates: Duplicates,
    validation: FieldValidation,
) -> Result<Vec<String>, ApiError> {
    let schema = resource.schema();
    let found = schema::check(schema, object).into_iter();
    // Values of a wrong type in a custom object are for its validation, but for what every object has.
    let own = |p: &FieldError| !["metadata", "apiVersion", "kind"].iter().any(|f| p.path.starts_with(f));
    let found = found.filter(|p| !(resource.custom().is_some() && p.is_fatal() && own(p)));
    let problems = duplicates.among(found.collect());
    let (kind, version) = (&*resource.kind, resource.api_version());
    if let Some(fatal) = problems.iter().find(|p| p.is_fatal()) {
        let message = format!("{kind} in version {version:?} cannot be handled as a {kind}: {fatal}");
        return Err(bad(message));
    }
    let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
    if validation == FieldValidation::Strict && !texts.is_empty() {
        let list = texts.join(", ");
        return Err(bad(format!(
            "{kind} in version {version:?} cannot be handled as a {kind}: strict decoding error: {list}"
        )));
    }
    schema::prune(schema, object);
    object.get_mut("metadata").into_iter().for_each(metadata::settle);
    Ok(if validation == FieldValidation::Warn { texts } else { Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_what_upstreams_name() {
        let resources = crate::catalog::Catalog::new().now();
        let rows = [
            ("/api/v1/pods", ("pods", "", None, None)),
            ("/api/v1/namespaces/d/pods/a/log", ("pods", "d", Some("a"), Some("log"))),
            ("/api/v1/namespaces/d", ("namespaces", "", Some("d"), None)),
            ("/api/v1/namespaces/d/finalize", ("namespaces", "", Some("d"), Some("finalize"))),
            ("/apis/storage.k8s.io/v1/storageclasses/x", ("storageclasses", "", Some("x"), None)),
            ("/api/v1/nodes/n/status", ("nodes", "", Some("n"), Some("status"))),
            ("/api/v1/nodes/n:10250/proxy/pods/x", ("nodes", "", Some("n:10250"), Some("proxy"))),
            ("/api/v1/namespaces/d/pods/a/proxy/", ("pods", "d", Some("a"), Some("proxy"))),
        ];
        for (path, (plural, namespace, name, sub)) in rows {
            let t = target(path, &resources).unwrap_or_else(|| panic!("{path}"));
            let got =
                (&*t.resource.plural, t.namespace.as_str(), t.name.as_deref(), t.subresource.as_deref());
            assert_eq!(got, (plural, namespace, name, sub), "{path}");
        }
        for path in ["/api/v1/nothing", "/api/v1/namespaces/d/nodes", "/healthz", "/api/v1/pods/a"] {
            assert_eq!(target(path, &resources), None, "{path}");
        }
    }

    #[test]
    fn queries_are_decoded() {
        let query = Query::parse("labelSelector=a%3Db%2Cc&watch=1&x=a+b");
        assert_eq!(query.get("labelSelector"), Some("a=b,c"));
        assert!(query.flag("watch"));
        assert_eq!(query.get("x"), Some("a b"));
    }
}
