//! From a claim to its PV, from an inline volume to its driver, and the wait for an attachment.

use std::collections::BTreeMap;
use std::time::Duration;

use tracing::field::Empty;
use trine_typed::k8s_openapi::api::core::v1::{
    CSIVolumeSource, Node, PersistentVolume, PersistentVolumeClaim, Pod, Secret, SecretReference, Volume,
};
use trine_typed::k8s_openapi::api::storage::v1::{CSIDriver, CSIDriverSpec, VolumeAttachment};
use trine_typed::kube::{Api, Client};
use trine_typed::pods::{claim_name, is_made_for, not_made_for};

use super::model::Resolved;
use super::tokens::Wish;
use super::{paths, source};
use crate::error::{KubeletError, api};
use crate::node::NodeStatusManager;
use crate::pod::spec;

/// How long one look for an attachment goes on.
const ATTACH_LOOK: Duration = Duration::from_secs(60);
/// First and longest pause between two looks; this is on the way of every Pod with a volume.
const ATTACH_PAUSE: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(50));

/// Finds the PV of a Pod's volume, or the driver of an inline one.
///
/// # Errors
/// [`KubeletError::NotYet`] while the claim is not bound; [`KubeletError::Invalid`] if it cannot be used.
pub async fn resolve(client: &Client, pod: &Pod, volume: &Volume) -> Result<Resolved, KubeletError> {
    if let Some(inline) = &volume.csi {
        let drivers: Api<CSIDriver> = Api::all(client.clone());
        let info = api("get CSIDriver", &inline.driver, drivers.get_opt(&inline.driver)).await?;
        return describe_inline(pod, &volume.name, inline, info.as_ref().map(|d| &d.spec))
            .map_err(KubeletError::Invalid);
    }
    let namespace = spec::namespace(pod);
    let name = claim_name(pod, volume).unwrap_or_default();
    let key = format!("{namespace}/{name}");
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    let not_yet = |text: &str| KubeletError::NotYet(format!("error processing PVC {key}: {text}"));
    let claim = api("get PersistentVolumeClaim", &key, claims.get_opt(&name)).await?;
    let claim = claim.ok_or_else(|| not_yet("failed to fetch PVC from API server: not found"))?;
    if claim.metadata.deletion_timestamp.is_some() {
        return Err(not_yet("PVC is being deleted"));
    }
    if volume.ephemeral.is_some() && !is_made_for(&claim.metadata, pod) {
        return Err(KubeletError::Invalid(not_made_for(&claim, pod)));
    }
    let bound = claim.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Bound");
    let pv_name = claim.spec.as_ref().and_then(|s| s.volume_name.clone()).filter(|v| bound && !v.is_empty());
    let pv_name = pv_name.ok_or_else(|| not_yet("PVC is not bound"))?;
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let pv = api("get PersistentVolume", &pv_name, volumes.get(&pv_name)).await?;
    let claimed = pv.spec.as_ref().and_then(|s| s.claim_ref.as_ref()).and_then(|r| r.uid.as_ref());
    if claimed != claim.metadata.uid.as_ref() {
        return Err(not_yet(&format!("PV {pv_name} is bound to another claim")));
    }
    let driver = pv.spec.as_ref().and_then(|s| s.csi.as_ref()).map(|c| c.driver.clone());
    let driver = driver.ok_or_else(|| {
        KubeletError::Invalid(format!("PV {pv_name} is of a kind that this kubelet does not mount: only CSI"))
    })?;
    let drivers: Api<CSIDriver> = Api::all(client.clone());
    let info = api("get CSIDriver", &driver, drivers.get_opt(&driver)).await?;
    let read_only = volume.persistent_volume_claim.as_ref().and_then(|c| c.read_only).unwrap_or_default();
    let resolved = describe(&pv, &key, info.as_ref(), read_only);
    if resolved.block != source::as_device(pod, &volume.name) {
        let mode = if resolved.block { "Block" } else { "Filesystem" };
        return Err(KubeletError::Invalid(format!(
            "volume {} has volumeMode {mode}, but the pod uses it as the other kind",
            volume.name
        )));
    }
    Ok(resolved)
}

fn reference(secret: Option<&SecretReference>) -> Option<(String, String)> {
    let secret = secret?;
    Some((secret.namespace.clone().unwrap_or_default(), secret.name.clone().filter(|n| !n.is_empty())?))
}

