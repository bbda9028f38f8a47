//! What a projected volume may not be: files of several sources in one. Source: upstream's
//! `apis/core/validation`, `validateProjectionSources`.

use super::volume::{downward, files, inner_path, mode};
use crate::kinds::certificates::signer_at;
use crate::kinds::fields::{entries, is_unset, items, text};
use crate::kinds::pod_certificate::{SHORTEST, longest};
use crate::kinds::trust_bundle;
use crate::kinds::workload::template::label_selector;
use crate::kinds::{Cause, Causes};
use serde_json::Value;
use std::collections::BTreeSet;
use trine_objects::names;

/// What keys a node can make.
const KEY_TYPES: [&str; 6] = ["RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"];
/// The most bytes of all annotations together (upstream: 256 KiB).
const MOST_ANNOTATIONS: usize = 256 << 10;

/// Checks all sources of the volume.
pub fn all(source: &Value, path: &str, causes: &mut Causes) {
    mode(source, "defaultMode", path, causes);
    let mut taken = BTreeSet::new();
    for (i, part) in items(source, "sources").iter().enumerate() {
        let at = format!("{path}.sources[{i}]");
        let given: Vec<&String> =
            part.as_object().into_iter().flatten().filter(|(_, v)| !v.is_null()).map(|(k, _)| k).collect();
        if given.len() > 1 {
            causes.add(Cause::forbidden(&at, "may not specify more than 1 volume type per source"));
        }
        one(part, &at, causes);
        for file in paths(part) {
            if !taken.insert(file) {
                causes.add(Cause::invalid(path, file, "conflicting duplicate paths"));
            }
        }
    }
}

fn one(part: &Value, path: &str, causes: &mut Causes) {
    for kind in ["secret", "configMap"] {
        if part[kind].is_object() {
            causes.needed(&part[kind], "name", &format!("{path}.{kind}"));
            files(&part[kind], &format!("{path}.{kind}"), causes);
        }
    }
    if part["downwardAPI"].is_object() {
        downward(&part["downwardAPI"], &format!("{path}.downwardAPI"), causes);
    }
    if part["serviceAccountToken"].is_object() {
        token(&part["serviceAccountToken"], &format!("{path}.serviceAccountToken"), causes);
    }
    if part["clusterTrustBundle"].is_object() {
        bundle(&part["clusterTrustBundle"], &format!("{path}.clusterTrustBundle"), causes);
    }
    if part["podCertificate"].is_object() {
        certificate(&part["podCertificate"], &format!("{path}.podCertificate"), causes);
    }
}

/// The paths that a source names itself.
fn paths(part: &Value) -> impl Iterator<Item = &str> {
    let listed = ["secret", "configMap", "downwardAPI"]
        .into_iter()
        .flat_map(|kind| items(&part[kind], "items").iter().map(|item| text(item, "path")));
    let own = ["serviceAccountToken", "clusterTrustBundle"].map(|kind| text(&part[kind], "path"));
    let certificate = ["credentialBundlePath", "keyPath", "certificateChainPath"]
        .map(|field| text(&part["podCertificate"], field));
    listed.chain(own).chain(certificate).filter(|path| !path.is_empty())
}

fn token(token: &Value, path: &str, causes: &mut Causes) {
    if token["expirationSeconds"].as_i64().is_some_and(|s| s < 600) {
        let detail = "may not specify a duration less than 10 minutes";
        causes.add(Cause::invalid(
            format!("{path}.expirationSeconds"),
            token["expirationSeconds"].clone(),
            detail,
        ));
    }
    inner_path(token, "path", path, true, causes);
}

fn bundle(bundle: &Value, path: &str, causes: &mut Causes) {
    let given = |key: &str| bundle[key].is_string();
    match (given("name"), given("signerName")) {
        (true, true) => {
            causes.add(Cause::invalid(path, "", "only one of name and signerName may be used"));
        }
        (true, false) => {
            let (field, name) = (format!("{path}.name"), text(bundle, "name"));
            if name.is_empty() {
                causes.add(Cause::required(&field, "must be a valid object name"));
            }
            for why in trust_bundle::any_name(name).err().into_iter().flatten() {
                causes.add(Cause::invalid(
                    &field,
                    name,
                    &format!("not a valid clustertrustbundlename: {why}"),
                ));
            }
            if !bundle["labelSelector"].is_null() {
                let detail = "labelSelector must be unset if name is specified";
                causes.add(Cause::invalid(format!("{path}.labelSelector"), "", detail));
            }
        }
        (false, true) => {
            causes.extend(signer_at(&format!("{path}.signerName"), text(bundle, "signerName")));
            label_selector(&bundle["labelSelector"], &format!("{path}.labelSelector"), causes);
        }
        (false, false) => {
            causes.add(Cause::required(path, "either name or signerName must be specified"));
        }
    }
    local_path(bundle, "path", path, causes);
    if is_unset(&bundle["path"]) {
        causes.add(Cause::required(format!("{path}.path"), ""));
    }
}

