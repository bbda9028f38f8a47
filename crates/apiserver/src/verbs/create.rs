//! POST: an object that was not there.

use serde_json::{Value, json};
use tracing::Instrument;
use tracing::field::Empty;
use trine_objects::time;
use trine_store::Expect;

use super::options::WriteOptions;
use super::owners::{Ownership, Place};
use super::{Written, invalid, judge};
use crate::admission::{self, Change};
use crate::catalog::Served;
use crate::kinds::Invalid;
use crate::registry::{Registry, Stored, now_unix, text};
use crate::status::ApiError;

/// How often another name is tried for `generateName`.
const NAME_TRIES: usize = 8;
/// How often another address is tried for a Service, when other servers give them away too.
const CLAIM_TRIES: usize = 16;
/// Characters of generated names: no vowels, nothing that looks like another. Source: apimachinery `rand.String`.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// Longest part of a generated name that is the user's.
const MAX_GENERATED_PREFIX: usize = 58;

/// Creates an object that was decoded from a request. A Pod's creation is a step of its way.
///
/// # Errors
/// [`ApiError`].
pub async fn create(
    registry: &Registry,
    resource: &Served,
    namespace: &str,
    object: Value,
    options: &WriteOptions,
) -> Result<Written, ApiError> {
    create_owned(registry, resource, namespace, object, Ownership::Record(&options.manager), options.dry_run)
        .await
}

/// The same with a say about who owns it.
pub(super) async fn create_owned(
    registry: &Registry,
    resource: &Served,
    namespace: &str,
    object: Value,
    owner: Ownership<'_>,
    dry_run: bool,
) -> Result<Written, ApiError> {
    if resource.plural != "pods" || dry_run {
        return create_any(registry, resource, namespace, object, owner, dry_run).await;
    }
    let name = text(&object["metadata"]["name"]);
    let span = tracing::info_span!(target: "trine::step", "create", plane = "api", pod = %format!("{namespace}/{name}"),
        pod_uid = Empty, error = Empty);
    let made = create_any(registry, resource, namespace, object, owner, false).instrument(span.clone()).await;
    match &made {
        Ok(made) => {
            let meta = &made.object["metadata"];
            span.record("pod", format!("{namespace}/{}", text(&meta["name"])));
            span.record("pod_uid", text(&meta["uid"]));
        }
        Err(error) => drop(span.record("error", error.to_string())),
    }
    made
}

async fn create_any(
    registry: &Registry,
    resource: &Served,
    namespace: &str,
    mut object: Value,
    owner: Ownership<'_>,
    dry_run: bool,
) -> Result<Written, ApiError> {
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    fit_to_path(resource, namespace, &mut object)?;
    // The namespace may be another server's work of a moment ago.
    registry.consistent().await?;
    if resource.namespaced {
        namespace_accepts(registry, namespace, resource, text(&object["metadata"]["name"]))?;
    }
    without_status(resource, &mut object);
    let generate = text(&object["metadata"]["generateName"]).to_owned();
    let named = !text(&object["metadata"]["name"]).is_empty();
    // Only what may be tried again is kept.
    let claims = registry.claims_for(resource);
    let tries = if claims { CLAIM_TRIES } else { NAME_TRIES };
    for attempt in 1.. {
        let again = attempt < tries && (!named || claims);
        let mut candidate = if again { object.clone() } else { std::mem::take(&mut object) };
        if !named && !generate.is_empty() {
            candidate["metadata"]["name"] = generated_name(&generate).into();
        }
        match attempt_create(registry, resource, candidate, owner, dry_run).await {
            Err(ApiError::AlreadyExists { .. }) if again && !named && attempt < NAME_TRIES => {}
            Err(ApiError::Claimed(_)) if again => {}
            done => return done,
        }
    }
    Err(ApiError::Internal("no free name".to_owned()))
}

