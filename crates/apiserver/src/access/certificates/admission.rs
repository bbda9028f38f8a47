//! Who may approve and sign, and what each may say.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::access::Authorizer;
use crate::access::attributes::Attributes;
use crate::access::certificates::request::Request;
use crate::registry::text;
use crate::user::{MASTERS, User};

/// The group of signers.
const GROUP: &str = "certificates.k8s.io";
/// The signer of clients' certificates.
const CLIENT: &str = "kubernetes.io/kube-apiserver-client";

/// Notes who asks, which decides what may be signed for him.
pub fn note_requester(user: &User, request: &mut Value) {
    let Some(spec) = request.get_mut("spec").and_then(Value::as_object_mut) else { return };
    for field in ["username", "uid", "groups", "extra"] {
        spec.remove(field);
    }
    spec.insert("username".to_owned(), user.name.as_str().into());
    spec.insert("groups".to_owned(), json!(user.groups));
    if !user.uid.is_empty() {
        spec.insert("uid".to_owned(), user.uid.as_str().into());
    }
    if !user.extra.is_empty() {
        let extra: &BTreeMap<String, Vec<String>> = &user.extra;
        spec.insert("extra".to_owned(), json!(extra));
    }
}

/// Nobody becomes a master by a certificate.
#[must_use]
pub fn refuse_subject(request: &Value) -> Option<String> {
    if request["spec"]["signerName"] != CLIENT {
        return None;
    }
    let asked = Request::read(&request["spec"]["request"]).ok()?;
    let master = asked.organizations.iter().any(|o| o == MASTERS);
    master.then(|| format!("use of {CLIENT} signer with {MASTERS} group is not allowed"))
}

/// Why a user may not write a bundle of its signer; `None` if he may. What everybody's tools change does not count.
#[must_use]
pub fn refuse_bundle(
    authorizer: &Authorizer,
    user: &User,
    old: Option<&Value>,
    new: &Value,
) -> Option<String> {
    let signer = text(&new["spec"]["signerName"]);
    let same = old.is_some_and(|old| old["spec"] == new["spec"]);
    (!signer.is_empty() && !same && !may(authorizer, user, "attest", signer))
        .then(|| format!("user not permitted to attest for signerName {signer:?}"))
}

/// Why a user may not answer a request for a Pod's certificate; `None` if he may.
#[must_use]
pub fn refuse_answer(authorizer: &Authorizer, user: &User, old: &Value, new: &Value) -> Option<String> {
    let signer = text(&old["spec"]["signerName"]);
    (old["status"] != new["status"] && !may(authorizer, user, "sign", signer))
        .then(|| format!("User {:?} is not permitted to \"sign\" for signer {signer:?}", user.name))
}

/// Whether a user may `approve` or `sign` for a signer: by its name, or by `domain/*`.
fn may(authorizer: &Authorizer, user: &User, verb: &str, signer: &str) -> bool {
    let domain = signer.split('/').next().unwrap_or_default();
    [signer.to_owned(), format!("{domain}/*")]
        .iter()
        .any(|name| authorizer.decide(user, &Attributes::of(verb, GROUP, "signers", "", name)).allowed())
}

/// Why a user may not write this part of a request; `None` if he may.
#[must_use]
pub fn refuse_part(
    authorizer: &Authorizer,
    user: &User,
    part: &str,
    old: &Value,
    new: &Value,
) -> Option<String> {
    let signer = text(&old["spec"]["signerName"]);
    match part {
        "approval" if !may(authorizer, user, "approve", signer) => {
            Some(format!("user not permitted to approve requests with signerName {signer:?}"))
        }
        "status" if old["status"] != new["status"] && !may(authorizer, user, "sign", signer) => {
            Some(format!("user not permitted to sign requests with signerName {signer:?}"))
        }
        _ => None,
    }
}

/// Keeps of the old request what this part may not change, and dates what is new: approval says `Approved` and `Denied`, the
/// status everything else.
pub fn keep(part: &str, old: &Value, new: &mut Value, now: &str) {
    if part.is_empty() {
        new["spec"] = old["spec"].clone();
        match old.get("status") {
            Some(status) => new["status"] = status.clone(),
            None => {
                if let Some(map) = new.as_object_mut() {
                    map.remove("status");
                }
            }
        }
        return;
    }
    if part == "approval" {
        let conditions = new["status"]["conditions"].clone();
        new["status"] = old["status"].clone();
        if !new["status"].is_object() {
            new["status"] = json!({});
        }
        new["status"]["conditions"] = conditions;
    }
    let before = old["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let conditions = new.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten().filter(|c| c.is_object()) {
        if before.contains(condition) {
            continue;
        }
        let same =
            before.iter().find(|c| c["type"] == condition["type"] && c["status"] == condition["status"]);
        let since = same.map_or(now, |c| text(&c["lastTransitionTime"])).to_owned();
        for (field, value) in [("lastUpdateTime", now), ("lastTransitionTime", since.as_str())] {
            if condition[field].is_null() {
                condition[field] = value.into();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_says_its_own() {
        let old = json!({"spec": {"signerName": "a/b"}, "status": {"certificate": "old"}});
        let approved = json!({"type": "Approved", "status": "True"});
        let given = json!({"spec": {"signerName": "x/y"}, "status": {"certificate": "new", "conditions": [approved]}});
        let mut plain = given.clone();
        keep("", &old, &mut plain, "now");
        assert_eq!(plain, old);
        let mut approval = given.clone();
        keep("approval", &old, &mut approval, "now");
        assert_eq!(approval["status"]["certificate"], "old");
        assert_eq!(approval["status"]["conditions"][0]["lastTransitionTime"], "now");
    }
}
