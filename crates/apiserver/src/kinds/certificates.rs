//! CertificateSigningRequests.

use super::columns::{age, name};
use super::fields::{items, take, text};
use super::hooks::metadata_fields;
use super::{Cause, Causes, Column, Cx, Hooks, Invalid};
use crate::access::certificates::request::Request;
use serde_json::Value;
use trine_objects::names::{self, Checked};

/// What a key may be used for.
const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];
/// Signs whatever it is given, and is refused.
const LEGACY: &str = "kubernetes.io/legacy-unknown";
/// The shortest time of a certificate, seconds.
const SHORTEST: i64 = 600;
/// Conditions that are said once and stay.
const LASTING: [&str; 3] = ["Approved", "Denied", "Failed"];

/// The hooks of CertificateSigningRequests.
pub struct SigningRequests;

impl Hooks for SigningRequests {
    fn name(&self, _name: &str) -> Checked {
        Ok(())
    }

    fn prepare_create(&self, obj: &mut Value, _cx: &mut Cx) -> Result<(), Invalid> {
        take(obj, "status");
        Ok(())
    }

    fn validate(&self, obj: &Value, old: Option<&Value>) -> Vec<Cause> {
        let mut causes = Causes::default();
        let spec = &obj["spec"];
        if let Err(why) = Request::read(&spec["request"]) {
            causes.add(Cause::invalid("spec.request", spec["request"].clone(), &why));
        }
        if items(spec, "usages").is_empty() {
            causes.add(Cause::required("spec.usages", ""));
        }
        for (i, usage) in items(spec, "usages").iter().enumerate() {
            let field = format!("spec.usages[{i}]");
            if items(spec, "usages")[..i].contains(usage) {
                causes.add(Cause::duplicate(field, usage.clone()));
            } else if !USAGES.contains(&usage.as_str().unwrap_or_default()) {
                causes.add(Cause::not_supported(field, usage.clone(), &USAGES));
            }
        }
        causes.extend(signer(text(spec, "signerName")));
        if let Some(seconds) = spec["expirationSeconds"].as_i64().filter(|s| *s < SHORTEST) {
            let detail = "may not specify a duration less than 600 seconds (10 minutes)";
            causes.add(Cause::invalid("spec.expirationSeconds", seconds, detail));
        }
        conditions(obj, old, &mut causes);
        let certificate = |o: &Value| o["status"]["certificate"].as_str().unwrap_or_default().to_owned();
        if let Some(old) = old
            && !certificate(old).is_empty()
            && certificate(old) != certificate(obj)
        {
            let detail = "updates may not modify existing certificate content";
            causes.add(Cause::forbidden("status.certificate", detail));
        }
        causes.0
    }

    fn columns(&self) -> &'static [Column] {
        const {
            &[
                Column::NAME,
                Column::AGE,
                Column::text("SignerName"),
                Column::text("Requestor"),
                Column::text("RequestedDuration"),
                Column::text("Condition"),
            ]
        }
    }

    fn row(&self, obj: &Value, now_unix: i64) -> Vec<Value> {
        let spec = &obj["spec"];
        let duration = spec["expirationSeconds"].as_i64().map_or_else(|| "<none>".to_owned(), duration);
        vec![
            name(obj),
            age(obj, now_unix),
            text(spec, "signerName").into(),
            text(spec, "username").into(),
            duration.into(),
            state(&obj["status"]).into(),
        ]
    }

    fn fields(&self, obj: &Value) -> Vec<(String, String)> {
        let mut fields = metadata_fields(obj);
        fields.push(("spec.signerName".to_owned(), text(&obj["spec"], "signerName").to_owned()));
        fields
    }
}

/// What is wrong with the name of a signer in a request or a bundle.
pub(super) fn signer(name: &str) -> Option<Cause> {
    signer_at("spec.signerName", name)
}

