//! Which files a ConfigMap, Secret, downward API or projected volume holds. Pure.

use std::collections::BTreeMap;

use trine_typed::k8s_openapi::api::core::v1::{
    DownwardAPIVolumeFile, KeyToPath, Pod, PodCertificateProjection, ServiceAccountTokenProjection, Volume,
};

use super::atomic::{Content, Files};
use super::pod_certificate::{Found, Issued};
use super::tokens::{Wish, wish};
use super::trust::Bundles;
use crate::container::fields::{self, NodeFacts};
use crate::container::sources::{Names, Sources};
use crate::error::KubeletError;

/// Default mode of files (upstream).
const DEFAULT_MODE: i32 = 0o644;

/// The ConfigMap with the cluster's authority, which every namespace has.
const ROOT_CA: &str = "kube-root-ca.crt";

/// Everything that the files are made of.
#[derive(Clone, Copy)]
pub struct PayloadInput<'a> {
    /// The Pod.
    pub pod: &'a Pod,
    /// The ConfigMaps and Secrets.
    pub sources: &'a Sources,
    /// The tokens.
    pub tokens: &'a BTreeMap<Wish, String>,
    /// What the volume's ClusterTrustBundles say.
    pub bundles: &'a Bundles,
    /// The volume's own certificates.
    pub certificates: &'a Found,
    /// What the Pod may know of the node.
    pub node: &'a NodeFacts,
}

/// What a volume refers to.
#[must_use]
pub fn names(volume: &Volume) -> Names {
    let mut names = Names::default();
    names.config_maps.extend(volume.config_map.as_ref().map(|m| m.name.clone()));
    names.secrets.extend(volume.secret.as_ref().and_then(|s| s.secret_name.clone()));
    for part in volume.projected.iter().flat_map(|p| p.sources.iter().flatten()) {
        names.config_maps.extend(part.config_map.as_ref().map(|m| m.name.clone()));
        names.secrets.extend(part.secret.as_ref().map(|s| s.name.clone()));
    }
    names
}

/// The files of a volume.
///
/// # Errors
/// [`KubeletError::Invalid`] if something that is referred to does not exist.
pub fn files(input: &PayloadInput<'_>, volume: &Volume) -> Result<Files, KubeletError> {
    let mut files = Files::new();
    if let Some(map) = &volume.config_map {
        let mode = map.default_mode.unwrap_or(DEFAULT_MODE);
        let items = map.items.as_deref();
        config_map(input, &map.name, items, map.optional.unwrap_or_default(), mode, &mut files)?;
    }
    if let Some(secret) = &volume.secret {
        let mode = secret.default_mode.unwrap_or(DEFAULT_MODE);
        let name = secret.secret_name.as_deref().unwrap_or_default();
        let items = secret.items.as_deref();
        secret_files(input, name, items, secret.optional.unwrap_or_default(), mode, &mut files)?;
    }
    if let Some(api) = &volume.downward_api {
        let mode = api.default_mode.unwrap_or(DEFAULT_MODE);
        downward(input, api.items.as_deref().unwrap_or_default(), mode, &mut files)?;
    }
    if let Some(projected) = &volume.projected {
        let mode = projected.default_mode.unwrap_or(DEFAULT_MODE);
        for (place, part) in projected.sources.iter().flatten().enumerate() {
            if let Some(map) = &part.config_map {
                let items = map.items.as_deref();
                let made =
                    config_map(input, &map.name, items, map.optional.unwrap_or_default(), mode, &mut files);
                made.map_err(|error| match map.name.as_str() {
                    // Its controller makes it in every namespace: in a new one it comes at any moment.
                    ROOT_CA => KubeletError::NotYet(error.to_string()),
                    _ => error,
                })?;
            } else if let Some(secret) = &part.secret {
                let items = secret.items.as_deref();
                let optional = secret.optional.unwrap_or_default();
                secret_files(input, &secret.name, items, optional, mode, &mut files)?;
            } else if let Some(wanted) = &part.service_account_token {
                token(input, wanted, mode, &mut files)?;
            } else if let Some(api) = &part.downward_api {
                downward(input, api.items.as_deref().unwrap_or_default(), mode, &mut files)?;
            } else if let Some(bundle) = &part.cluster_trust_bundle {
                let text = input.bundles.get(&place).cloned().unwrap_or_default();
                files.insert(bundle.path.clone(), private(input.pod, text, mode));
            } else if let (Some(wanted), Some(issued)) =
                (&part.pod_certificate, input.certificates.get(&place))
            {
                certificate(input.pod, wanted, issued, mode, &mut files);
            }
        }
    }
    Ok(files)
}

