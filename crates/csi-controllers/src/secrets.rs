//! Secrets that classes name for drivers: by templates that speak of the object in question.

use std::collections::{BTreeMap, HashMap};

use tonic::Status;
use trine_typed::k8s_openapi::api::core::v1::{PersistentVolumeClaim, Secret};
use trine_typed::kube::{Api, Client};

use crate::group::kinds::VolumeGroupSnapshotContent;
use crate::grpc::CallError;
use crate::snapshot::kinds::{VolumeSnapshot, VolumeSnapshotContent};

/// Parameters under this prefix are for the controllers, not for the driver.
const PREFIX: &str = "csi.storage.k8s.io/";

/// For which calls a secret is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// CreateVolume and DeleteVolume.
    Provision,
    /// ControllerPublishVolume.
    ControllerPublish,
    /// NodeStageVolume.
    NodeStage,
    /// NodePublishVolume.
    NodePublish,
    /// ControllerExpandVolume.
    ControllerExpand,
    /// NodeExpandVolume.
    NodeExpand,
    /// CreateSnapshot and DeleteSnapshot.
    Snapshot,
    /// CreateVolumeGroupSnapshot and DeleteVolumeGroupSnapshot.
    GroupSnapshot,
}

impl Purpose {
    /// The parameters' words.
    fn words(self) -> &'static str {
        match self {
            Self::Provision => "provisioner",
            Self::ControllerPublish => "controller-publish",
            Self::NodeStage => "node-stage",
            Self::NodePublish => "node-publish",
            Self::ControllerExpand => "controller-expand",
            Self::NodeExpand => "node-expand",
            Self::Snapshot => "snapshotter",
            Self::GroupSnapshot => "group-snapshotter",
        }
    }
}

/// What templates may speak of.
#[derive(Debug, Clone, Default)]
pub struct Of(BTreeMap<String, String>);

impl Of {
    /// A claim, and the name of its volume.
    #[must_use]
    pub fn claim(claim: &PersistentVolumeClaim, volume: &str) -> Self {
        let mut words = Self::default();
        words.say("pvc.name", claim.metadata.name.as_ref());
        words.say("pvc.namespace", claim.metadata.namespace.as_ref());
        words.say("pv.name", Some(&volume.to_owned()));
        for (key, value) in claim.metadata.annotations.iter().flatten() {
            words.say(&format!("pvc.annotations['{key}']"), Some(value));
        }
        words
    }

    /// A snapshot.
    #[must_use]
    pub fn snapshot(snapshot: &VolumeSnapshot) -> Self {
        let mut words = Self::default();
        words.say("volumesnapshot.name", snapshot.metadata.name.as_ref());
        words.say("volumesnapshot.namespace", snapshot.metadata.namespace.as_ref());
        words.say("volumesnapshotcontent.name", Some(&crate::snapshot::plan::content_name(snapshot)));
        words
    }

    /// A content, by the snapshot that it is for.
    #[must_use]
    pub fn content(content: &VolumeSnapshotContent) -> Self {
        let mut words = Self::default();
        let reference = &content.spec.volume_snapshot_ref;
        words.say("volumesnapshot.name", reference.name.as_ref());
        words.say("volumesnapshot.namespace", reference.namespace.as_ref());
        words.say("volumesnapshotcontent.name", content.metadata.name.as_ref());
        words
    }

    /// A group's content, by the group that it is for.
    #[must_use]
    pub fn group(content: &VolumeGroupSnapshotContent) -> Self {
        let mut words = Self::default();
        let reference = &content.spec.volume_group_snapshot_ref;
        words.say("volumegroupsnapshot.name", reference.name.as_ref());
        words.say("volumegroupsnapshot.namespace", reference.namespace.as_ref());
        words.say("volumegroupsnapshotcontent.name", content.metadata.name.as_ref());
        words
    }

    fn say(&mut self, key: &str, value: Option<&String>) {
        if let Some(value) = value {
            self.0.insert(format!("${{{key}}}"), value.clone());
        }
    }

    fn resolve(&self, template: &str) -> String {
        self.0.iter().fold(template.to_owned(), |text, (word, value)| text.replace(word, value))
    }
}

/// Name and namespace of the secret that a class names for a purpose, if it does.
#[must_use]
pub fn named(
    parameters: Option<&BTreeMap<String, String>>,
    purpose: Purpose,
    of: &Of,
) -> Option<(String, String)> {
    let words = purpose.words();
    let get = |part: &str| parameters?.get(&format!("{PREFIX}{words}-secret-{part}"));
    Some((of.resolve(get("name")?), of.resolve(get("namespace")?)))
}

/// The parameters that are the driver's own.
#[must_use]
pub fn without(parameters: Option<&BTreeMap<String, String>>) -> BTreeMap<String, String> {
    let all = parameters.into_iter().flatten();
    all.filter(|(key, _)| !key.starts_with(PREFIX)).map(|(k, v)| (k.clone(), v.clone())).collect()
}

/// The data of a secret; nothing if none is named.
///
/// # Errors
/// As a call that the driver would refuse for now: the secret may come.
pub async fn read(
    client: &Client,
    secret: Option<(String, String)>,
) -> Result<HashMap<String, String>, CallError> {
    let Some((name, namespace)) = secret else { return Ok(HashMap::new()) };
    let api: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    let found = api.get(&name).await.map_err(|error| {
        let text = format!("failed to get secret {namespace}/{name}: {error}");
        CallError::of("Secret", &Status::failed_precondition(text))
    })?;
    let text = |value: Vec<u8>| String::from_utf8_lossy(&value).into_owned();
    Ok(found.data.unwrap_or_default().into_iter().map(|(k, v)| (k, text(v.0))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn templates_speak_of_the_claim() {
        let claim: PersistentVolumeClaim = serde_json::from_value(
            json!({"metadata": {"name": "c", "namespace": "ns", "annotations": {"team": "blue"}}}),
        )
        .unwrap();
        let of = Of::claim(&claim, "pvc-1");
        let parameters = BTreeMap::from(
            [
                ("csi.storage.k8s.io/provisioner-secret-name", "${pvc.name}-${pvc.annotations['team']}"),
                ("csi.storage.k8s.io/provisioner-secret-namespace", "${pvc.namespace}"),
                ("csi.storage.k8s.io/node-stage-secret-name", "${pv.name}"),
                ("size", "large"),
            ]
            .map(|(k, v)| (k.to_owned(), v.to_owned())),
        );
        let secret = |purpose| named(Some(&parameters), purpose, &of);
        assert_eq!(secret(Purpose::Provision), Some(("c-blue".to_owned(), "ns".to_owned())));
        assert_eq!(secret(Purpose::NodeStage), None, "a name without a namespace names nothing");
        assert_eq!(without(Some(&parameters)), BTreeMap::from([("size".to_owned(), "large".to_owned())]));
    }
}
