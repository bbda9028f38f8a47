//! ClusterTrustBundles: certificates that Pods are to believe. Source: upstream's `apis/certificates/validation`.

use super::certificates::signer;
use super::columns::name;
use super::fields::text;
use super::hooks::metadata_fields;
use super::{Cause, Causes, Column, Hooks};
use crate::access::certificates::pem::blocks;
use serde_json::Value;
use trine_objects::names;
use x509_parser::prelude::{FromDer, X509Certificate};

/// The largest bundle, bytes.
const MOST: usize = 1 << 20;
/// Stands for what is too long to be repeated.
const OMITTED: &str = "<value omitted>";

/// The hooks of ClusterTrustBundles.
pub struct TrustBundles;

impl Hooks for TrustBundles {
    fn name(&self, _name: &str) -> names::Checked {
        // It depends on the signer, and is checked with it.
        Ok(())
    }

    fn validate(&self, obj: &Value, old: Option<&Value>) -> Vec<Cause> {
        let spec = &obj["spec"];
        let (own, by) = (text(&obj["metadata"], "name"), text(spec, "signerName"));
        let mut causes = Causes::default();
        for why in named(own, by).err().into_iter().flatten() {
            causes.add(Cause::invalid("metadata.name", own, &why));
        }
        if !by.is_empty() {
            causes.extend(signer(by));
        }
        let before = old.map(|old| &old["spec"]);
        if before.is_none_or(|before| before["trustBundle"] != spec["trustBundle"]) {
            anchors(text(spec, "trustBundle"), &mut causes);
        }
        if before.is_some_and(|before| text(before, "signerName") != by) {
            causes.add(Cause::invalid("spec.signerName", by, "field is immutable"));
        }
        causes.0
    }

    fn columns(&self) -> &'static [Column] {
        const { &[Column::NAME, Column::text("SignerName")] }
    }

    fn row(&self, obj: &Value, _now_unix: i64) -> Vec<Value> {
        let by = match text(&obj["spec"], "signerName") {
            "" => "<none>",
            by => by,
        };
        vec![name(obj), by.into()]
    }

    fn fields(&self, obj: &Value) -> Vec<(String, String)> {
        let mut fields = metadata_fields(obj);
        fields.push(("spec.signerName".to_owned(), text(&obj["spec"], "signerName").to_owned()));
        fields
    }
}

/// What is wrong with a bundle's name, of whichever signer.
pub(super) fn any_name(own: &str) -> names::Checked {
    match own.rsplit_once(':') {
        Some((signer, _)) => named(own, &signer.replace(':', "/")),
        None => named(own, ""),
    }
}

/// A signer's bundles begin with its name.
fn named(own: &str, signer: &str) -> names::Checked {
    if signer.is_empty() {
        if own.contains(':') {
            return Err(vec![
                "ClusterTrustBundle without signer name must not have \":\" in its name".to_owned(),
            ]);
        }
        return names::dns1123_subdomain(own);
    }
    let prefix = format!("{}:", signer.replace('/', ":"));
    match own.strip_prefix(&prefix) {
        Some(rest) => names::dns1123_subdomain(rest),
        None => Err(vec![format!(
            "ClusterTrustBundle for signerName {signer} must be named with prefix {prefix}"
        )]),
    }
}

/// What is wrong with the certificates: each must be an authority's, once.
fn anchors(bundle: &str, causes: &mut Causes) {
    let field = "spec.trustBundle";
    if bundle.len() > MOST {
        return causes.add(Cause::too_long(field, MOST));
    }
    let blocks = blocks(bundle);
    let mut wrong = Vec::new();
    for (i, block) in blocks.iter().enumerate() {
        if block.label != "CERTIFICATE" {
            wrong.push(format!("entry {i} has bad block type: {}", block.label));
        } else if block.headers {
            wrong.push(format!("entry {i} has PEM block headers"));
        } else {
            match X509Certificate::from_der(&block.content) {
                Err(_) => wrong.push(format!("entry {i} does not parse as X.509")),
                Ok((_, certificate)) if !certificate.is_ca() => {
                    wrong.push(format!("entry {i} does not have the CA bit set"));
                }
                Ok(_) => {}
            }
        }
    }
    if wrong.is_empty() && blocks.is_empty() {
        wrong.push("at least one trust anchor must be provided".to_owned());
    }
    if wrong.is_empty() {
        for (i, block) in blocks.iter().enumerate() {
            let same = |(_, other): &(usize, &crate::access::certificates::pem::Block)| {
                other.content == block.content
            };
            let all: Vec<String> =
                blocks.iter().enumerate().filter(same).map(|(i, _)| i.to_string()).collect();
            if all.len() > 1 && all[0] == i.to_string() {
                wrong.push(format!("duplicate trust anchor (indices [{}])", all.join(" ")));
            }
        }
    }
    wrong.iter().for_each(|why| causes.add(Cause::invalid(field, OMITTED, why)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn certificate(authority: bool) -> String {
        let mut params = rcgen::CertificateParams::default();
        if authority {
            params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        }
        params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().pem()
    }

    fn found(name: &str, signer: &str, bundle: &str) -> Vec<String> {
        let object =
            json!({"metadata": {"name": name}, "spec": {"signerName": signer, "trustBundle": bundle}});
        TrustBundles.validate(&object, None).into_iter().map(|c| c.message).collect()
    }

    #[test]
    fn a_bundle_holds_authorities_each_once() {
        let (one, other) = (certificate(true), certificate(true));
        assert_eq!(found("a", "", &format!("{one}{other}")), Vec::<String>::new());
        let headers = one.replacen("-----\n", "-----\nName: x\n\n", 1);
        for (bundle, wanted) in [
            (String::new(), "at least one trust anchor"),
            (certificate(false), "entry 0 does not have the CA bit set"),
            (one.replace("CERTIFICATE", "KEY"), "entry 0 has bad block type: KEY"),
            (headers, "entry 0 has PEM block headers"),
            (
                "-----BEGIN CERTIFICATE-----\nAQI=\n-----END CERTIFICATE-----\n".to_owned(),
                "entry 0 does not parse as X.509",
            ),
            (format!("{one}{other}{one}"), "duplicate trust anchor (indices [0 2])"),
        ] {
            let found = found("a", "", &bundle);
            assert!(found.len() == 1 && found[0].contains(wanted), "{found:?}");
        }
    }

    #[test]
    fn the_name_begins_with_the_signer() {
        let bundle = certificate(true);
        assert!(found("example.com:x:a", "example.com/x", &bundle).is_empty());
        assert!(found("a", "example.com/x", &bundle)[0].contains("must be named with prefix example.com:x:"));
        assert!(found("x:a", "", &bundle)[0].contains("must not have \":\" in its name"));
    }
}
