//! `POST serviceaccounts/NAME/token`: a token for an account, bound to what the request names.

use serde_json::{Value, json};
use trine_objects::resources::split_api_version;
use trine_objects::time;

use super::Tokens;
use super::claims::{Bound, EXTENDED_SECONDS, Reference, WARN_SECONDS};
use crate::kinds::{Cause, Invalid, Objects};
use crate::registry::text;
use crate::status::ApiError;

/// The kind that is asked with, and its group.
const KIND: (&str, &str) = ("TokenRequest", "authentication.k8s.io");
/// How long a token holds when the request does not say, seconds.
const DEFAULT_SECONDS: i64 = 3600;
/// The shortest time, seconds.
const SHORTEST: i64 = 600;
/// The longest time that may be asked for, seconds.
const LONGEST: i64 = 1 << 32;

/// Answers a TokenRequest about the account `namespace/name`.
///
/// # Errors
/// [`ApiError`].
pub fn answer(
    objects: &dyn Objects,
    tokens: &Tokens,
    (namespace, name): (&str, &str),
    mut request: Value,
    now: i64,
) -> Result<Value, ApiError> {
    if !request.is_object() {
        return Err(ApiError::BadRequest("the body is not a TokenRequest".to_owned()));
    }
    let meta = request["metadata"].clone();
    fits(&meta, "name", name)?;
    fits(&meta, "namespace", namespace)?;
    let missing = |resource: &str, name: &str| ApiError::NotFound {
        resource: resource.to_owned(),
        name: name.to_owned(),
    };
    let account = objects
        .get("", "serviceaccounts", namespace, name)
        .ok_or_else(|| missing("serviceaccounts", name))?;
    let uid = text(&account["metadata"]["uid"]);
    let asked = text(&meta["uid"]);
    if !asked.is_empty() && asked != uid {
        return Err(ApiError::Conflict {
            resource: format!("{}.{}", KIND.0, KIND.1),
            name: name.to_owned(),
            why: format!(
                "the UID in the token request ({asked}) does not match the UID of the service account ({uid})"
            ),
        });
    }
    let spec = &mut request["spec"];
    if spec["audiences"].as_array().is_none_or(Vec::is_empty) {
        spec["audiences"] = json!(tokens.audiences());
    }
    let seconds = spec["expirationSeconds"].as_i64().unwrap_or(DEFAULT_SECONDS);
    spec["expirationSeconds"] = seconds.into();
    let detail = match seconds {
        ..SHORTEST => "may not specify a duration less than 10 minutes",
        s if s > LONGEST => "may not specify a duration larger than 2^32 seconds",
        _ => "",
    };
    if !detail.is_empty() {
        return Err(invalid("", Cause::invalid("spec.expirationSeconds", seconds, detail)));
    }
    let audiences: Vec<String> =
        spec["audiences"].as_array().into_iter().flatten().map(|a| text(a).to_owned()).collect();
    let account = Reference { name: name.to_owned(), uid: uid.to_owned() };
    let mut bound = bind(objects, &spec["boundObjectRef"], namespace, account)?;
    // A Pod's client may not know that tokens end: its first one holds for longer, and its late use is noted.
    let ours = !audiences.is_empty() && audiences.iter().all(|a| tokens.audiences().contains(a));
    let mut holds = seconds;
    if bound.pod.is_some() && seconds == WARN_SECONDS && ours {
        bound.warnafter = Some(now + seconds);
        holds = EXTENDED_SECONDS;
    }
    let token = tokens.issue(bound, &audiences, now, holds).map_err(|e| ApiError::Internal(e.to_string()))?;
    request["apiVersion"] = format!("{}/v1", KIND.1).into();
    request["kind"] = KIND.0.into();
    request["metadata"] =
        json!({"name": name, "namespace": namespace, "uid": uid, "creationTimestamp": time::format(now)});
    request["status"] = json!({"token": token, "expirationTimestamp": time::format(now + seconds)});
    Ok(request)
}

fn invalid(name: &str, cause: Cause) -> ApiError {
    let (kind, group) = (KIND.0.to_owned(), KIND.1.to_owned());
    ApiError::Invalid { kind, group, name: name.to_owned(), causes: Invalid::from(cause) }
}

fn fits(meta: &Value, field: &str, wanted: &str) -> Result<(), ApiError> {
    let given = text(&meta[field]);
    if given.is_empty() || given == wanted {
        return Ok(());
    }
    let detail = format!("must match the service account {field} if specified");
    Err(invalid(wanted, Cause::invalid(format!("metadata.{field}"), given, &detail)))
}

fn bind(objects: &dyn Objects, to: &Value, namespace: &str, account: Reference) -> Result<Bound, ApiError> {
    let mut bound = Bound {
        namespace: namespace.to_owned(),
        node: None,
        pod: None,
        secret: None,
        serviceaccount: account,
        warnafter: None,
    };
    if to.is_null() {
        return Ok(bound);
    }
    let (kind, name) = (text(&to["kind"]), text(&to["name"]));
    let (group, version) = split_api_version(text(&to["apiVersion"]));
    let place = match (group, kind) {
        ("", "Pod") => ("pods", namespace),
        ("", "Secret") => ("secrets", namespace),
        ("", "Node") => ("nodes", ""),
        _ => {
            let shown = format!("{group}/{version}, Kind={kind}");
            return Err(ApiError::BadRequest(format!("cannot bind token to object of type {shown}")));
        }
    };
    let object = objects
        .get("", place.0, place.1, name)
        .ok_or_else(|| ApiError::NotFound { resource: place.0.to_owned(), name: name.to_owned() })?;
    let uid = text(&object["metadata"]["uid"]).to_owned();
    let asked = text(&to["uid"]);
    let reference = Some(Reference { name: name.to_owned(), uid: uid.clone() });
    match kind {
        "Pod" => {
            if object["spec"]["serviceAccountName"] != bound.serviceaccount.name {
                return Err(ApiError::BadRequest(format!(
                    "cannot bind token for serviceaccount {:?} to pod running with different serviceaccount name.",
                    bound.serviceaccount.name
                )));
            }
            bound.pod = reference;
            let node = text(&object["spec"]["nodeName"]);
            if !node.is_empty() {
                let uid = objects.get("", "nodes", "", node);
                let uid = uid.map(|n| text(&n["metadata"]["uid"]).to_owned()).unwrap_or_default();
                bound.node = Some(Reference { name: node.to_owned(), uid });
            }
        }
        "Secret" => bound.secret = reference,
        _ => bound.node = reference,
    }
    if !asked.is_empty() && asked != uid {
        return Err(ApiError::Conflict {
            resource: kind.to_owned(),
            name: name.to_owned(),
            why: format!(
                "the UID in the bound object reference ({asked}) does not match the UID in record. The object might \
                 have been deleted and then recreated"
            ),
        });
    }
    Ok(bound)
}
