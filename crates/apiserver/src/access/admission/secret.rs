//! A Secret that is to hold the token of a ServiceAccount is filled at once. Upstream's controller does it a moment later.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::access::token::claims::Reference;
use crate::kinds::Objects;
use crate::registry::{Registry, text};

/// The type of such Secrets.
const TYPE: &str = "kubernetes.io/service-account-token";
/// The account's name and uid.
const NAME: &str = "kubernetes.io/service-account.name";
const UID: &str = "kubernetes.io/service-account.uid";

/// Fills the Secret if it is one and its account is there; leaves it alone otherwise.
pub fn fill(registry: &Registry, secret: &mut Value) {
    let Some(issuing) = registry.issuing() else { return };
    let meta = &secret["metadata"];
    let (namespace, name) = (text(&meta["namespace"]).to_owned(), text(&meta["name"]).to_owned());
    let (account, uid) = (text(&meta["annotations"][NAME]), text(&meta["annotations"][UID]));
    if secret["type"] != TYPE || account.is_empty() || !secret["data"]["token"].is_null() {
        return;
    }
    let Some(found) = Objects::get(registry, "", "serviceaccounts", &namespace, account) else { return };
    let have = text(&found["metadata"]["uid"]).to_owned();
    if !uid.is_empty() && uid != have {
        return;
    }
    let account = Reference { name: account.to_owned(), uid: have.clone() };
    let Ok(token) = issuing.tokens.issue_legacy(&namespace, &account, &name) else { return };
    if !secret["data"].is_object() {
        secret["data"] = json!({});
    }
    let all = [("token", token.as_str()), ("namespace", &namespace), ("ca.crt", &issuing.ca_pem)];
    for (key, value) in all {
        secret["data"][key] = STANDARD.encode(value).into();
    }
    secret["metadata"]["annotations"][UID] = have.into();
}
