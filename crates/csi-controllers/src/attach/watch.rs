//! What the attacher watches, and what follows.

use std::sync::Arc;

use trine_typed::k8s_openapi::api::core::v1::PersistentVolume;
use trine_typed::k8s_openapi::api::storage::v1::{CSINode, VolumeAttachment};

use super::act;
use super::plan::{Me, World, plan};
use crate::run::Cx;
use crate::watch::by_name;

/// Attaches and detaches until the stop.
pub(crate) async fn run(cx: Cx) {
    let changed = Arc::default();
    let attachments = cx.mirror::<VolumeAttachment>(&changed);
    let volumes = cx.mirror::<PersistentVolume>(&changed);
    let csi_nodes = cx.mirror::<CSINode>(&changed);
    let ready = async { tokio::join!(attachments.ready(), volumes.ready(), csi_nodes.ready()) };
    let me = Me {
        driver: cx.offers.name.clone(),
        node: cx.config.node_name.clone(),
        publishes: cx.offers.publish,
    };
    let due = || {
        let world = World {
            attachments: attachments.all(),
            volumes: by_name(volumes.all()),
            csi_nodes: by_name(csi_nodes.all()),
        };
        let actions = plan(&world, &me).into_iter();
        actions.map(|action| (action.key(), act::act(cx.clone(), action))).collect()
    };
    cx.follow(changed, ready, due).await;
}
