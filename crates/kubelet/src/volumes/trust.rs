//! Certificates that a Pod is to believe: the ClusterTrustBundles that its projected volumes name.

use std::collections::{BTreeMap, BTreeSet};

use trine_objects::pem;
use trine_typed::k8s_openapi::api::certificates::v1::ClusterTrustBundle;
use trine_typed::k8s_openapi::api::core::v1::{ClusterTrustBundleProjection, Volume};
use trine_typed::kube::api::ListParams;
use trine_typed::kube::core::Selector;
use trine_typed::kube::{Api, Client};
use x509_parser::pem::Pem;

use crate::error::{KubeletError, api};

/// The certificates of a volume by the place of the source that names them.
pub type Bundles = BTreeMap<usize, Vec<u8>>;

/// Which bundles a source names.
#[derive(Debug, Clone, PartialEq)]
enum Wanted {
    One(String),
    OfSigner(String, Selector),
    /// A signer without a selector: none.
    None,
}

fn wanted(source: &ClusterTrustBundleProjection) -> Result<Wanted, KubeletError> {
    match (&source.name, &source.signer_name, &source.label_selector) {
        (Some(name), _, _) => Ok(Wanted::One(name.clone())),
        (None, Some(_), None) => Ok(Wanted::None),
        (None, Some(signer), Some(selector)) => {
            let selector = Selector::try_from(selector.clone());
            let selector = selector.map_err(|e| KubeletError::Invalid(format!("labelSelector: {e}")))?;
            Ok(Wanted::OfSigner(signer.clone(), selector))
        }
        (None, None, _) => Err(KubeletError::Invalid(
            "ClusterTrustBundle projection requires either name or signerName to be set".to_owned(),
        )),
    }
}

/// Reads all bundles that `volume` names.
///
/// # Errors
/// [`KubeletError::Invalid`] if there is none where one must be; [`KubeletError::Api`].
pub async fn read(client: &Client, volume: &Volume) -> Result<Bundles, KubeletError> {
    let mut bundles = Bundles::new();
    let sources = volume.projected.iter().flat_map(|p| p.sources.iter().flatten());
    for (place, source) in sources.enumerate() {
        if let Some(source) = &source.cluster_trust_bundle {
            let found = find(client, &wanted(source)?).await?;
            bundles.insert(place, anchors(source, &found)?);
        }
    }
    Ok(bundles)
}

async fn find(client: &Client, wanted: &Wanted) -> Result<Vec<ClusterTrustBundle>, KubeletError> {
    let all: Api<ClusterTrustBundle> = Api::all(client.clone());
    match wanted {
        Wanted::None => Ok(Vec::new()),
        Wanted::One(name) => {
            let found = api("get ClusterTrustBundle", name, all.get_opt(name)).await?;
            Ok(found.into_iter().collect())
        }
        Wanted::OfSigner(signer, selector) => {
            let params =
                ListParams::default().fields(&format!("spec.signerName={signer}")).labels_from(selector);
            Ok(api("list ClusterTrustBundles", signer, all.list(&params)).await?.items)
        }
    }
}

/// The certificates of what was found, or nothing if that may be.
fn anchors(
    source: &ClusterTrustBundleProjection,
    found: &[ClusterTrustBundle],
) -> Result<Vec<u8>, KubeletError> {
    if found.is_empty() && source.optional != Some(true) {
        return Err(KubeletError::Invalid(match &source.name {
            Some(name) => format!("clustertrustbundle {name:?} not found"),
            None => "combination of signerName and labelSelector matched zero ClusterTrustBundles".to_owned(),
        }));
    }
    normalised(found.iter().map(|bundle| bundle.spec.trust_bundle.as_str()))
}

/// Each certificate once, in an order that does not depend on the bundles', without comments and headers.
fn normalised<'a>(bundles: impl Iterator<Item = &'a str>) -> Result<Vec<u8>, KubeletError> {
    let mut certificates = BTreeSet::new();
    for bundle in bundles {
        for block in Pem::iter_from_buffer(bundle.as_bytes()) {
            let block = block.map_err(|e| KubeletError::Invalid(format!("a trust bundle is no PEM: {e}")))?;
            certificates.insert(block.contents);
        }
    }
    let text: String = certificates.iter().map(|der| pem::encode("CERTIFICATE", der)).collect();
    Ok(text.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn bundle(name: &str, certificates: &[&str]) -> ClusterTrustBundle {
        let text: String = certificates
            .iter()
            .map(|c| format!("# a comment\n{}", pem::encode("CERTIFICATE", c.as_bytes())))
            .collect();
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"trustBundle": text}})).unwrap()
    }

    fn source(value: Value) -> ClusterTrustBundleProjection {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn each_certificate_is_there_once_and_in_one_order() {
        let by_signer = source(json!({"signerName": "a/b", "labelSelector": {}, "path": "x"}));
        let there = anchors(&by_signer, &[bundle("1", &["b", "a"]), bundle("2", &["a", "c"])]).unwrap();
        let back = anchors(&by_signer, &[bundle("2", &["c", "a"]), bundle("1", &["a", "b"])]).unwrap();
        assert_eq!(there, back);
        let expected: String = ["a", "b", "c"].map(|c| pem::encode("CERTIFICATE", c.as_bytes())).concat();
        assert_eq!(String::from_utf8(there).unwrap(), expected);
    }

    #[test]
    fn what_is_not_there_stops_the_pod_unless_it_may_be_missing() {
        let rows = [
            (json!({"name": "n", "path": "x"}), Some("clustertrustbundle \"n\" not found")),
            (json!({"name": "n", "path": "x", "optional": true}), None),
            (
                json!({"signerName": "a/b", "path": "x", "optional": false}),
                Some("combination of signerName and labelSelector matched zero ClusterTrustBundles"),
            ),
            (json!({"signerName": "a/b", "path": "x", "optional": true}), None),
        ];
        for (value, refused) in rows {
            let got = anchors(&source(value.clone()), &[]);
            match refused {
                Some(text) => assert_eq!(got.unwrap_err().to_string(), text, "{value}"),
                None => assert_eq!(got.unwrap(), b"", "{value}"),
            }
        }
    }

    #[test]
    fn a_signer_without_a_selector_has_no_bundles_and_with_an_empty_one_all() {
        let none = wanted(&source(json!({"signerName": "a/b", "path": "x"}))).unwrap();
        assert_eq!(none, Wanted::None);
        let all = wanted(&source(json!({"signerName": "a/b", "labelSelector": {}, "path": "x"}))).unwrap();
        assert_eq!(all, Wanted::OfSigner("a/b".to_owned(), Selector::default()));
        assert!(wanted(&source(json!({"path": "x"}))).is_err());
    }
}
