//! PodCertificateRequests: a kubelet asks for a certificate of one of its Pods, a signer answers once. Source: upstream's
//! `apis/certificates/validation`.

use super::certificates::signer;
use super::columns::name;
use super::fields::{default, items, set, text};
use super::hooks::metadata_fields;
use super::{Cause, Causes, Column, Cx, Hooks, Invalid};
use crate::access::certificates::pem::{Block, blocks};
use crate::registry::now_unix;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use trine_objects::{names, time};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::{FromDer, X509Certificate};

/// The shortest time of a certificate, seconds.
pub(super) const SHORTEST: i64 = 3600;
/// The longest, and the longest of Kubernetes' own signers.
const LONGEST: i64 = 91 * 86_400;
const LONGEST_OWN: i64 = 86_400;
/// Seconds between the ends of a certificate's time and its exchange, at least.
const MARGIN: i64 = 600;
/// How far from now a certificate's time may begin, seconds.
const DRIFT: i64 = 300;
/// The largest request and the largest chain, bytes.
const MOST_REQUEST: usize = 10 << 10;
const MOST_CHAIN: usize = 100 << 10;
const LONGEST_UID: usize = 128;
/// What a signer says, once.
const ANSWERS: [&str; 3] = ["Denied", "Failed", "Issued"];

/// The longest time of a certificate of this signer, seconds.
pub(super) fn longest(signer: &str) -> i64 {
    let domain = signer.split('/').next().unwrap_or_default();
    let own = domain == "kubernetes.io" || domain.ends_with(".kubernetes.io");
    if own { LONGEST_OWN } else { LONGEST }
}

/// The hooks of PodCertificateRequests.
pub struct PodCertificates;

impl Hooks for PodCertificates {
    fn defaults(&self, obj: &mut Value) {
        if let Some(spec) = obj.get_mut("spec").filter(|s| s.is_object()) {
            default(spec, "maxExpirationSeconds", LONGEST_OWN);
        }
    }

    fn prepare_create(&self, obj: &mut Value, _cx: &mut Cx) -> Result<(), Invalid> {
        // Not absent: the signer's patch adds to it.
        set(obj, "status", json!({}));
        Ok(())
    }

    fn validate(&self, obj: &Value, old: Option<&Value>) -> Vec<Cause> {
        let mut causes = Causes::default();
        let spec = &obj["spec"];
        match old {
            Some(old) if old["spec"] != *spec => {
                causes.add(Cause::invalid("spec", "", "field is immutable"));
            }
            Some(_) => {}
            None => request(spec, &mut causes),
        }
        causes.0
    }

    fn validate_part(&self, _part: &str, obj: &Value, old: &Value) -> Vec<Cause> {
        let mut causes = Causes::default();
        answer(obj, old, now_unix(), &mut causes);
        causes.0
    }

    fn columns(&self) -> &'static [Column] {
        const {
            &[
                Column::NAME,
                Column::text("PodName"),
                Column::text("ServiceAccountName"),
                Column::text("NodeName"),
                Column::text("SignerName"),
                Column::text("State"),
            ]
        }
    }

    fn row(&self, obj: &Value, _now_unix: i64) -> Vec<Value> {
        let spec = &obj["spec"];
        let said =
            |kind: &&&str| items(&obj["status"], "conditions").iter().any(|c| text(c, "type") == **kind);
        let state = ANSWERS.iter().find(said).copied().unwrap_or("Pending");
        let cells = ["podName", "serviceAccountName", "nodeName", "signerName"].map(|f| text(spec, f).into());
        [name(obj)].into_iter().chain(cells).chain([state.into()]).collect()
    }

    fn fields(&self, obj: &Value) -> Vec<(String, String)> {
        let mut fields = metadata_fields(obj);
        for field in ["signerName", "podName", "nodeName"] {
            fields.push((format!("spec.{field}"), text(&obj["spec"], field).to_owned()));
        }
        fields
    }
}

