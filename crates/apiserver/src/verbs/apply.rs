//! PATCH with `application/apply-patch+yaml`: an object that is merged into what is there, or made if there is none.

use serde_json::{Value, json};
use trine_objects::json::Duplicates;

use super::create::{create_owned, fit_to_path};
use super::options::WriteOptions;
use super::owners::{Ownership, Place};
use super::update::{parse, write};
use super::{Written, invalid};
use crate::access::attributes::Attributes;
use crate::access::decision::Decision;
use crate::kinds::{Cause, Invalid};
use crate::registry::{Registry, text};
use crate::request::{FieldValidation, Target, check};
use crate::status::ApiError;
use crate::user;

/// How often an apply is tried again after losing a race. Upstream: 5.
const RETRIES: usize = 5;

/// Applies a configuration, beside which is what a strict reader has against it; says whether the object is new.
///
/// # Errors
/// [`ApiError::ApplyConflict`] if others own what it changes, and it is not forced.
pub async fn apply(
    registry: &Registry,
    target: &Target,
    config: (Value, Option<String>),
    options: &WriteOptions,
) -> Result<(bool, Written), ApiError> {
    let (mut config, complaint) = config;
    let warnings = judge(complaint, options.validation)?;
    fits(target, &mut config)?;
    let name = target.name.as_deref().unwrap_or_default();
    let unconditional = text(&config["metadata"]["resourceVersion"]).is_empty();
    for attempt in 0.. {
        let (created, done) = match registry.get(&target.resource, &target.namespace, name) {
            Ok(current) => {
                let old = parse(current.json())?;
                (false, over(registry, target, &config, old, current.revision, options).await)
            }
            Err(ApiError::NotFound { .. }) if target.subresource.is_none() => {
                (true, anew(registry, target, &config, options).await)
            }
            Err(error) => return Err(error),
        };
        match done {
            Err(ApiError::Conflict { .. } | ApiError::AlreadyExists { .. })
                if unconditional && attempt < RETRIES => {}
            Ok(mut written) => {
                written.warnings.splice(0..0, warnings);
                return Ok((created, written));
            }
            Err(error) => return Err(error),
        }
    }
    Err(ApiError::Internal("no end of retries".to_owned()))
}

/// The warnings about a configuration that a strict reader has something against.
fn judge(complaint: Option<String>, validation: FieldValidation) -> Result<Vec<String>, ApiError> {
    match (complaint, validation) {
        (Some(text), FieldValidation::Strict) => {
            Err(ApiError::BadRequest(format!("error strict decoding YAML: {text}")))
        }
        (Some(text), FieldValidation::Warn) => Ok(vec![text]),
        _ => Ok(Vec::new()),
    }
}

/// The configuration must be an object, of the name and namespace of the path if it says any.
fn fits(target: &Target, config: &mut Value) -> Result<(), ApiError> {
    let bad = |message: String| Err(ApiError::BadRequest(message));
    if !config.is_object() {
        return bad("error decoding YAML: the body is not an object".to_owned());
    }
    if config["metadata"].is_null() {
        config["metadata"] = json!({});
    }
    if !config["metadata"].is_object() {
        return bad("error decoding YAML: metadata is not an object".to_owned());
    }
    let name = target.name.as_deref().unwrap_or_default();
    let (got, namespace) = (text(&config["metadata"]["name"]), text(&config["metadata"]["namespace"]));
    if !got.is_empty() && got != name {
        return bad(format!("the name of the object ({got}) does not match the name on the URL ({name})"));
    }
    if target.resource.namespaced && !namespace.is_empty() && namespace != target.namespace {
        return bad(format!(
            "the namespace of the provided object does not match the namespace sent on the request ({namespace} and {})",
            target.namespace
        ));
    }
    Ok(())
}

impl<'a> Place<'a> {
    pub(super) fn of(registry: &'a Registry, target: &'a Target) -> Self {
        let subresource = target.subresource.as_deref().unwrap_or_default();
        Self { registry, resource: &target.resource, subresource }
    }
}

/// Applies to an object that is there.
async fn over(
    registry: &Registry,
    target: &Target,
    config: &Value,
    old: Value,
    revision: u64,
    options: &WriteOptions,
) -> Result<Written, ApiError> {
    let stored = target.stored();
    let mut live = old.clone();
    target.resource.show(registry, &mut live).await?;
    let mut new = Place::of(registry, target).apply(&live, config, &options.manager, options.force).await?;
    check(&target.resource, &mut new, Duplicates::default(), FieldValidation::Ignore)?;
    fit_to_path(&target.resource, &target.namespace, &mut new)?;
    target.resource.store(registry, &mut new).await?;
    write(registry, &stored, old, revision, new, Ownership::Settled, options.dry_run).await
}

/// Who makes an object by applying it needs the right to create it, beside the right to patch.
fn may_create(registry: &Registry, target: &Target) -> Result<(), ApiError> {
    let Some(user) = user::caller() else { return Ok(()) };
    let (resource, name) = (&target.resource, target.name.as_deref().unwrap_or_default());
    let wanted = Attributes::of("create", &resource.group, &resource.plural, &target.namespace, name);
    match registry.authorizer().decide(&user, &wanted) {
        Decision::Allow(_) => Ok(()),
        Decision::NoOpinion(why) => Err(wanted.denied(&user, &why)),
    }
}

/// Applies where there is nothing.
async fn anew(
    registry: &Registry,
    target: &Target,
    config: &Value,
    options: &WriteOptions,
) -> Result<Written, ApiError> {
    let resource = &target.resource;
    let name = target.name.as_deref().unwrap_or_default();
    if !resource.serves("create") {
        return Err(ApiError::not_found(resource, name));
    }
    may_create(registry, target)?;
    let uid = text(&config["metadata"]["uid"]);
    if !uid.is_empty() {
        let why = format!(
            "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        );
        return Err(ApiError::Conflict { resource: resource.qualified(), name: name.to_owned(), why });
    }
    let live = json!({"apiVersion": resource.api_version(), "kind": &*resource.kind, "metadata": {}});
    let mut new = Place::of(registry, target).apply(&live, config, &options.manager, options.force).await?;
    if text(&new["metadata"]["name"]).is_empty() {
        let causes = Invalid(vec![Cause::required("metadata.name", "name or generateName is required")]);
        return Err(invalid(resource, &new, causes));
    }
    check(resource, &mut new, Duplicates::default(), FieldValidation::Ignore)?;
    resource.store(registry, &mut new).await?;
    create_owned(registry, &resource.stored(), &target.namespace, new, Ownership::Settled, options.dry_run)
        .await
}
