//! PUT and PATCH: a change of an object that is there, by compare-and-swap.

use serde_json::Value;
use trine_objects::json::Duplicates;
use trine_objects::{apply, patch, schema};
use trine_store::Expect;

use super::create::{fit_to_path, has_generation};
use super::options::WriteOptions;
use super::owners::{Ownership, Place, metadata_through_status};
use super::{Written, prepare_update};
use crate::admission::{self, Change};
use crate::catalog::Served;
use crate::kinds::{Cause, Invalid};
use crate::registry::{Registry, Stored, text};
use crate::request::{Target, check};
use crate::status::ApiError;

/// How often a patch is tried again after losing a race. Upstream: 5.
const RETRIES: usize = 5;
/// What the server alone says about an object.
const SERVER_FIELDS: [&str; 6] =
    ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink"];

/// How a patch is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchKind {
    /// RFC 6902.
    Json,
    /// RFC 7396.
    Merge,
    /// Kubernetes' own.
    Strategic,
    /// Server-side apply, see [`super::apply`].
    Apply,
}

impl PatchKind {
    /// By content type.
    ///
    /// # Errors
    /// [`ApiError::UnsupportedMediaType`].
    pub fn parse(content_type: &str) -> Result<Self, ApiError> {
        match content_type.split(';').next().unwrap_or_default().trim() {
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/strategic-merge-patch+json" => Ok(Self::Strategic),
            "application/apply-patch+yaml" => Ok(Self::Apply),
            other => Err(ApiError::UnsupportedMediaType(format!(
                "the body of the request was in an unknown format - accepted media types include: \
                 application/json-patch+json, application/merge-patch+json, \
                 application/apply-patch+yaml, application/strategic-merge-patch+json (got {other})"
            ))),
        }
    }
}

/// Replaces an object with one that was decoded from a request.
///
/// # Errors
/// [`ApiError`].
pub async fn replace(
    registry: &Registry,
    target: &Target,
    mut object: Value,
    options: &WriteOptions,
) -> Result<Written, ApiError> {
    let owner = Ownership::Record(&options.manager);
    let name = target.name.as_deref().unwrap_or_default();
    fit_to_path(&target.resource, &target.namespace, &mut object)?;
    if text(&object["metadata"]["name"]) != name {
        let got = text(&object["metadata"]["name"]);
        return Err(ApiError::BadRequest(format!(
            "the name of the object ({got}) does not match the name on the URL ({name})"
        )));
    }
    for attempt in 0.. {
        let current = registry.get(&target.resource, &target.namespace, name)?;
        let old = parse(current.json())?;
        let unconditional = text(&object["metadata"]["resourceVersion"]).is_empty();
        match write(registry, target, old, current.revision, object.clone(), owner, options.dry_run).await {
            Err(ApiError::Conflict { .. }) if unconditional && attempt < RETRIES => {}
            done => return done,
        }
    }
    Err(ApiError::Internal("no end of retries".to_owned()))
}

/// Patches an object.
///
/// # Errors
/// [`ApiError`].
pub async fn patch(
    registry: &Registry,
    target: &Target,
    kind: PatchKind,
    change: &(Value, Duplicates),
    options: &WriteOptions,
) -> Result<Written, ApiError> {
    let owner = Ownership::Record(&options.manager);
    let (change, duplicates) = change;
    let stored = target.stored();
    let name = target.name.as_deref().unwrap_or_default();
    let conditional = kind != PatchKind::Json && !text(&change["metadata"]["resourceVersion"]).is_empty();
    for attempt in 0.. {
        let current = registry.get(&target.resource, &target.namespace, name)?;
        let old = parse(current.json())?;
        let mut new = old.clone();
        target.resource.show(registry, &mut new).await?;
        let resource = &target.resource;
        let ty = schema::of(&resource.group, &resource.version, &resource.kind);
        patched(ty, kind, change, &mut new)?;
        let mut warnings = check(&target.resource, &mut new, duplicates.clone(), options.validation)?;
        fit_to_path(&target.resource, &target.namespace, &mut new)?;
        target.resource.store(registry, &mut new).await?;
        if new["metadata"]["name"] != old["metadata"]["name"] {
            return Err(ApiError::BadRequest("a patch may not change metadata.name".to_owned()));
        }
        match write(registry, &stored, old, current.revision, new, owner, options.dry_run).await {
            Err(ApiError::Conflict { .. }) if !conditional && attempt < RETRIES => {}
            Ok(mut written) => {
                warnings.append(&mut written.warnings);
                return Ok(Written { warnings, ..written });
            }
            Err(error) => return Err(error),
        }
    }
    Err(ApiError::Internal("no end of retries".to_owned()))
}