fn request(spec: &Value, causes: &mut Causes) {
    let by = text(spec, "signerName");
    causes.extend(signer(by));
    for field in ["podName", "serviceAccountName", "nodeName"] {
        for why in names::dns1123_subdomain(text(spec, field)).err().into_iter().flatten() {
            causes.add(Cause::invalid(format!("spec.{field}"), text(spec, field), &why));
        }
    }
    for field in ["podUID", "serviceAccountUID", "nodeUID"] {
        match text(spec, field) {
            "" => causes.add(Cause::invalid(format!("spec.{field}"), "", "must not be empty")),
            uid if uid.len() > LONGEST_UID => {
                causes.add(Cause::too_long(format!("spec.{field}"), LONGEST_UID))
            }
            _ => {}
        }
    }
    let longest = longest(by);
    let seconds = spec["maxExpirationSeconds"].as_i64().unwrap_or_default();
    if !(SHORTEST..=longest).contains(&seconds) {
        let detail = format!("must be in the range [{SHORTEST}, {longest}]");
        causes.add(Cause::invalid("spec.maxExpirationSeconds", seconds, &detail));
    }
    let field = "spec.stubPKCS10Request";
    let encoded = text(spec, "stubPKCS10Request");
    let bytes = STANDARD.decode(encoded).unwrap_or_default();
    if encoded.is_empty() {
        causes.add(Cause::required(field, ""));
    } else if bytes.len() > MOST_REQUEST {
        causes.add(Cause::too_long(field, MOST_REQUEST));
    } else {
        let read = X509CertificationRequest::from_der(&bytes);
        if !read.is_ok_and(|(_, request)| request.verify_signature().is_ok()) {
            causes.add(Cause::invalid(field, "", "must be a valid PKCS#10 CSR"));
        }
    }
}

/// What is wrong with the answer of a signer.
fn answer(new: &Value, old: &Value, now: i64, causes: &mut Causes) {
    let field = "status.conditions";
    let (status, before) = (&new["status"], &old["status"]);
    let said =
        |status: &Value, kind: &str| items(status, "conditions").iter().any(|c| text(c, "type") == kind);
    for (i, condition) in items(status, "conditions").iter().enumerate() {
        if !ANSWERS.contains(&text(condition, "type")) {
            causes.add(Cause::not_supported(format!("{field}[{i}].type"), text(condition, "type"), &ANSWERS));
            continue;
        }
        if i > 0 {
            let detail = "There may be at most one condition with type \"Issued\", \"Denied\", or \"Failed\"";
            causes.add(Cause::invalid(format!("{field}[{i}].type"), text(condition, "type"), detail));
        }
        if text(condition, "status") != "True" {
            causes.add(Cause::not_supported(
                format!("{field}[{i}].status"),
                text(condition, "status"),
                &["True"],
            ));
        }
    }
    if !causes.0.is_empty() {
        return;
    }
    let mut refuse = |detail: &str| causes.add(Cause::invalid("status", "", detail));
    if ANSWERS.iter().any(|kind| said(before, kind)) {
        if before != status {
            refuse("immutable after PodCertificateRequest is issued, denied, or failed");
        }
    } else if said(status, "Denied") || said(status, "Failed") {
        let only = status.as_object().is_none_or(|fields| fields.keys().all(|key| key == "conditions"));
        if !only {
            refuse(
                "non-condition status fields must be empty when denying or failing the PodCertificateRequest",
            );
        }
    } else if said(status, "Issued") {
        if let Err(cause) = issued(new, now) {
            causes.add(*cause);
        }
    } else if before != status {
        refuse("status is immutable unless transitioning to \"Issued\", \"Denied\", or \"Failed\"");
    }
}

fn wrong(field: &str, value: impl Into<Value>, detail: &str) -> Box<Cause> {
    Box::new(Cause::invalid(format!("status.{field}"), value, detail))
}