fn describe(pv: &PersistentVolume, claim: &str, driver: Option<&CSIDriver>, read_only: bool) -> Resolved {
    let spec = pv.spec.clone().unwrap_or_default();
    let csi = spec.csi.unwrap_or_default();
    let info = driver.map(|d| &d.spec);
    Resolved {
        pv: pv.metadata.name.clone().unwrap_or_default(),
        claim: claim.to_owned(),
        fs_type: csi.fs_type.clone().unwrap_or_default(),
        access_modes: spec.access_modes.unwrap_or_default(),
        read_only: read_only || csi.read_only.unwrap_or_default(),
        attributes: csi.volume_attributes.clone().unwrap_or_default(),
        mount_options: spec.mount_options.unwrap_or_default(),
        block: spec.volume_mode.as_deref() == Some("Block"),
        stage_secret: reference(csi.node_stage_secret_ref.as_ref()),
        publish_secret: reference(csi.node_publish_secret_ref.as_ref()),
        driver: csi.driver,
        handle: csi.volume_handle,
        // A driver that says nothing of itself is attached, as upstream.
        attach: info.and_then(|i| i.attach_required).unwrap_or(true),
        fs_group_policy: info.and_then(|i| i.fs_group_policy.clone()).unwrap_or_default(),
        pod_info: info.and_then(|i| i.pod_info_on_mount).unwrap_or_default(),
        inline: false,
        tokens: tokens(info),
        tokens_in_secrets: info.and_then(|i| i.service_account_token_in_secrets).unwrap_or_default(),
        republish: info.and_then(|i| i.requires_republish).unwrap_or_default(),
    }
}

/// What a driver wants to have of the Pod's ServiceAccount.
fn tokens(driver: Option<&CSIDriverSpec>) -> Vec<Wish> {
    let wanted = driver.and_then(|d| d.token_requests.as_ref()).into_iter().flatten();
    wanted.map(|t| super::tokens::wish_for(&t.audience, t.expiration_seconds)).collect()
}

/// An inline volume. Its driver has to say that it takes such volumes: another one would be given a handle that it never made.
fn describe_inline(
    pod: &Pod,
    name: &str,
    inline: &CSIVolumeSource,
    driver: Option<&CSIDriverSpec>,
) -> Result<Resolved, String> {
    let modes = driver.and_then(|d| d.volume_lifecycle_modes.clone());
    let modes = modes.unwrap_or_else(|| vec!["Persistent".to_owned()]);
    if !modes.iter().any(|mode| mode == "Ephemeral") {
        let why = if driver.is_some() {
            format!("only supports {modes:?}")
        } else {
            "no CSIDriver object".to_owned()
        };
        return Err(format!("volume mode \"Ephemeral\" not supported by driver {} ({why})", inline.driver));
    }
    let secret = inline.node_publish_secret_ref.as_ref().filter(|s| !s.name.is_empty());
    Ok(Resolved {
        pv: name.to_owned(),
        driver: inline.driver.clone(),
        handle: paths::inline_handle(spec::uid(pod), name),
        fs_type: inline.fs_type.clone().unwrap_or_default(),
        // As upstream: one node, which fsGroup and the driver's access mode go by.
        access_modes: vec!["ReadWriteOnce".to_owned()],
        read_only: inline.read_only.unwrap_or_default(),
        attributes: inline.volume_attributes.clone().unwrap_or_default(),
        publish_secret: secret.map(|s| (spec::namespace(pod).to_owned(), s.name.clone())),
        fs_group_policy: driver.and_then(|d| d.fs_group_policy.clone()).unwrap_or_default(),
        pod_info: driver.and_then(|d| d.pod_info_on_mount).unwrap_or_default(),
        inline: true,
        tokens: tokens(driver),
        tokens_in_secrets: driver.and_then(|d| d.service_account_token_in_secrets).unwrap_or_default(),
        republish: driver.and_then(|d| d.requires_republish).unwrap_or_default(),
        ..Resolved::default()
    })
}

/// The data of a Secret that a driver needs.
///
/// # Errors
/// [`KubeletError::Api`].
pub async fn secret(
    client: &Client,
    reference: Option<&(String, String)>,
) -> Result<BTreeMap<String, String>, KubeletError> {
    let Some((namespace, name)) = reference else { return Ok(BTreeMap::new()) };
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let found = api("get Secret", &format!("{namespace}/{name}"), secrets.get(name)).await?;
    let text = |value: Vec<u8>| String::from_utf8_lossy(&value).into_owned();
    Ok(found.data.unwrap_or_default().into_iter().map(|(k, v)| (k, text(v.0))).collect())
}

