//! What the provisioner watches, and what follows.

use std::sync::Arc;

use trine_typed::k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use trine_typed::k8s_openapi::api::storage::v1::{CSINode, StorageClass, VolumeAttachment};

use super::act;
use super::plan::{Me, World, plan};
use crate::run::Cx;
use crate::watch::by_name;

/// Provisions and reclaims until the stop.
pub(crate) async fn run(cx: Cx) {
    if !cx.offers.create {
        return;
    }
    let changed = Arc::default();
    let claims = cx.mirror::<PersistentVolumeClaim>(&changed);
    let classes = cx.mirror::<StorageClass>(&changed);
    let volumes = cx.mirror::<PersistentVolume>(&changed);
    let nodes = cx.mirror::<Node>(&changed);
    let csi_nodes = cx.mirror::<CSINode>(&changed);
    let attachments = cx.mirror::<VolumeAttachment>(&changed);
    let ready = async {
        tokio::join!(claims.ready(), classes.ready(), volumes.ready());
        tokio::join!(nodes.ready(), csi_nodes.ready(), attachments.ready())
    };
    let me = Me { driver: cx.offers.name.clone(), node: cx.config.node_name.clone() };
    let due = || {
        let world = Arc::new(World {
            claims: claims.all(),
            classes: by_name(classes.all()),
            volumes: by_name(volumes.all()),
            nodes: by_name(nodes.all()),
            csi_nodes: by_name(csi_nodes.all()),
            attachments: attachments.all(),
        });
        let actions = plan(&world, &me).into_iter();
        actions.map(|action| (action.key(), act::act(cx.clone(), Arc::clone(&world), action))).collect()
    };
    cx.follow(changed, ready, due).await;
}
