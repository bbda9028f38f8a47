//! The loop: live copies in, acts out.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use trine_typed::k8s_openapi::api::core::v1::PersistentVolume;
use trine_typed::k8s_openapi::api::storage::v1::{CSINode, VolumeAttachment};
use trine_typed::kube::runtime::watcher;
use trine_typed::kube::{Api, ResourceExt};
use trine_typed::mirror::Mirror;

use super::act;
use super::plan::{Action, Me, World, plan};
use crate::run::Cx;
use crate::work::Work;

/// The longest pause between two looks, change or not.
const PERIOD: Duration = Duration::from_secs(60);

/// Attaches and detaches until the stop.
pub(crate) async fn run(cx: Cx) {
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
    let attachments = mirror!(VolumeAttachment);
    let volumes = mirror!(PersistentVolume);
    let csi_nodes = mirror!(CSINode);
    let ready = async { tokio::join!(attachments.ready(), volumes.ready(), csi_nodes.ready()) };
    tokio::select! {
        () = cx.stop.cancelled() => return,
        _ = ready => {}
    }
    let me = Me {
        driver: cx.offers.name.clone(),
        node: cx.config.node_name.clone(),
        publishes: cx.offers.publish,
    };
    let work = Work::new(Arc::clone(&changed));
    loop {
        let world = World {
            attachments: attachments.all(),
            volumes: volumes.all().into_iter().map(|v| (v.name_any(), v)).collect(),
            csi_nodes: csi_nodes.all().into_iter().map(|n| (n.name_any(), n)).collect(),
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
