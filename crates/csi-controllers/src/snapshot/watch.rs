//! What the snapshotter watches, and what follows.

use std::sync::Arc;

use trine_typed::k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};

use super::act;
use super::kinds::{VolumeSnapshot, VolumeSnapshotClass, VolumeSnapshotContent};
use super::plan::{World, plan};
use crate::provision::plan::Me;
use crate::run::Cx;
use crate::watch::by_name;

/// Takes and deletes snapshots until the stop.
pub(crate) async fn run(cx: Cx) {
    if !cx.offers.snapshot || !cx.defined(|| known(&cx)).await {
        return;
    }
    let changed = Arc::default();
    let snapshots = cx.mirror::<VolumeSnapshot>(&changed);
    let contents = cx.mirror::<VolumeSnapshotContent>(&changed);
    let classes = cx.mirror::<VolumeSnapshotClass>(&changed);
    let claims = cx.mirror::<PersistentVolumeClaim>(&changed);
    let volumes = cx.mirror::<PersistentVolume>(&changed);
    let nodes = cx.mirror::<Node>(&changed);
    let ready = async {
        tokio::join!(snapshots.ready(), contents.ready(), classes.ready());
        tokio::join!(claims.ready(), volumes.ready(), nodes.ready())
    };
    let me = Me { driver: cx.offers.name.clone(), node: cx.config.node_name.clone() };
    let due = || {
        let world = World {
            snapshots: snapshots.all(),
            contents: by_name(contents.all()),
            classes: by_name(classes.all()),
            claims: claims.all(),
            volumes: by_name(volumes.all()),
            nodes: by_name(nodes.all()),
        };
        let actions = plan(&world, &me).into_iter();
        actions.map(|action| (action.key(), act::act(cx.clone(), action))).collect()
    };
    cx.follow(changed, ready, due).await;
}

async fn known(cx: &Cx) -> bool {
    let (snapshots, contents, classes) = tokio::join!(
        cx.knows::<VolumeSnapshot>(),
        cx.knows::<VolumeSnapshotContent>(),
        cx.knows::<VolumeSnapshotClass>()
    );
    snapshots && contents && classes
}
