//! A policy reads its parameters in the server's name: who writes a policy or a binding must be able to read them himself.

use serde_json::Value;
use trine_objects::resources::split_api_version;

use crate::access::attributes::Attributes;
use crate::kinds::{Cause, Invalid, Objects};
use crate::registry::{Registry, text};
use crate::status::ApiError;
use crate::user::{MASTERS, User};

/// The group of policies and bindings.
pub const GROUP: &str = "admissionregistration.k8s.io";

/// Refuses a policy or binding whose parameters the user may not read.
///
/// # Errors
/// [`ApiError::Invalid`] with the field.
pub fn refuse(
    registry: &Registry,
    user: &User,
    kind: &str,
    new: &Value,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    if user.is_in(MASTERS) {
        return Ok(());
    }
    let refused = match kind {
        "ValidatingAdmissionPolicy" | "MutatingAdmissionPolicy" => policy(registry, user, new, old),
        "ValidatingAdmissionPolicyBinding" | "MutatingAdmissionPolicyBinding" => {
            binding(registry, user, kind, new, old)
        }
        _ => None,
    };
    let Some((field, why)) = refused else { return Ok(()) };
    Err(ApiError::Invalid {
        kind: kind.to_owned(),
        group: GROUP.to_owned(),
        name: text(&new["metadata"]["name"]).to_owned(),
        causes: Invalid(vec![Cause::forbidden(field, &why)]),
    })
}

/// Group and plural of the parameters' kind, both `*` where it is not known: then all must be open.
fn resource(registry: &Registry, kind: &Value) -> (String, String) {
    let (group, version) = split_api_version(text(&kind["apiVersion"]));
    let known = registry.catalog().now().by_kind(group, version, text(&kind["kind"])).cloned();
    (group.to_owned(), known.map_or("*".to_owned(), |r| r.plural.to_string()))
}

fn policy(
    registry: &Registry,
    user: &User,
    new: &Value,
    old: Option<&Value>,
) -> Option<(&'static str, String)> {
    let kind = &new["spec"]["paramKind"];
    if !kind.is_object() || old.is_some_and(|old| old["spec"]["paramKind"] == *kind) {
        return None;
    }
    let (group, plural) = resource(registry, kind);
    let wanted = Attributes::of("get", &group, &plural, "*", "*");
    if registry.authorizer().decide(user, &wanted).allowed() {
        return None;
    }
    let why = format!(
        "user {} must have \"get\" permission on all objects of the referenced paramKind (kind={}, apiVersion={})",
        user.name,
        text(&kind["kind"]),
        text(&kind["apiVersion"])
    );
    Some(("spec.paramKind", why))
}

fn binding(
    registry: &Registry,
    user: &User,
    kind: &str,
    new: &Value,
    old: Option<&Value>,
) -> Option<(&'static str, String)> {
    let spec = &new["spec"];
    let params = &spec["paramRef"];
    let same = |key: &str| old.is_some_and(|old| old["spec"][key] == spec[key]);
    if !params.is_object() || same("paramRef") && same("policyName") {
        return None;
    }
    let policies =
        if kind.starts_with('V') { "validatingadmissionpolicies" } else { "mutatingadmissionpolicies" };
    let name = text(&spec["policyName"]);
    let policy = Objects::get(registry, GROUP, policies, "", name);
    let kind = policy.as_ref().map(|p| &p["spec"]["paramKind"]).filter(|k| k.is_object());
    let (group, plural) = kind.map_or(("*".to_owned(), "*".to_owned()), |kind| resource(registry, kind));
    let verb = if text(&params["name"]).is_empty() { "list" } else { "get" };
    let wanted = Attributes::of(verb, &group, &plural, text(&params["namespace"]), text(&params["name"]));
    if registry.authorizer().decide(user, &wanted).allowed() {
        return None;
    }
    let why = if policy.is_none() {
        format!(
            "unable to get policy {name} to determine minimum required permissions and user {} does not have {verb:?} \
             permission for all groups, versions and resources",
            user.name
        )
    } else {
        format!("user {} does not have {verb:?} permission on the object referenced by paramRef", user.name)
    };
    Some(("spec.paramRef", why))
}