/// Applies a patch to an object of a type.
pub(super) fn patched(
    ty: Option<&'static schema::Type>,
    kind: PatchKind,
    change: &Value,
    object: &mut Value,
) -> Result<(), ApiError> {
    let done = match kind {
        PatchKind::Json => patch::json(object, change),
        PatchKind::Merge => patch::merge(object, change),
        PatchKind::Apply => return Err(ApiError::Internal("an apply is no patch of its object".to_owned())),
        PatchKind::Strategic => match ty {
            Some(schema) => patch::strategic(object, change, schema),
            None => {
                let what = "the body of the request was in an unknown format - accepted media types include: \
                            application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
                return Err(ApiError::UnsupportedMediaType(what.to_owned()));
            }
        },
    };
    done.map_err(|error| match error {
        patch::PatchError::Malformed(message) => ApiError::BadRequest(message),
        patch::PatchError::TooLarge(message) => ApiError::TooMuch(message),
        patch::PatchError::Inapplicable(message) => ApiError::Unprocessable(message),
    })
}

/// Writes `new` in place of `old`, which was read at `revision`.
pub(super) async fn write(
    registry: &Registry,
    target: &Target,
    mut old: Value,
    revision: u64,
    mut new: Value,
    owner: Ownership<'_>,
    dry_run: bool,
) -> Result<Written, ApiError> {
    let resource = &target.resource;
    // Stored in a former version, it is written anew even if nothing else changes.
    let stale = resource.is_other_version(&old);
    if stale {
        resource.show(registry, &mut old).await?;
    }
    let name = text(&old["metadata"]["name"]).to_owned();
    preconditions(resource, &name, &old, &new)?;
    keep_parts(target, &old, &mut new);
    resource.hooks().defaults(&mut new);
    let subresource = target.subresource.as_deref().unwrap_or_default();
    if let Ownership::Record(manager) = owner {
        Place { registry, resource, subresource }.record(&old, &mut new, manager).await?;
    }
    let change = Change { resource, subresource, old: Some(&old), dry_run };
    let mut warnings = Vec::new();
    if admission::mutate(registry, &change, &mut new, &mut warnings).await? {
        keep_parts(target, &old, &mut new);
        if new["metadata"]["name"] != old["metadata"]["name"] {
            let name = new["metadata"]["name"].clone();
            let causes = Invalid(vec![Cause::invalid("metadata.name", name, "field is immutable")]);
            return Err(super::invalid(resource, &new, causes));
        }
    }
    let mut cx = registry.cx();
    prepare_update(registry, resource, subresource, &mut new, &old, &mut cx).await?;
    forbid_new_finalizers(resource, &old, &new)?;
    let spec_changed = strip(&old) != strip(&new);
    if spec_changed && has_generation(resource) {
        let generation = old["metadata"]["generation"].as_i64().unwrap_or(1);
        new["metadata"]["generation"] = (generation + 1).into();
    }
    new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
    apply::keep_times(&old, &mut new);
    warnings.append(&mut cx.warnings);
    admission::validate(registry, &change, Some(&new), &mut warnings).await?;
    if new == old && !stale || dry_run {
        return Ok(Written { object: new, json: None, warnings });
    }
    let Stored { object, json } = if may_go(&new) {
        let object = registry.remove(resource, &new, revision).await?;
        resource.hooks().after_delete(&object, &mut cx);
        Stored { object, json: None }
    } else {
        registry.put(resource, new, Expect::At(revision)).await?
    };
    cx.commit();
    Ok(Written { object, json, warnings })
}