/// What is wrong with the name of a signer in `field`.
pub(super) fn signer_at(field: &str, name: &str) -> Option<Cause> {
    if name.is_empty() {
        return Some(Cause::required(field, ""));
    }
    if name == LEGACY {
        return Some(Cause::invalid(
            field,
            name,
            "the legacy signerName is not allowed via this API version",
        ));
    }
    let detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
    match name.split_once('/') {
        Some((domain, path)) if domain.contains('.') && !path.is_empty() && !path.contains('/') => {
            let wrong = names::dns1123_subdomain(domain).err()?;
            wrong.first().map(|why| Cause::invalid(field, domain, why))
        }
        _ => Some(Cause::invalid(field, name, detail)),
    }
}

fn conditions(obj: &Value, old: Option<&Value>, causes: &mut Causes) {
    let list = items(&obj["status"], "conditions");
    let field = "status.conditions";
    for (i, condition) in list.iter().enumerate() {
        let kind = text(condition, "type");
        if kind.is_empty() {
            causes.add(Cause::required(format!("{field}[{i}].type"), ""));
        }
        let known: &[&str] = if LASTING.contains(&kind) { &["True"] } else { &["False", "True", "Unknown"] };
        match text(condition, "status") {
            "" => causes.add(Cause::required(format!("{field}[{i}].status"), "")),
            status if !known.contains(&status) => {
                causes.add(Cause::not_supported(format!("{field}[{i}].status"), status, known));
            }
            _ => {}
        }
        if list[..i].iter().any(|c| text(c, "type") == kind) {
            causes.add(Cause::duplicate(format!("{field}[{i}].type"), kind));
        }
    }
    let said =
        |o: &Value, kind: &str| items(&o["status"], "conditions").iter().any(|c| text(c, "type") == kind);
    if said(obj, "Approved") && said(obj, "Denied") {
        let detail = "Approved and Denied conditions are mutually exclusive";
        causes.add(Cause::invalid(field, "Denied", detail));
    }
    for kind in LASTING {
        if old.is_some_and(|old| said(old, kind)) && !said(obj, kind) {
            let detail = format!("updates may not remove a condition of type {kind:?}");
            causes.add(Cause::forbidden(field, &detail));
        }
    }
}

/// `Approved,Issued`, as `kubectl get csr` shows it.
fn state(status: &Value) -> String {
    let said = |kind: &str| items(status, "conditions").iter().any(|c| text(c, "type") == kind);
    let mut state = match (said("Denied"), said("Approved")) {
        (true, _) => "Denied",
        (_, true) => "Approved",
        _ => "Pending",
    }
    .to_owned();
    if said("Failed") {
        state.push_str(",Failed");
    }
    if !text(status, "certificate").is_empty() {
        state.push_str(",Issued");
    }
    state
}

/// A time as people read it, its largest unit first.
fn duration(seconds: i64) -> String {
    trine_objects::time::age(Some("1970-01-01T00:00:00Z"), seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn signers_are_named_in_full() {
        for (name, fine) in [
            ("kubernetes.io/kubelet-serving", true),
            ("example.com/x", true),
            (LEGACY, false),
            ("nodomain/x", false),
            ("example.com", false),
            ("Example.com/x", false),
            ("", false),
        ] {
            assert_eq!(signer(name).is_none(), fine, "{name}");
        }
    }

    #[test]
    fn what_was_decided_stays_decided() {
        let with = |kinds: &[&str]| {
            let list: Vec<Value> = kinds.iter().map(|k| json!({"type": k, "status": "True"})).collect();
            json!({"status": {"conditions": list}})
        };
        let causes = |new: &Value, old: &Value| {
            let mut causes = Causes::default();
            conditions(new, Some(old), &mut causes);
            causes.0.len()
        };
        assert_eq!(causes(&with(&["Approved"]), &with(&[])), 0);
        assert_eq!(causes(&with(&[]), &with(&["Approved"])), 1);
        assert_eq!(causes(&with(&["Approved", "Denied"]), &with(&["Approved"])), 1);
        assert_eq!(causes(&with(&["Denied", "Denied"]), &with(&[])), 1);
        assert_eq!(
            state(&json!({"certificate": "x", "conditions": [{"type": "Approved"}]})),
            "Approved,Issued"
        );
    }
}
