//! Who may have which devices. A namespace gives the access of administrators by a label; who gives devices away and who says of
//! them how they are need rights of their own. Upstream: `AuthorizedForAdmin`, `AuthorizedForBinding`, `AuthorizedForDeviceStatus`.

use serde_json::Value;

use super::Change;
use crate::access::Authorizer;
use crate::access::attributes::Attributes;
use crate::asked::asked;
use crate::kinds::{Cause, Invalid, changed_drivers};
use crate::registry::{Registry, text};
use crate::status::ApiError;
use crate::user::{self, User, account_of};

/// The group of claims.
const GROUP: &str = "resource.k8s.io";
/// The label of namespaces, with the value `true`.
const ADMIN: &str = "resource.kubernetes.io/admin-access";
/// What a token of a ServiceAccount says of the node that it is for.
const NODE: &str = "authentication.kubernetes.io/node-name";

/// Refuses what a namespace may not have, and what the caller may not give or say.
///
/// # Errors
/// [`ApiError::Invalid`] with the fields, as upstream has it.
pub fn validate(registry: &Registry, change: &Change<'_>, new: &Value) -> Result<(), ApiError> {
    if change.resource.group != GROUP {
        return Ok(());
    }
    let admin = |field: Option<String>| field.and_then(|field| refuse_admin(registry, new, field));
    let causes: Vec<Cause> = match (&*change.resource.plural, change.subresource, change.old) {
        ("resourceclaims", "", None) => admin(asked_admin(&new["spec"])).into_iter().collect(),
        ("resourceclaimtemplates", "", None) => {
            admin(asked_admin(&new["spec"]["spec"])).into_iter().collect()
        }
        ("resourceclaims", "status", Some(old)) => {
            let (after, before) = (&new["status"], &old["status"]);
            let given = if given_admin(before).is_none() { given_admin(after) } else { None };
            let mut causes: Vec<Cause> = admin(given).into_iter().collect();
            if let Some(user) = user::caller() {
                let who = Who { authorizer: registry.authorizer(), user: &user, verb: verb() };
                causes.extend(who.may_bind(after, before));
                causes.extend(who.may_say(text(&new["metadata"]["namespace"]), after, before));
            }
            causes
        }
        _ => Vec::new(),
    };
    if causes.is_empty() {
        return Ok(());
    }
    Err(ApiError::Invalid {
        kind: change.resource.kind.to_string(),
        group: GROUP.to_owned(),
        name: text(&new["metadata"]["name"]).to_owned(),
        causes: Invalid(causes),
    })
}

/// Where a claim asks for the access of an administrator.
fn asked_admin(spec: &Value) -> Option<String> {
    let requests = spec["devices"]["requests"].as_array()?;
    let i = requests.iter().position(|request| request["exactly"]["adminAccess"] == true)?;
    Some(format!("spec.devices.requests[{i}].adminAccess"))
}

/// Where a claim has it.
fn given_admin(status: &Value) -> Option<String> {
    let results = status["allocation"]["devices"]["results"].as_array()?;
    let i = results.iter().position(|result| result["adminAccess"] == true)?;
    Some(format!("status.allocation.devices.results[{i}].adminAccess"))
}

fn refuse_admin(registry: &Registry, object: &Value, field: String) -> Option<Cause> {
    let namespace = registry.resource("", "v1", "namespaces").and_then(|namespaces| {
        let found = registry.get(&namespaces, "", text(&object["metadata"]["namespace"]))?;
        serde_json::from_slice::<Value>(found.json()).map_err(|e| ApiError::Internal(e.to_string()))
    });
    if namespace.is_ok_and(|namespace| namespace["metadata"]["labels"][ADMIN] == "true") {
        return None;
    }
    let why =
        format!("admin access to devices requires the `{ADMIN}: true` label on the containing namespace");
    Some(Cause::forbidden(field, &why))
}

/// By which verb the request came.
fn verb() -> &'static str {
    if asked().is_some_and(|asked| asked.is_patch()) { "patch" } else { "update" }
}

/// Who writes a claim's status, and how.
struct Who<'a> {
    authorizer: &'a Authorizer,
    user: &'a User,
    verb: &'static str,
}