/// Whether the Node's status names the volume as attached.
fn listed(node: &Node, unique: &str) -> bool {
    node.status.iter().flat_map(|s| s.volumes_attached.iter().flatten()).any(|v| v.name == unique)
}

/// Waits until the volume is attached to this node, and returns what the attacher said of it. First the
/// Node's status says that the volume is in use, so that nobody detaches it from then on.
///
/// # Errors
/// [`KubeletError::NotYet`] when the look was in vain; [`KubeletError::Invalid`] with the attacher's error.
pub async fn wait_for_attach(
    client: &Client,
    node: &NodeStatusManager,
    node_name: &str,
    volume: &Resolved,
    pod: (&str, &str),
) -> Result<BTreeMap<String, String>, KubeletError> {
    let unique = paths::unique(&volume.driver, &volume.handle);
    let name = paths::attachment(&volume.handle, &volume.driver, node_name);
    let attachments: Api<VolumeAttachment> = Api::all(client.clone());
    let span = tracing::info_span!(target: "trine::step", "WaitForAttach", plane = "kubelet", pod = pod.0,
        pod_uid = pod.1, volume = %volume.pv, claim = %volume.claim, error = Empty);
    let mut pause = ATTACH_PAUSE.0;
    let looks = async {
        loop {
            let seen = node.reported_in_use(&unique).await?;
            let attachment = match api("get VolumeAttachment", &name, attachments.get_opt(&name)).await {
                // A node may see the attachments of its own volumes, and one that is not there is nobody's.
                Err(error) if error.api_code() == Some(403) => None,
                found => found?,
            };
            let status = attachment.as_ref().and_then(|a| a.status.as_ref());
            let dying = attachment.as_ref().is_some_and(|a| a.metadata.deletion_timestamp.is_some());
            if let Some(status) = status.filter(|s| s.attached && !dying)
                && listed(&seen, &unique)
            {
                return Ok(status.attachment_metadata.clone().unwrap_or_default());
            }
            if let Some(error) = status.and_then(|s| s.attach_error.as_ref()) {
                return Err(KubeletError::Invalid(error.message.clone().unwrap_or_default()));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(ATTACH_PAUSE.1);
        }
    };
    let looked = async {
        tokio::time::timeout(ATTACH_LOOK, looks).await.unwrap_or_else(|_| {
            Err(KubeletError::NotYet(format!("volume attachment {name} is not attached yet")))
        })
    };
    crate::step::traced(span, looked).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_inline_volume_is_taken_by_a_driver_that_says_so_and_by_no_other() {
        let pod: Pod =
            serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u"}}))
                .unwrap();
        let inline: CSIVolumeSource = serde_json::from_value(json!({
            "driver": "d", "fsType": "xfs", "readOnly": true, "volumeAttributes": {"size": "1Mi"},
            "nodePublishSecretRef": {"name": "s"}}))
        .unwrap();
        let of = |spec: serde_json::Value| serde_json::from_value::<CSIDriverSpec>(spec).unwrap();
        let willing = of(json!({"volumeLifecycleModes": ["Persistent", "Ephemeral"], "podInfoOnMount": true,
            "requiresRepublish": true, "tokenRequests": [{"audience": "a", "expirationSeconds": 700}]}));
        let volume = describe_inline(&pod, "v", &inline, Some(&willing)).unwrap();
        assert_eq!(volume.handle, paths::inline_handle("u", "v"));
        assert_eq!(volume.publish_secret, Some(("ns".to_owned(), "s".to_owned())));
        assert_eq!(volume.tokens, [("a".to_owned(), 700)]);
        assert!(volume.inline && volume.pod_info && volume.republish && volume.read_only && !volume.attach);
        let refused =
            |driver: Option<&CSIDriverSpec>| describe_inline(&pod, "v", &inline, driver).unwrap_err();
        assert_eq!(
            refused(Some(&of(json!({})))),
            "volume mode \"Ephemeral\" not supported by driver d (only supports [\"Persistent\"])"
        );
        assert_eq!(
            refused(None),
            "volume mode \"Ephemeral\" not supported by driver d (no CSIDriver object)"
        );
    }
}
