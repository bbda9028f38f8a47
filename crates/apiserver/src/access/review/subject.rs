//! May this user do that?

use serde_json::{Value, json};

use crate::access::Authorizer;
use crate::access::attributes::{Attributes, Resource, Subject};
use crate::kinds::{Cause, Invalid};
use crate::registry::text;
use crate::status::ApiError;
use crate::user::User;

/// The status of a SubjectAccessReview.
///
/// # Errors
/// [`ApiError::Invalid`] if it does not say who or what.
pub fn of(authorizer: &Authorizer, review: &Value) -> Result<Value, ApiError> {
    let spec = &review["spec"];
    let list = |v: &Value| -> Vec<String> {
        v.as_array().into_iter().flatten().map(|v| text(v).to_owned()).collect()
    };
    let user = User {
        name: text(&spec["user"]).to_owned(),
        uid: text(&spec["uid"]).to_owned(),
        groups: list(&spec["groups"]),
        extra: spec["extra"].as_object().into_iter().flatten().map(|(k, v)| (k.clone(), list(v))).collect(),
    };
    if user.name.is_empty() && user.groups.is_empty() {
        let detail = "at least one of user or group must be specified";
        return Err(invalid(review, Cause::invalid("spec.user", "", detail)));
    }
    Ok(decided(authorizer, &user, &wanted(review)?))
}

/// The status of a LocalSubjectAccessReview in `namespace`.
///
/// # Errors
/// As [`of`], and if it asks about something outside of the namespace.
pub fn local(authorizer: &Authorizer, namespace: &str, review: &Value) -> Result<Value, ApiError> {
    let spec = &review["spec"];
    if !spec["nonResourceAttributes"].is_null() {
        let detail = "disallowed on this kind of request";
        let cause =
            Cause::invalid("spec.nonResourceAttributes", spec["nonResourceAttributes"].clone(), detail);
        return Err(invalid(review, cause));
    }
    let asked = text(&spec["resourceAttributes"]["namespace"]);
    if asked != namespace {
        let detail = "must match metadata.namespace";
        return Err(invalid(review, Cause::invalid("spec.resourceAttributes.namespace", asked, detail)));
    }
    of(authorizer, review)
}

/// The status of a SelfSubjectAccessReview of `user`.
///
/// # Errors
/// [`ApiError::Invalid`] if it does not say what.
pub fn own(authorizer: &Authorizer, user: &User, review: &Value) -> Result<Value, ApiError> {
    Ok(decided(authorizer, user, &wanted(review)?))
}

fn decided(authorizer: &Authorizer, user: &User, wanted: &Attributes) -> Value {
    let decision = authorizer.decide(user, wanted);
    let mut status = json!({"allowed": decision.allowed()});
    if !decision.reason().is_empty() {
        status["reason"] = decision.reason().into();
    }
    status
}

fn invalid(review: &Value, cause: Cause) -> ApiError {
    ApiError::Invalid {
        kind: text(&review["kind"]).to_owned(),
        group: "authorization.k8s.io".to_owned(),
        name: String::new(),
        causes: Invalid::from(cause),
    }
}

/// What a review asks about.
fn wanted(review: &Value) -> Result<Attributes, ApiError> {
    let (objects, path) = (&review["spec"]["resourceAttributes"], &review["spec"]["nonResourceAttributes"]);
    let text = |v: &Value| text(v).to_owned();
    match (objects.is_null(), path.is_null()) {
        (false, false) => {
            let detail = "cannot be specified in combination with resourceAttributes";
            Err(invalid(review, Cause::invalid("spec.nonResourceAttributes", path.clone(), detail)))
        }
        (true, true) => {
            let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            Err(invalid(review, Cause::invalid("spec.resourceAttributes", Value::Null, detail)))
        }
        (true, false) => {
            Ok(Attributes { verb: text(&path["verb"]), subject: Subject::Path(text(&path["path"])) })
        }
        (false, true) => Ok(Attributes {
            verb: text(&objects["verb"]),
            subject: Subject::Resource(Resource {
                group: text(&objects["group"]),
                version: text(&objects["version"]),
                resource: text(&objects["resource"]),
                subresource: text(&objects["subresource"]),
                namespace: text(&objects["namespace"]),
                name: text(&objects["name"]),
                fields: fields(&objects["fieldSelector"]),
                labels: text(&objects["labelSelector"]["rawSelector"]),
            }),
        }),
    }
}

/// A field selector as text: of the terms those that want one value, which is all that decisions look at.
fn fields(selector: &Value) -> String {
    let raw = text(&selector["rawSelector"]);
    if !raw.is_empty() {
        return raw.to_owned();
    }
    let terms = selector["requirements"].as_array().into_iter().flatten();
    let terms =
        terms.filter(|t| t["operator"] == "In").filter_map(|t| match t["values"].as_array()?.as_slice() {
            [one] => Some(format!("{}={}", text(&t["key"]), text(one))),
            _ => None,
        });
    terms.collect::<Vec<_>>().join(",")
}
