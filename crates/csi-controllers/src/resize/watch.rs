//! What the resizer watches, and what follows.

use std::sync::Arc;

use trine_typed::k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use trine_typed::k8s_openapi::api::storage::v1::VolumeAttributesClass;
use trine_typed::mirror::Mirror;

use super::act;
use super::plan::{Me, World, plan};
use crate::run::Cx;
use crate::watch::by_name;

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
    let changed = Arc::default();
    let claims = cx.mirror::<PersistentVolumeClaim>(&changed);
    let volumes = cx.mirror::<PersistentVolume>(&changed);
    let nodes = cx.mirror::<Node>(&changed);
    // Not every cluster has them, and not every driver knows what to do about them.
    let classes = me.modifies.then(|| cx.mirror::<VolumeAttributesClass>(&changed));
    let ready = async {
        tokio::join!(claims.ready(), volumes.ready(), nodes.ready());
        if let Some(classes) = &classes {
            classes.ready().await;
        }
    };
    let due = || {
        let world = World {
            claims: claims.all(),
            volumes: by_name(volumes.all()),
            nodes: by_name(nodes.all()),
            classes: by_name(classes.iter().flat_map(Mirror::all).collect()),
        };
        let actions = plan(&world, &me).into_iter();
        actions.map(|action| (action.key(), act::act(cx.clone(), action))).collect()
    };
    cx.follow(changed, ready, due).await;
}