/// The user as whom all containers run, if they all say the same: a token is readable for it alone.
fn one_user(pod: &Pod) -> Option<u32> {
    let of_pod = pod.spec.as_ref().and_then(|s| s.security_context.as_ref()).and_then(|c| c.run_as_user);
    let mut users = crate::pod::spec::all(pod)
        .map(|c| c.security_context.as_ref().and_then(|c| c.run_as_user).or(of_pod));
    let first = users.next()??;
    users.all(|user| user == Some(first)).then_some(first).and_then(|user| u32::try_from(user).ok())
}

fn token(
    input: &PayloadInput<'_>,
    wanted: &ServiceAccountTokenProjection,
    mode: i32,
    files: &mut Files,
) -> Result<(), KubeletError> {
    let text = input.tokens.get(&wish(wanted));
    let text = text.ok_or_else(|| KubeletError::Invalid(format!("no token for {:?}", wanted.path)))?;
    files.insert(wanted.path.clone(), private(input.pod, text.clone().into_bytes(), mode));
    Ok(())
}

/// A file for the Pod's one user alone, if it has one.
fn private(pod: &Pod, bytes: Vec<u8>, mode: i32) -> Content {
    let owner = one_user(pod);
    let group = super::publish::group(pod);
    let mode = if owner.is_some() || group.is_some() { 0o600 } else { mode };
    Content { owner, ..content(bytes, mode) }
}

/// The key before its certificates in one file, or each in its own.
fn certificate(pod: &Pod, wanted: &PodCertificateProjection, issued: &Issued, mode: i32, files: &mut Files) {
    let Issued { key, chain, .. } = issued;
    let parts = [
        (&wanted.credential_bundle_path, format!("{key}{chain}")),
        (&wanted.key_path, key.clone()),
        (&wanted.certificate_chain_path, chain.clone()),
    ];
    for (path, text) in parts {
        if let Some(path) = path.as_ref().filter(|p| !p.is_empty()) {
            files.insert(path.clone(), private(pod, text.into_bytes(), mode));
        }
    }
}

fn config_map(
    input: &PayloadInput<'_>,
    name: &str,
    items: Option<&[KeyToPath]>,
    optional: bool,
    mode: i32,
    files: &mut Files,
) -> Result<(), KubeletError> {
    let Some(map) = input.sources.config_map(name, optional)? else { return Ok(()) };
    let text = map.data.iter().flatten().map(|(k, v)| (k.clone(), v.clone().into_bytes()));
    let binary = map.binary_data.iter().flatten().map(|(k, v)| (k.clone(), v.0.clone()));
    pick(text.chain(binary).collect(), items, optional, mode, "configmap", files)
}

fn secret_files(
    input: &PayloadInput<'_>,
    name: &str,
    items: Option<&[KeyToPath]>,
    optional: bool,
    mode: i32,
    files: &mut Files,
) -> Result<(), KubeletError> {
    let Some(secret) = input.sources.secret(name, optional)? else { return Ok(()) };
    let data = secret.data.iter().flatten().map(|(k, v)| (k.clone(), v.0.clone())).collect();
    pick(data, items, optional, mode, "secret", files)
}

fn pick(
    data: BTreeMap<String, Vec<u8>>,
    items: Option<&[KeyToPath]>,
    optional: bool,
    mode: i32,
    kind: &str,
    files: &mut Files,
) -> Result<(), KubeletError> {
    let Some(items) = items.filter(|i| !i.is_empty()) else {
        files.extend(data.into_iter().map(|(key, bytes)| (key, content(bytes, mode))));
        return Ok(());
    };
    for item in items {
        match data.get(&item.key) {
            Some(bytes) => {
                files.insert(item.path.clone(), content(bytes.clone(), item.mode.unwrap_or(mode)));
            }
            None if optional => {}
            None => {
                return Err(KubeletError::Invalid(format!(
                    "{kind} references non-existent {kind} key: {}",
                    item.key
                )));
            }
        }
    }
    Ok(())
}

fn downward(
    input: &PayloadInput<'_>,
    items: &[DownwardAPIVolumeFile],
    mode: i32,
    files: &mut Files,
) -> Result<(), KubeletError> {
    for item in items {
        let text = match (&item.field_ref, &item.resource_field_ref) {
            (Some(field), _) => fields::field(input.pod, &field.field_path, input.node)?,
            (None, Some(resource)) => fields::resource(input.pod, "", resource, input.node)?,
            (None, None) => continue,
        };
        files.insert(item.path.clone(), content(text.into_bytes(), item.mode.unwrap_or(mode)));
    }
    Ok(())
}

