//! The loop: live copies in, acts out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use trine_typed::k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use trine_typed::k8s_openapi::api::storage::v1::{CSINode, StorageClass, VolumeAttachment};
use trine_typed::kube::runtime::watcher;
use trine_typed::kube::{Api, ResourceExt};
use trine_typed::mirror::Mirror;

use super::act;
use super::plan::{Action, Me, World, plan};
use crate::run::Cx;
use crate::work::Work;

/// The longest pause between two looks, change or not.
const PERIOD: Duration = Duration::from_secs(60);

struct Mirrors {
    claims: Mirror<PersistentVolumeClaim>,
    classes: Mirror<StorageClass>,
    volumes: Mirror<PersistentVolume>,
    nodes: Mirror<Node>,
    csi_nodes: Mirror<CSINode>,
    attachments: Mirror<VolumeAttachment>,
}

impl Mirrors {
    fn start(cx: &Cx, changed: &Arc<Notify>) -> Self {
        macro_rules! mirror {
            () => {
                Mirror::start(
                    Api::all(cx.client.clone()),
                    watcher::Config::default(),
                    Arc::clone(changed),
                    cx.stop.clone(),
                )
            };
        }
        Self {
            claims: mirror!(),
            classes: mirror!(),
            volumes: mirror!(),
            nodes: mirror!(),
            csi_nodes: mirror!(),
            attachments: mirror!(),
        }
    }

    async fn ready(&self) {
        tokio::join!(
            self.claims.ready(),
            self.classes.ready(),
            self.volumes.ready(),
            self.nodes.ready(),
            self.csi_nodes.ready(),
            self.attachments.ready(),
        );
    }

    fn world(&self) -> World {
        World {
            claims: self.claims.all(),
            classes: by_name(self.classes.all()),
            volumes: by_name(self.volumes.all()),
            nodes: by_name(self.nodes.all()),
            csi_nodes: by_name(self.csi_nodes.all()),
            attachments: self.attachments.all(),
        }
    }
}

fn by_name<K: ResourceExt>(objects: Vec<Arc<K>>) -> BTreeMap<String, Arc<K>> {
    objects.into_iter().map(|object| (object.name_any(), object)).collect()
}

/// Provisions and reclaims until the stop.
pub(crate) async fn run(cx: Cx) {
    if !cx.offers.create {
        return;
    }
    let changed = Arc::new(Notify::new());
    let mirrors = Mirrors::start(&cx, &changed);
    tokio::select! {
        () = cx.stop.cancelled() => return,
        () = mirrors.ready() => {}
    }
    let me = Me { driver: cx.offers.name.clone(), node: cx.config.node_name.clone() };
    let work = Work::new(Arc::clone(&changed));
    loop {
        let world = Arc::new(mirrors.world());
        let actions = plan(&world, &me);
        let keys: BTreeSet<String> = actions.iter().map(Action::key).collect();
        work.keep(|key| keys.contains(key));
        for action in actions {
            work.start(&action.key(), act::act(cx.clone(), Arc::clone(&world), action.clone()));
        }
        let pause = work.next_due(Instant::now()).unwrap_or(PERIOD).clamp(Duration::from_millis(5), PERIOD);
        tokio::select! {
            () = cx.stop.cancelled() => return,
            () = changed.notified() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}