fn certificate(wanted: &Value, path: &str, causes: &mut Causes) {
    let signer = text(wanted, "signerName");
    causes.extend(signer_at(&format!("{path}.signerName"), signer));
    annotations(wanted, &format!("{path}.userAnnotations"), causes);
    let kind = text(wanted, "keyType");
    if !KEY_TYPES.contains(&kind) {
        causes.add(Cause::not_supported(format!("{path}.keyType"), kind, &KEY_TYPES));
    }
    if let Some(seconds) = wanted["maxExpirationSeconds"].as_i64() {
        let field = format!("{path}.maxExpirationSeconds");
        let longest = longest(signer);
        if seconds < SHORTEST {
            let detail = format!("if provided, maxExpirationSeconds must be >= {SHORTEST}");
            causes.add(Cause::invalid(&field, seconds, &detail));
        }
        if seconds > longest {
            let detail = format!("if provided, maxExpirationSeconds must be <= {longest}");
            causes.add(Cause::invalid(&field, seconds, &detail));
        }
    }
    let fields = ["credentialBundlePath", "keyPath", "certificateChainPath"];
    for field in fields {
        local_path(wanted, field, path, causes);
    }
    if fields.iter().all(|field| is_unset(&wanted[*field])) {
        let detail = "specify at least one of credentialBundlePath, keyPath, and certificateChainPath";
        causes.add(Cause::required(path, detail));
    }
}

/// What goes to the signer: any words under the name of a domain.
fn annotations(wanted: &Value, field: &str, causes: &mut Causes) {
    let mut size = 0;
    for (key, value) in entries(wanted, "userAnnotations") {
        size += key.len() + value.as_str().map_or(0, str::len);
        let key = key.to_lowercase();
        let wrong = names::qualified_name(&key).err().unwrap_or_default();
        for why in &wrong {
            causes.add(Cause::invalid(field, key.clone(), why));
        }
        if wrong.is_empty() && !key.contains('/') {
            let detail = "must be a domain-prefixed key (such as \"acme.io/foo\")";
            causes.add(Cause::invalid(field, key, detail));
        }
    }
    if size > MOST_ANNOTATIONS {
        causes.add(Cause::too_long(field, MOST_ANNOTATIONS));
    }
}

/// A path within the volume that is not one of the links that exchange its files.
fn local_path(object: &Value, key: &str, path: &str, causes: &mut Causes) {
    inner_path(object, key, path, false, causes);
    let value = text(object, key);
    if value.starts_with("..") && value != ".." && !value.starts_with("../") {
        causes.add(Cause::invalid(format!("{path}.{key}"), value, "must not start with '..'"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn certificates_and_bundles_are_refused_in_upstreams_words() {
        let cert = |change: Value| {
            let mut wanted =
                json!({"signerName": "a.b/c", "keyType": "ED25519", "credentialBundlePath": "x"});
            for (key, value) in change.as_object().into_iter().flatten() {
                wanted[key] = value.clone();
            }
            json!({"podCertificate": wanted})
        };
        let trust = |bundle: Value| json!({"clusterTrustBundle": bundle});
        let rows = [
            (cert(json!({})), ""),
            (cert(json!({"maxExpirationSeconds": 3600})), ""),
            (cert(json!({"maxExpirationSeconds": 91 * 86_400})), ""),
            (
                cert(json!({"maxExpirationSeconds": 3599})),
                "v.sources[0].podCertificate.maxExpirationSeconds: Invalid value: 3599: if provided, maxExpirationSeconds must be >= 3600",
            ),
            (
                cert(json!({"maxExpirationSeconds": 91 * 86_400 + 1})),
                "v.sources[0].podCertificate.maxExpirationSeconds: Invalid value: 7862401: if provided, maxExpirationSeconds must be <= 7862400",
            ),
            (
                cert(json!({"signerName": "x.kubernetes.io/y", "maxExpirationSeconds": 86_401})),
                "must be <= 86400",
            ),
            (
                cert(json!({"keyType": "DSA"})),
                "v.sources[0].podCertificate.keyType: Unsupported value: \"DSA\"",
            ),
            (cert(json!({"credentialBundlePath": null})), "specify at least one of credentialBundlePath"),
            (cert(json!({"keyPath": "..x"})), "must not start with '..'"),
            (cert(json!({"keyPath": "x"})), "v: Invalid value: \"x\": conflicting duplicate paths"),
            (cert(json!({"userAnnotations": {"plain": "x"}})), "must be a domain-prefixed key"),
            (cert(json!({"userAnnotations": {"A.io/x": "x"}})), ""),
            (cert(json!({"signerName": "c"})), "v.sources[0].podCertificate.signerName: Invalid value"),
            (trust(json!({"name": "n", "path": "x"})), ""),
            (trust(json!({"name": "a.b:c:n", "path": "x"})), ""),
            (trust(json!({"name": "a.b:c:N", "path": "x"})), "not a valid clustertrustbundlename"),
            (trust(json!({"signerName": "a.b/c", "path": "x", "labelSelector": {}})), ""),
            (trust(json!({"signerName": "a.b/c", "path": "x"})), ""),
            (trust(json!({"path": "x"})), "either name or signerName must be specified"),
            (trust(json!({"name": "n"})), "v.sources[0].clusterTrustBundle.path: Required value"),
            (
                trust(json!({"name": "n", "path": "x", "labelSelector": {}})),
                "labelSelector must be unset if name is specified",
            ),
        ];
        for (part, expected) in rows {
            let mut causes = Causes::default();
            all(&json!({"sources": [part]}), "v", &mut causes);
            let said: Vec<String> = causes.0.iter().map(ToString::to_string).collect();
            match expected {
                "" => assert!(said.is_empty(), "{part}: {said:?}"),
                text => assert!(said.len() == 1 && said[0].contains(text), "{part}: {said:?}"),
            }
        }
    }
}
