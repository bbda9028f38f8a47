//! Watches Nodes and the kernel, and keeps the executor going.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use trine_kernel::netlink::Cidrs;
use trine_typed::k8s_openapi::api::core::v1::Node;
use trine_typed::kube::runtime::watcher;
use trine_typed::kube::{Api, Client, ResourceExt};
use trine_typed::mirror::Mirror;
use trine_typed::nodes::pod_ranges;

use crate::act::{OverlayError, Synced, sync};
use crate::news::News;
use crate::plan::{By, Me, Peer};
use crate::trials::Trials;

/// How often the kernel is asked whether all is still there, whatever it told.
const VERIFY: Duration = Duration::from_secs(10);
/// How long to wait after a failure.
const RETRY: Duration = Duration::from_millis(500);
/// How long to wait for more of the kernel's news before it is acted upon.
const SETTLE: Duration = Duration::from_millis(30);

/// Who is told what this node's Pods are given.
#[derive(Debug, Clone)]
pub struct Told {
    /// This node's own Pod ranges.
    pub range: watch::Sender<Option<Cidrs>>,
    /// The MTU of Pods in bytes, if it is not the kernel's default.
    pub mtu: watch::Sender<Option<u32>>,
}

/// Watches and acts until told to stop. `told` hears of every change. The ways stay: see [`crate::cleanup`].
///
/// # Errors
/// [`OverlayError::Executor`]; what the kernel refuses is tried again.
pub async fn run(client: Client, me: Me, told: Told, stop: CancellationToken) -> Result<(), OverlayError> {
    let changed = Arc::new(Notify::new());
    // The copy ends with this call, also when it fails.
    let end = stop.child_token();
    let _guard = end.clone().drop_guard();
    let nodes: Mirror<Node> =
        Mirror::start(Api::all(client), watcher::Config::default(), changed.clone(), end);
    tokio::select! {
        () = stop.cancelled() => return Ok(()),
        () = nodes.ready() => {}
    }
    let news = News::listen();
    let trials = Trials::new(&me);
    let mut done: Option<Vec<Peer>> = None;
    let mut next = Instant::now();
    loop {
        let mut peers: Vec<Peer> = nodes.all().iter().map(|node| peer(node)).collect();
        peers.sort_by(|a, b| a.name.cmp(&b.name));
        if let Some(own) = peers.iter().find(|p| p.name == me.node)
            && let Some(ranges) = Cidrs::of(&own.ranges)
        {
            told.range.send_if_modified(|old| old.replace(ranges.clone()) != Some(ranges));
        }
        // A status that says nothing new of addresses is no reason to ask the kernel.
        if done.as_ref() != Some(&peers) || next <= Instant::now() {
            let pause = match turn(&me, &peers).await? {
                Some(synced) => {
                    let mtu = synced.plan.pod_mtu;
                    told.mtu.send_if_modified(|old| std::mem::replace(old, mtu) != mtu);
                    trials.begin(&synced);
                    news.watch(synced.watched);
                    VERIFY
                }
                None => RETRY,
            };
            (done, next) = (Some(peers), Instant::now() + pause);
        }
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = changed.notified() => {}
            () = news.concern() => next = next.min(Instant::now() + SETTLE),
            () = tokio::time::sleep_until(next) => {}
        }
    }
}

/// One pass; none if it failed.
async fn turn(me: &Me, peers: &[Peer]) -> Result<Option<Synced>, OverlayError> {
    let (me, peers) = (me.clone(), peers.to_vec());
    let result = tokio::task::spawn_blocking(move || sync(&me, &peers))
        .await
        .map_err(|e| OverlayError::Executor { message: e.to_string() })?;
    match result {
        Ok(synced) => {
            if synced.changed > 0 {
                let ways = &synced.plan.ways;
                let direct = ways.iter().filter(|way| matches!(way.by, By::Neighbour { .. })).count();
                let (changed, tunnelled) = (synced.changed, ways.len() - direct);
                tracing::info!(changed, direct, tunnelled, "ways to other nodes");
            }
            Ok(Some(synced))
        }
        Err(error) => {
            let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            tracing::warn!(%error, cause, "other nodes may not be reached");
            Ok(None)
        }
    }
}

fn peer(node: &Node) -> Peer {
    let addresses = node.status.as_ref().and_then(|s| s.addresses.as_ref()).into_iter().flatten();
    Peer {
        name: node.name_any(),
        addresses: addresses
            .filter(|a| a.type_ == "InternalIP")
            .filter_map(|a| a.address.parse().ok())
            .collect(),
        ranges: pod_ranges(node).iter().filter_map(|r| r.parse().ok()).collect(),
    }
}
