//! What the cluster is told of a driver on this node: its entry in CSINode, topology labels and the node id.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use tokio::sync::Mutex;
use trine_typed::k8s_openapi::api::core::v1::Node;
use trine_typed::k8s_openapi::api::storage::v1::{CSINode, CSINodeDriver, CSINodeSpec, VolumeNodeResources};
use trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use trine_typed::kube::api::{Patch, PatchParams, PostParams};
use trine_typed::kube::{Api, Client};

use crate::error::{KubeletError, api};

/// Annotation of the Node: JSON of driver name to node id.
pub const NODE_ID: &str = "csi.volume.kubernetes.io/nodeid";
/// Attempts when others write at the same time.
const ATTEMPTS: u32 = 10;

/// What a driver says of this node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeEntry {
    /// The driver's name.
    pub driver: String,
    /// The driver's name for this node.
    pub node_id: String,
    /// Topology segments.
    pub topology: BTreeMap<String, String>,
    /// Volumes that fit on it; 0 is no limit.
    pub max_volumes: i64,
}

/// Writes to the cluster, one driver at a time.
pub struct Cluster {
    client: Client,
    node: String,
    node_uid: String,
    turn: Mutex<()>,
}

/// The drivers of a CSINode with `entry` in place of an older one of its name.
#[must_use]
pub fn with_entry(drivers: &[CSINodeDriver], entry: &NodeEntry) -> Vec<CSINodeDriver> {
    let mut drivers: Vec<_> = drivers.iter().filter(|d| d.name != entry.driver).cloned().collect();
    let count = i32::try_from(entry.max_volumes).unwrap_or(i32::MAX);
    drivers.push(CSINodeDriver {
        name: entry.driver.clone(),
        node_id: entry.node_id.clone(),
        topology_keys: Some(entry.topology.keys().cloned().collect()),
        allocatable: (count > 0).then_some(VolumeNodeResources { count: Some(count) }),
    });
    drivers
}

impl Cluster {
    /// For the node `node`.
    #[must_use]
    pub fn new(client: Client, node: String, node_uid: String) -> Self {
        Self { client, node, node_uid, turn: Mutex::default() }
    }

    /// Says that a driver is here.
    ///
    /// # Errors
    /// [`KubeletError::Invalid`] if a topology label has another value already; [`KubeletError::Api`].
    pub async fn add(&self, entry: &NodeEntry) -> Result<(), KubeletError> {
        let _turn = self.turn.lock().await;
        self.label(entry).await?;
        self.change(|drivers| with_entry(drivers, entry)).await
    }

    /// Says that a driver is gone.
    ///
    /// # Errors
    /// [`KubeletError::Api`].
    pub async fn remove(&self, driver: &str) -> Result<(), KubeletError> {
        let _turn = self.turn.lock().await;
        self.change(|drivers| drivers.iter().filter(|d| d.name != driver).cloned().collect()).await
    }

    async fn label(&self, entry: &NodeEntry) -> Result<(), KubeletError> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let node = api("get Node", &self.node, nodes.get(&self.node)).await?;
        let labels = node.metadata.labels.unwrap_or_default();
        for (key, value) in &entry.topology {
            if let Some(old) = labels.get(key).filter(|old| *old != value) {
                return Err(KubeletError::Invalid(format!(
                    "detected topology value collision: driver reported {key:?}:{value:?} but existing label is {key:?}:{old:?}"
                )));
            }
        }
        let old = node.metadata.annotations.as_ref().and_then(|a| a.get(NODE_ID));
        let mut ids: BTreeMap<String, String> =
            old.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        let known = ids.insert(entry.driver.clone(), entry.node_id.clone());
        let labelled = entry.topology.iter().all(|(key, value)| labels.get(key) == Some(value));
        if known.as_ref() == Some(&entry.node_id) && labelled {
            return Ok(());
        }
        let ids = serde_json::to_string(&ids).unwrap_or_default();
        let patch = json!({"metadata": {"labels": entry.topology, "annotations": {NODE_ID: ids}}});
        let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
        let patched = nodes.patch(&self.node, &params, &patch);
        api("patch Node", &self.node, patched).await.map(drop)
    }

    async fn change(
        &self,
        change: impl Fn(&[CSINodeDriver]) -> Vec<CSINodeDriver>,
    ) -> Result<(), KubeletError> {
        let csi_nodes: Api<CSINode> = Api::all(self.client.clone());
        let mut attempt = 0;
        loop {
            attempt += 1;
            let done = match api("get CSINode", &self.node, csi_nodes.get_opt(&self.node)).await? {
                Some(mut found) => {
                    let drivers = change(&found.spec.drivers);
                    if drivers == found.spec.drivers {
                        return Ok(());
                    }
                    found.spec.drivers = drivers;
                    let params = PostParams::default();
                    let replaced = csi_nodes.replace(&self.node, &params, &found);
                    api("update CSINode", &self.node, replaced).await
                }
                None => {
                    let fresh = self.fresh(change(&[]));
                    api("create CSINode", &self.node, csi_nodes.create(&PostParams::default(), &fresh)).await
                }
            };
            match done {
                Err(error) if error.api_code() == Some(409) && attempt < ATTEMPTS => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                other => return other.map(drop),
            }
        }
    }

    fn fresh(&self, drivers: Vec<CSINodeDriver>) -> CSINode {
        CSINode {
            metadata: ObjectMeta {
                name: Some(self.node.clone()),
                owner_references: Some(vec![OwnerReference {
                    api_version: "v1".into(),
                    kind: "Node".into(),
                    name: self.node.clone(),
                    uid: self.node_uid.clone(),
                    ..Default::default()
                }]),
                ..Default::default()
            },
            spec: CSINodeSpec { drivers },
            ..Default::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_replaces_the_older_one_of_its_driver() {
        let entry = |driver: &str, id: &str, max| NodeEntry {
            driver: driver.into(),
            node_id: id.into(),
            topology: BTreeMap::from([("zone".to_owned(), "a".to_owned())]),
            max_volumes: max,
        };
        let first = with_entry(&[], &entry("d", "1", 0));
        assert_eq!(first[0].allocatable, None);
        let second = with_entry(&with_entry(&first, &entry("e", "x", 0)), &entry("d", "2", 5));
        assert_eq!(
            second.iter().map(|d| (d.name.as_str(), d.node_id.as_str())).collect::<Vec<_>>(),
            [("e", "x"), ("d", "2")]
        );
        assert_eq!(second[1].allocatable.as_ref().unwrap().count, Some(5));
        assert_eq!(second[1].topology_keys.as_deref(), Some(["zone".to_owned()].as_slice()));
    }
}
