//! The loop: live copies in, acts out.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use trine_typed::k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use trine_typed::k8s_openapi::api::storage::v1::VolumeAttributesClass;
use trine_typed::kube::runtime::watcher;
use trine_typed::kube::{Api, ResourceExt};
use trine_typed::mirror::Mirror;

use super::act;
use super::plan::{Action, Me, World, plan};
use crate::run::Cx;
use crate::work::Work;

/// The longest pause between two looks, change or not.
const PERIOD: Duration = Duration::from_secs(60);

/// Makes volumes larger, and changes them, until the stop.
pub(crate) async fn run(cx: Cx) {
    let me = Me {
        driver: cx.offers.name.clone(),
        node: cx.config.node_name.clone(),
        expands: cx.offers.expand,
        modifies: cx.offers.modify,
    };
    if !me.expands && !me.modifies {
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
    let (claims, volumes) = (mirror!(PersistentVolumeClaim), mirror!(PersistentVolume));
    let nodes = mirror!(Node);
    // Not every cluster has them, and not every driver knows what to do about them.
    let classes = me.modifies.then(|| mirror!(VolumeAttributesClass));
    let ready = async {
        tokio::join!(claims.ready(), volumes.ready(), nodes.ready());
        if let Some(classes) = &classes {
            classes.ready().await;
        }
    };
    tokio::select! {
        () = cx.stop.cancelled() => return,
        () = ready => {}
    }
    let work = Work::new(Arc::clone(&changed));
    loop {
        let world = World {
            claims: claims.all(),
            volumes: volumes.all().into_iter().map(|v| (v.name_any(), v)).collect(),
            nodes: nodes.all().into_iter().map(|n| (n.name_any(), n)).collect(),
            classes: classes.iter().flat_map(Mirror::all).map(|c| (c.name_any(), c)).collect(),
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