/// The revision and the uid that a request names must be the object's.
fn preconditions(resource: &Served, name: &str, old: &Value, new: &Value) -> Result<(), ApiError> {
    let wanted = text(&new["metadata"]["resourceVersion"]);
    if !wanted.is_empty() && wanted != "0" && wanted != text(&old["metadata"]["resourceVersion"]) {
        return Err(ApiError::modified(resource, name));
    }
    let (wanted, have) = (text(&new["metadata"]["uid"]), text(&old["metadata"]["uid"]));
    if !wanted.is_empty() && wanted != have {
        let why = format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {have}");
        return Err(ApiError::Conflict { resource: resource.qualified(), name: name.to_owned(), why });
    }
    Ok(())
}

/// Keeps what this path may not change: the server's own fields; on `status` all but the status and some metadata; elsewhere
/// the status.
fn merge_parts(target: &Target, old: &Value, new: &mut Value) {
    let keep = |new: &mut Value, field: &str, old: &Value| match old.get(field) {
        Some(value) => new[field] = value.clone(),
        None => {
            if let Some(map) = new.as_object_mut() {
                map.remove(field);
            }
        }
    };
    if matches!(target.subresource.as_deref(), Some("status" | "approval")) {
        let status = new.get("status").cloned();
        let meta = new["metadata"].clone();
        *new = old.clone();
        for field in metadata_through_status(&target.resource) {
            keep(&mut new["metadata"], field, &meta);
        }
        match status {
            Some(status) => new["status"] = status,
            None => keep(new, "status", &Value::Null),
        }
        return;
    }
    if let Some(part) = target.subresource.as_deref()
        && let Some(kept) = target.resource.hooks().only_part(part, new, old)
    {
        *new = kept;
        return;
    }
    for field in SERVER_FIELDS {
        keep(&mut new["metadata"], field, &old["metadata"]);
    }
    keep(&mut new["metadata"], "namespace", &old["metadata"]);
    if target.resource.subresource("status").is_some() {
        keep(new, "status", old);
    }
}

/// The same, but for who owns what: that is always the new object's.
fn keep_parts(target: &Target, old: &Value, new: &mut Value) {
    let entries = new["metadata"].get("managedFields").cloned();
    merge_parts(target, old, new);
    if let Some(entries) = entries {
        new["metadata"]["managedFields"] = entries;
    }
}

/// Nothing may be added to what holds an object that is being deleted.
fn forbid_new_finalizers(resource: &Served, old: &Value, new: &Value) -> Result<(), ApiError> {
    if old["metadata"]["deletionTimestamp"].is_null() {
        return Ok(());
    }
    let list = |o: &Value| o["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    let before = list(old);
    if list(new).iter().all(|f| before.contains(f)) {
        return Ok(());
    }
    let detail = "no new finalizers can be added if the object is being deleted";
    let causes = Invalid(vec![Cause::forbidden("metadata.finalizers", detail)]);
    Err(super::invalid(resource, new, causes))
}

/// The object without metadata and status: what a generation counts.
fn strip(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(map) = object.as_object_mut() {
        map.remove("metadata");
        map.remove("status");
    }
    object
}

/// True if an object that is being deleted has nothing left that holds it.
#[must_use]
pub fn may_go(object: &Value) -> bool {
    let meta = &object["metadata"];
    let none = |list: &Value| list.as_array().is_none_or(Vec::is_empty);
    !meta["deletionTimestamp"].is_null()
        && meta["deletionGracePeriodSeconds"].as_i64().unwrap_or_default() == 0
        && none(&meta["finalizers"])
        && (object["kind"] != "Namespace" || none(&object["spec"]["finalizers"]))
}

/// Stored bytes as JSON.
///
/// # Errors
/// [`ApiError::Internal`] if they are none.
pub fn parse(bytes: &[u8]) -> Result<Value, ApiError> {
    serde_json::from_slice(bytes).map_err(|e| ApiError::Internal(format!("a stored object is broken: {e}")))
}