fn content(bytes: Vec<u8>, mode: i32) -> Content {
    Content { bytes, mode: u32::try_from(mode).unwrap_or(0o644) & 0o7777, owner: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn volumes_hold_all_keys_or_the_items_that_they_name() {
        let map = serde_json::from_value(json!({"data": {"a": "1", "b": "2"}, "binaryData": {"c": "AP8="}}))
            .unwrap();
        let secret = serde_json::from_value(json!({"data": {"s": "eA=="}})).unwrap();
        let sources = Sources {
            config_maps: BTreeMap::from([("m".to_owned(), Some(map))]),
            secrets: BTreeMap::from([("s".to_owned(), Some(secret))]),
        };
        let pod: Pod =
            serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": {"containers": []}})).unwrap();
        let tokens = BTreeMap::from([(("vault".to_owned(), 3600), "abc".to_owned())]);
        let bundles = Bundles::from([(1, b"trust".to_vec())]);
        let issued = Issued { key: "KEY".into(), chain: "CHAIN".into(), renew_at: jiff::Timestamp::MAX };
        let certificates = Found::from([(0, issued)]);
        let input = PayloadInput {
            pod: &pod,
            sources: &sources,
            tokens: &tokens,
            bundles: &bundles,
            certificates: &certificates,
            node: &NodeFacts::default(),
        };
        let get = |volume: serde_json::Value| {
            let volume: Volume = serde_json::from_value(volume).unwrap();
            files(&input, &volume).map(|files| {
                let show = |(path, c): (&String, &Content)| {
                    format!("{path}={}:{:o}", String::from_utf8_lossy(&c.bytes), c.mode)
                };
                files.iter().map(show).collect::<Vec<_>>().join(" ")
            })
        };
        let rows = [
            (json!({"name": "v", "secret": {"secretName": "s", "defaultMode": 256}}), "s=x:400"),
            (
                json!({"name": "v", "configMap": {"name": "m", "items": [{"key": "b", "path": "d/b", "mode": 384}]}}),
                "d/b=2:600",
            ),
            (json!({"name": "v", "configMap": {"name": "none", "optional": true}}), ""),
            (
                json!({"name": "v", "downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]}}),
                "n=p:644",
            ),
            (
                json!({"name": "v", "projected": {"sources": [{"configMap": {"name": "m", "items": [{"key": "a", "path": "a"}]}}, {"secret": {"name": "s"}}]}}),
                "a=1:644 s=x:644",
            ),
            (
                json!({"name": "v", "projected": {"sources": [
                    {"serviceAccountToken": {"path": "t", "audience": "vault"}}]}}),
                "t=abc:644",
            ),
            (
                json!({"name": "v", "projected": {"sources": [
                    {"podCertificate": {"signerName": "a/b", "keyType": "ED25519", "credentialBundlePath": "all",
                        "keyPath": "k", "certificateChainPath": "c"}},
                    {"clusterTrustBundle": {"name": "n", "path": "ca"}}]}}),
                "all=KEYCHAIN:644 c=CHAIN:644 ca=trust:644 k=KEY:644",
            ),
        ];
        for (volume, expected) in rows {
            assert_eq!(get(volume.clone()).unwrap(), expected, "{volume}");
        }
        let mut private = pod.clone();
        private.spec = serde_json::from_value(json!({"securityContext": {"runAsUser": 7},
            "containers": [{"name": "a"}, {"name": "b", "securityContext": {"runAsUser": 7}}]}))
        .unwrap();
        assert_eq!(one_user(&private), Some(7));
        let wanted = serde_json::from_value(json!({"path": "t", "audience": "vault"})).unwrap();
        let mut made = Files::new();
        token(&PayloadInput { pod: &private, ..input }, &wanted, 0o644, &mut made).unwrap();
        assert_eq!((made["t"].mode, made["t"].owner), (0o600, Some(7)), "its user's alone");
        let error = get(json!({"name": "v", "configMap": {"name": "none"}})).unwrap_err();
        assert_eq!(error.to_string(), "configmap \"none\" not found");
        assert!(
            get(json!({"name": "v", "configMap": {"name": "m", "items": [{"key": "x", "path": "x"}]}}))
                .is_err()
        );
    }
}
