//! The loop: live copies in, acts out.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use trine_typed::k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use trine_typed::kube::api::ListParams;
use trine_typed::kube::runtime::watcher;
use trine_typed::kube::{Api, ResourceExt};
use trine_typed::mirror::Mirror;

use super::act;
use super::kinds::{VolumeGroupSnapshot, VolumeGroupSnapshotClass, VolumeGroupSnapshotContent};
use super::plan::{Action, World, plan};
use crate::run::Cx;
use crate::snapshot::kinds::{VolumeSnapshot, VolumeSnapshotContent};
use crate::snapshot::plan::Me;
use crate::work::Work;

/// The longest pause between two looks, change or not.
const PERIOD: Duration = Duration::from_secs(60);
/// The pause between two looks for the kinds, in a cluster that does not know them.
const DEFINED: Duration = Duration::from_secs(5);

/// Takes and deletes groups of snapshots until the stop.
pub(crate) async fn run(cx: Cx) {
    if !cx.offers.group || !defined(&cx).await {
        return;
    }
    let changed = Arc::new(Notify::new());
    macro_rules! mirror {
        ($kind:ty) => {
            Mirror::<$kind>::start(
                Api::all(cx.client.clone()),
                watcher::Config::default(),
                Arc::clone(&changed),
                cx.stop.clone(),
            )
        };
    }
    let (groups, contents) = (mirror!(VolumeGroupSnapshot), mirror!(VolumeGroupSnapshotContent));
    let (classes, snapshots) = (mirror!(VolumeGroupSnapshotClass), mirror!(VolumeSnapshot));
    let (members, claims) = (mirror!(VolumeSnapshotContent), mirror!(PersistentVolumeClaim));
    let (volumes, nodes) = (mirror!(PersistentVolume), mirror!(Node));
    let ready = async {
        tokio::join!(groups.ready(), contents.ready(), classes.ready(), snapshots.ready());
        tokio::join!(members.ready(), claims.ready(), volumes.ready(), nodes.ready())
    };
    tokio::select! {
        () = cx.stop.cancelled() => return,
        _ = ready => {}
    }
    let me = Me { driver: cx.offers.name.clone(), node: cx.config.node_name.clone() };
    let work = Work::new(Arc::clone(&changed));
    loop {
        let world = World {
            groups: groups.all(),
            contents: contents.all().into_iter().map(|c| (c.name_any(), c)).collect(),
            classes: classes.all().into_iter().map(|c| (c.name_any(), c)).collect(),
            snapshots: snapshots.all(),
            members: members.all().into_iter().map(|c| (c.name_any(), c)).collect(),
            claims: claims.all(),
            volumes: volumes.all().into_iter().map(|v| (v.name_any(), v)).collect(),
            nodes: nodes.all().into_iter().map(|n| (n.name_any(), n)).collect(),
        };
        let actions = plan(&world, &me);
        let keys: BTreeSet<String> = actions.iter().map(Action::key).collect();
        work.keep(|key| keys.contains(key));
        for action in actions {
            work.start(&action.key(), act::act(cx.clone(), action.clone()));
        }
        let pause = work.next_due(Instant::now()).unwrap_or(PERIOD).clamp(Duration::from_millis(5), PERIOD);
        tokio::select! {
            () = cx.stop.cancelled() => return,
            () = changed.notified() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Waits until the cluster knows the kinds: they are no part of Kubernetes, and may be defined at any time.
async fn defined(cx: &Cx) -> bool {
    loop {
        let params = ListParams::default().limit(1);
        let groups = Api::<VolumeGroupSnapshot>::all(cx.client.clone());
        let contents = Api::<VolumeGroupSnapshotContent>::all(cx.client.clone());
        let classes = Api::<VolumeGroupSnapshotClass>::all(cx.client.clone());
        let snapshots = Api::<VolumeSnapshot>::all(cx.client.clone());
        let known = tokio::join!(
            groups.list(&params),
            contents.list(&params),
            classes.list(&params),
            snapshots.list(&params)
        );
        if let (Ok(_), Ok(_), Ok(_), Ok(_)) = known {
            return true;
        }
        tokio::select! {
            () = cx.stop.cancelled() => return false,
            () = tokio::time::sleep(DEFINED) => {}
        }
    }
}
