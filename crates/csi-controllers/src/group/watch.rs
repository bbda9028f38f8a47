//! What the controller of groups watches, and what follows.

use std::sync::Arc;

use trine_typed::k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};

use super::act;
use super::kinds::{VolumeGroupSnapshot, VolumeGroupSnapshotClass, VolumeGroupSnapshotContent};
use super::plan::{World, plan};
use crate::provision::plan::Me;
use crate::run::Cx;
use crate::snapshot::kinds::{VolumeSnapshot, VolumeSnapshotContent};
use crate::watch::by_name;

/// Takes and deletes groups of snapshots until the stop.
pub(crate) async fn run(cx: Cx) {
    if !cx.offers.group || !cx.defined(|| known(&cx)).await {
        return;
    }
    let changed = Arc::default();
    let groups = cx.mirror::<VolumeGroupSnapshot>(&changed);
    let contents = cx.mirror::<VolumeGroupSnapshotContent>(&changed);
    let classes = cx.mirror::<VolumeGroupSnapshotClass>(&changed);
    let snapshots = cx.mirror::<VolumeSnapshot>(&changed);
    let members = cx.mirror::<VolumeSnapshotContent>(&changed);
    let claims = cx.mirror::<PersistentVolumeClaim>(&changed);
    let volumes = cx.mirror::<PersistentVolume>(&changed);
    let nodes = cx.mirror::<Node>(&changed);
    let ready = async {
        tokio::join!(groups.ready(), contents.ready(), classes.ready(), snapshots.ready());
        tokio::join!(members.ready(), claims.ready(), volumes.ready(), nodes.ready())
    };
    let me = Me { driver: cx.offers.name.clone(), node: cx.config.node_name.clone() };
    let due = || {
        let world = World {
            groups: groups.all(),
            contents: by_name(contents.all()),
            classes: by_name(classes.all()),
            snapshots: snapshots.all(),
            members: by_name(members.all()),
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
    let (groups, contents, classes, snapshots) = tokio::join!(
        cx.knows::<VolumeGroupSnapshot>(),
        cx.knows::<VolumeGroupSnapshotContent>(),
        cx.knows::<VolumeGroupSnapshotClass>(),
        cx.knows::<VolumeSnapshot>()
    );
    groups && contents && classes && snapshots
}