/// Whether the chain is one that was asked for.
fn issued(object: &Value, now: i64) -> Result<(), Box<Cause>> {
    let status = &object["status"];
    let chain = text(status, "certificateChain");
    if chain.len() > MOST_CHAIN {
        return Err(Box::new(Cause::too_long("status.certificateChain", MOST_CHAIN)));
    }
    let bad = |detail: &str| wrong("certificateChain", chain, detail);
    let blocks = blocks(chain);
    let Some((leaf, rest)) = blocks.split_first() else {
        return Err(bad("issued certificate chain must contain at least one certificate"));
    };
    let certificate = |block: &Block| block.label == "CERTIFICATE";
    if !blocks.iter().all(certificate) {
        return Err(bad("issued certificate chain must consist entirely of CERTIFICATE PEM blocks"));
    }
    let Ok((_, leaf)) = X509Certificate::from_der(&leaf.content) else {
        return Err(bad("leaf certificate does not parse as valid X.509"));
    };
    let asked = STANDARD.decode(text(&object["spec"], "stubPKCS10Request")).unwrap_or_default();
    let key = X509CertificationRequest::from_der(&asked)
        .map(|(_, request)| request.certification_request_info.subject_pki.raw.to_vec());
    if key.ok().as_deref() != Some(leaf.public_key().raw) {
        return Err(bad("leaf certificate was not issued to the requested public key"));
    }
    let (begins, ends) = (leaf.validity().not_before.timestamp(), leaf.validity().not_after.timestamp());
    times(status, begins, ends, now)?;
    if ends - begins < SHORTEST {
        return Err(bad("leaf certificate lifetime must be >= 1 hour"));
    }
    let longest = object["spec"]["maxExpirationSeconds"].as_i64().unwrap_or(LONGEST_OWN);
    if ends - begins > longest {
        return Err(bad(&format!(
            "leaf certificate lifetime must be <= spec.maxExpirationSeconds ({longest})"
        )));
    }
    if rest.iter().any(|block| X509Certificate::from_der(&block.content).is_err()) {
        return Err(bad("intermediate certificate does not parse as valid X.509"));
    }
    Ok(())
}