async fn attempt_create(
    registry: &Registry,
    resource: &Served,
    mut object: Value,
    owner: Ownership<'_>,
    dry_run: bool,
) -> Result<Written, ApiError> {
    if resource.custom().is_some_and(|version| version.terminating) {
        let why = "create not allowed while custom resource definition is terminating".to_owned();
        let name = text(&object["metadata"]["name"]).to_owned();
        return Err(ApiError::Denied { resource: resource.qualified(), name, why });
    }
    let hooks = resource.hooks();
    let mut cx = registry.cx();
    stamp(resource, &mut object);
    hooks.defaults(&mut object);
    if let Ownership::Record(manager) = owner {
        Place { registry, resource, subresource: "" }.record(&Value::Null, &mut object, manager).await?;
    }
    let change = Change { resource, subresource: "", old: None, dry_run };
    let mut warnings = Vec::new();
    let own = ["uid", "creationTimestamp"].map(|field| (field, object["metadata"][field].clone()));
    if admission::mutate(registry, &change, &mut object, &mut warnings).await? {
        stamp(resource, &mut object);
        own.into_iter().for_each(|(field, value)| object["metadata"][field] = value);
        without_status(resource, &mut object);
    }
    hooks.prepare_create(&mut object, &mut cx).map_err(|causes| invalid(resource, &object, causes))?;
    let causes = judge(registry, resource, "", &object, None).await?;
    if !causes.is_empty() {
        return Err(invalid(resource, &object, Invalid(causes)));
    }
    warnings.append(&mut cx.warnings);
    admission::validate(registry, &change, Some(&object), &mut warnings).await?;
    if dry_run {
        let (namespace, name) = (text(&object["metadata"]["namespace"]), text(&object["metadata"]["name"]));
        return match registry.get(resource, namespace, name) {
            Ok(_) => Err(ApiError::AlreadyExists { resource: resource.qualified(), name: name.to_owned() }),
            Err(_) => Ok(Written { object, json: None, warnings }),
        };
    }
    let Stored { object, json } = registry.put(resource, object, Expect::Absent).await?;
    cx.commit();
    Ok(Written { object, json, warnings })
}

/// The object must be of the kind and namespace that the path names; what it leaves open is filled in.
///
/// # Errors
/// [`ApiError::BadRequest`].
pub fn fit_to_path(resource: &Served, namespace: &str, object: &mut Value) -> Result<(), ApiError> {
    let bad = |message: String| Err(ApiError::BadRequest(message));
    if !object.is_object() {
        return bad("the body is not an object".to_owned());
    }
    let (api_version, kind) = (resource.api_version(), &*resource.kind);
    let (got_version, got_kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    if !got_version.is_empty() && got_version != api_version || !got_kind.is_empty() && got_kind != kind {
        return bad(format!(
            "the object provided is unrecognized (must be of type {kind}): got {got_version}/{got_kind}"
        ));
    }
    object["apiVersion"] = api_version.into();
    object["kind"] = kind.into();
    if resource.namespaced {
        let got = text(&object["metadata"]["namespace"]);
        if !got.is_empty() && got != namespace {
            return bad(format!(
                "the namespace of the provided object does not match the namespace sent on the request ({got} and \
                 {namespace})"
            ));
        }
        object["metadata"]["namespace"] = namespace.into();
    } else if let Some(meta) = object["metadata"].as_object_mut() {
        meta.remove("namespace");
    }
    Ok(())
}

/// A new object has no status where that has a path of its own; a node tells its own at once.
fn without_status(resource: &Served, object: &mut Value) {
    if resource.subresource("status").is_some()
        && resource.plural != "nodes"
        && let Some(fields) = object.as_object_mut()
    {
        fields.remove("status");
    }
}

/// What only the server says about a new object.
fn stamp(resource: &Served, object: &mut Value) {
    let meta = &mut object["metadata"];
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "resourceVersion"] {
        if let Some(meta) = meta.as_object_mut() {
            meta.remove(field);
        }
    }
    meta["uid"] = uuid::Uuid::new_v4().to_string().into();
    meta["creationTimestamp"] = time::format(now_unix()).into();
    if has_generation(resource) {
        meta["generation"] = 1.into();
    }
}

/// Whether changes of its objects are counted.
pub(super) fn has_generation(resource: &Served) -> bool {
    resource.subresource("status").is_some()
        || resource.custom().is_some()
        || resource.group == "admissionregistration.k8s.io"
}

fn namespace_accepts(
    registry: &Registry,
    namespace: &str,
    resource: &Served,
    name: &str,
) -> Result<(), ApiError> {
    let namespaces = registry.resource("", "v1", "namespaces")?;
    let found = registry.get(&namespaces, "", namespace)?;
    let going = serde_json::from_slice::<Value>(found.json())
        .is_ok_and(|n| !n["metadata"]["deletionTimestamp"].is_null());
    if going {
        let (name, namespace) = (name.to_owned(), namespace.to_owned());
        return Err(ApiError::Terminating { resource: resource.qualified(), name, namespace });
    }
    Ok(())
}

/// A name that begins with `prefix` and ends as nobody else's.
#[must_use]
pub fn generated_name(prefix: &str) -> String {
    let bytes = *uuid::Uuid::new_v4().as_bytes();
    let end = bytes[..5].iter().map(|b| char::from(ALPHABET[usize::from(*b) % ALPHABET.len()]));
    prefix.chars().take(MAX_GENERATED_PREFIX).chain(end).collect()
}