impl Who<'_> {
    /// Nothing if it is allowed; else why not.
    fn refused(&self, wanted: &Attributes, field: &str, what: &str) -> Option<Cause> {
        let decision = self.authorizer.decide(self.user, wanted);
        if decision.allowed() {
            return None;
        }
        let why = wanted.denied(self.user, decision.reason());
        Some(Cause::forbidden(field, &format!("{what} permission: {why}")))
    }

    /// Devices are given and taken by who may do so everywhere: the scheduler, and the controller of claims.
    fn may_bind(&self, after: &Value, before: &Value) -> Option<Cause> {
        if ["allocation", "reservedFor"].iter().all(|field| after[*field] == before[*field]) {
            return None;
        }
        let wanted = Attributes::of(self.verb, GROUP, "resourceclaims/binding", "", "");
        let what = format!(
            "changing status.allocation or status.reservedFor requires resource=\"resourceclaims/binding\", verb={:?}",
            self.verb
        );
        self.refused(&wanted, "status.allocation", &what)
    }

    /// Of a driver's devices speaks who may do so for the driver: on the node that has them, or from anywhere.
    fn may_say(&self, namespace: &str, after: &Value, before: &Value) -> Vec<Cause> {
        if !after["allocation"].is_object() {
            // Nothing is said of devices that are given back.
            return Vec::new();
        }
        let here = node_of(&after["allocation"]).is_some_and(|node| is_on(self.user, node));
        let places: &[&str] = if here { &["associated-node", "arbitrary-node"] } else { &["arbitrary-node"] };
        let verbs: Vec<String> = places.iter().map(|place| format!("{place}:{}", self.verb)).collect();
        let what = format!(
            "changing status.devices requires resource=\"resourceclaims/driver\", verb=\"[{}]\"",
            verbs.join(" ")
        );
        let refused = |driver: String| {
            let wanted =
                |verb: &String| Attributes::of(verb, GROUP, "resourceclaims/driver", namespace, &driver);
            let mut refused = verbs.iter().map(|verb| self.refused(&wanted(verb), "status.devices", &what));
            let first = refused.next()??;
            refused.all(|other| other.is_some()).then_some(first)
        };
        changed_drivers(after, before).into_iter().filter_map(refused).collect()
    }
}

/// The node whose devices were given, if they are one's.
fn node_of(allocation: &Value) -> Option<&str> {
    let [term] = allocation["nodeSelector"]["nodeSelectorTerms"].as_array()?.as_slice() else { return None };
    let expressions = term["matchExpressions"].as_array().is_some_and(|all| !all.is_empty());
    let ([field], false) = (term["matchFields"].as_array()?.as_slice(), expressions) else { return None };
    let [name] = field["values"].as_array()?.as_slice() else { return None };
    (field["key"] == "metadata.name" && field["operator"] == "In").then(|| name.as_str())?
}

/// Whether a user is a ServiceAccount by a token for that node.
fn is_on(user: &User, node: &str) -> bool {
    let nodes = user.extra.get(NODE).map(Vec::as_slice);
    account_of(&user.name).is_some() && matches!(nodes, Some([only]) if only == node)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_node_of_an_allocation_is_the_only_one_that_it_names() {
        let field = |values: Value| json!({"key": "metadata.name", "operator": "In", "values": values});
        let of = |term: Value| {
            let allocation = json!({"nodeSelector": {"nodeSelectorTerms": [term]}});
            node_of(&allocation).map(str::to_owned)
        };
        assert_eq!(of(json!({"matchFields": [field(json!(["n"]))]})), Some("n".to_owned()));
        assert_eq!(of(json!({"matchFields": [field(json!(["n", "m"]))]})), None);
        assert_eq!(
            of(json!({"matchExpressions": [{"key": "a"}], "matchFields": [field(json!(["n"]))]})),
            None
        );
        assert_eq!(of(json!({"matchExpressions": [{"key": "a"}]})), None);
        assert_eq!(node_of(&json!({})), None);
    }

    #[test]
    fn an_account_is_on_the_node_that_its_token_names() {
        let mut user = User::account("d", "driver", "uid");
        assert!(!is_on(&user, "n"));
        user.extra.insert(NODE.to_owned(), vec!["n".to_owned()]);
        assert!(is_on(&user, "n") && !is_on(&user, "m"));
        user.name = "somebody".to_owned();
        assert!(!is_on(&user, "n"));
    }

    #[test]
    fn where_the_access_of_administrators_is_asked_for_is_named() {
        let spec = json!({"devices": {"requests": [{"name": "a", "exactly": {}},
            {"name": "b", "exactly": {"adminAccess": true}}]}});
        assert_eq!(asked_admin(&spec).as_deref(), Some("spec.devices.requests[1].adminAccess"));
        let status = json!({"allocation": {"devices": {"results": [{"adminAccess": true}]}}});
        let field = "status.allocation.devices.results[0].adminAccess";
        assert_eq!(given_admin(&status).as_deref(), Some(field));
        assert_eq!(given_admin(&json!({})), None);
    }
}