/// Whether the times of the status are those of the certificate.
fn times(status: &Value, begins: i64, ends: i64, now: i64) -> Result<(), Box<Cause>> {
    let read = |field: &str, detail: &str| match time::parse(text(status, field)) {
        Some(time) => Ok(time),
        None => Err(Box::new(Cause::required(format!("status.{field}"), detail))),
    };
    let present = "must be present and consistent with the issued certificate";
    let from = read("notBefore", present)?;
    let until = read("notAfter", present)?;
    let refresh =
        read("beginRefreshAt", "must be present and in the range [notbefore+10min, notafter-10min]")?;
    let said = |field: &str, detail: &str| Err(wrong(field, text(status, field), detail));
    if from != begins {
        return said("notBefore", "must be set to the NotBefore time encoded in the leaf certificate");
    }
    if (from - now).abs() > DRIFT {
        return said("notBefore", "must be set to within 5 minutes of kube-apiserver's current time");
    }
    if until != ends {
        return said("notAfter", "must be set to the NotAfter time encoded in the leaf certificate");
    }
    if refresh < from + MARGIN {
        return said("beginRefreshAt", "must be at least 10 minutes after status.notBefore");
    }
    if refresh > until - MARGIN {
        return said("beginRefreshAt", "must be at least 10 minutes before status.notAfter");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::time::Duration;

    const NOW: i64 = 1_800_000_000;

    fn asked(key: &rcgen::KeyPair) -> Value {
        let request = rcgen::CertificateParams::default().serialize_request(key).unwrap();
        json!({"metadata": {"name": "r"}, "spec": {"signerName": "example.com/x", "podName": "p", "podUID": "1",
            "serviceAccountName": "s", "serviceAccountUID": "2", "nodeName": "n", "nodeUID": "3", "maxExpirationSeconds": 86_400,
            "stubPKCS10Request": STANDARD.encode(request.der())}})
    }

    fn chain(key: &rcgen::KeyPair, hours: u64) -> String {
        let mut params = rcgen::CertificateParams::default();
        let epoch = rcgen::date_time_ymd(1970, 1, 1);
        params.not_before = epoch + Duration::from_secs(u64::try_from(NOW).unwrap());
        params.not_after = params.not_before + Duration::from_secs(hours * 3600);
        params.self_signed(key).unwrap().pem()
    }

    fn answered(key: &rcgen::KeyPair, chain: &str, hours: i64) -> Value {
        let mut object = asked(key);
        object["status"] = json!({"conditions": [{"type": "Issued", "status": "True"}], "certificateChain": chain,
            "notBefore": time::format(NOW), "notAfter": time::format(NOW + hours * 3600),
            "beginRefreshAt": time::format(NOW + 1800)});
        object
    }

    fn judged(new: &Value, old: &Value) -> Vec<String> {
        let mut causes = Causes::default();
        answer(new, old, NOW + 60, &mut causes);
        causes.0.into_iter().map(|c| c.message).collect()
    }

    #[test]
    fn a_request_names_its_pod_and_shows_its_key() {
        let good = asked(&rcgen::KeyPair::generate().unwrap());
        let found = |field: &str, value: Value| -> Vec<String> {
            let mut object = good.clone();
            object["spec"][field] = value;
            PodCertificates.validate(&object, None).into_iter().map(|c| c.field).collect()
        };
        assert_eq!(found("podName", "p".into()), Vec::<String>::new());
        for (field, value) in [
            ("signerName", json!("x")),
            ("podName", json!("")),
            ("podUID", json!("")),
            ("nodeUID", json!("x".repeat(129))),
            ("maxExpirationSeconds", json!(3599)),
            ("maxExpirationSeconds", json!(91 * 86_400 + 1)),
            ("stubPKCS10Request", json!("AQI=")),
        ] {
            assert_eq!(found(field, value.clone()), [format!("spec.{field}")], "{value}");
        }
        let mut object = good.clone();
        object["spec"]["signerName"] = "kubernetes.io/x".into();
        object["spec"]["maxExpirationSeconds"] = 86_401.into();
        assert_eq!(PodCertificates.validate(&object, None).len(), 1, "Kubernetes' own sign for a day");
        assert_eq!(PodCertificates.validate(&object, Some(&good)).len(), 1, "what was asked stays");
    }

    #[test]
    fn a_signer_answers_once_and_what_was_asked() {
        let (key, other) = (rcgen::KeyPair::generate().unwrap(), rcgen::KeyPair::generate().unwrap());
        let before = asked(&key);
        let good = answered(&key, &chain(&key, 2), 2);
        assert_eq!(judged(&good, &before), Vec::<String>::new());
        assert!(judged(&before, &good)[0].contains("immutable after PodCertificateRequest is issued"));
        for (new, wanted) in [
            (answered(&key, &chain(&other, 2), 2), "not issued to the requested public key"),
            (answered(&key, &chain(&key, 2), 3), "must be set to the NotAfter time"),
            (answered(&key, &chain(&key, 48), 48), "lifetime must be <= spec.maxExpirationSeconds (86400)"),
            (answered(&key, "", 2), "must contain at least one certificate"),
        ] {
            let found = judged(&new, &before);
            assert!(found.len() == 1 && found[0].contains(wanted), "{found:?}");
        }
        let mut denied = before.clone();
        denied["status"] = json!({"conditions": [{"type": "Denied", "status": "True"}]});
        assert_eq!(judged(&denied, &before), Vec::<String>::new());
        denied["status"]["certificateChain"] = "x".into();
        assert!(judged(&denied, &before)[0].contains("must be empty when denying"));
        let both = json!([{"type": "Denied", "status": "True"}, {"type": "Issued", "status": "False"}]);
        denied["status"] = json!({"conditions": both});
        assert_eq!(judged(&denied, &before).len(), 2);
    }
}
