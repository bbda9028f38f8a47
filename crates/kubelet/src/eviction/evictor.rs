//! The loop: Pods over their own limits leave; when the node is short of something, first images that nothing uses, then
//! one Pod after the other.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use trine_typed::event::Level;
use trine_typed::k8s_openapi::api::core::v1::Pod;
use trine_typed::mirror::Mirror;

use super::plan::{self, Eviction};
use super::pressure::Short;
use super::usage::{self, PodUse};
use super::{Signal, images};
use crate::error::KubeletError;
use crate::periodic::every;
use crate::pod::{Context, spec};
use crate::runtime::RunState;

/// How often it looks (upstream: `evictionMonitoringPeriod`).
const PERIOD: Duration = Duration::from_secs(10);
/// How long a Pod may take to leave before the next one has to (upstream: `podCleanupTimeout`).
const LEAVING: Duration = Duration::from_secs(30);
/// How often it is looked whether it has.
const LEFT: Duration = Duration::from_millis(200);

/// Evicts.
pub struct Evictor {
    ctx: Arc<Context>,
    pods: Mirror<Pod>,
}

impl Evictor {
    /// Of the Pods of `pods`.
    #[must_use]
    pub fn new(ctx: Arc<Context>, pods: Mirror<Pod>) -> Self {
        Self { ctx, pods }
    }

    /// Runs until told to stop.
    pub async fn run(self, stop: CancellationToken) {
        every(PERIOD, &stop, || async {
            if let Err(error) = self.turn().await {
                tracing::warn!(
                    plane = "kubelet",
                    error = error.chain(),
                    "not looked for Pods that have to leave"
                );
            }
        })
        .await;
    }

    async fn turn(&self) -> Result<(), KubeletError> {
        if self.end_who_is_over_a_limit().await? {
            return Ok(());
        }
        let (_, short) = self.ctx.pressures.look();
        let Some(short) = short.first() else { return Ok(()) };
        self.say(short.signal);
        if matches!(short.signal, Signal::Disk | Signal::Inodes) {
            let removed = images::remove_unused(&self.ctx.runtime, &self.active()).await?;
            tracing::info!(plane = "kubelet", removed, "images removed to gain room");
            let (_, still) = self.ctx.pressures.look();
            if still.iter().all(|s| s.signal != short.signal) {
                return Ok(());
            }
        }
        self.end_one_for(short).await
    }

    /// Pods that have not ended and need not.
    fn active(&self) -> Vec<Arc<Pod>> {
        let all = self.pods.all().into_iter();
        all.filter(|pod| !spec::ended(pod) && self.ctx.evictions.why(spec::uid(pod)).is_none()).collect()
    }

    async fn measure(&self, pods: Vec<Arc<Pod>>) -> Result<Vec<PodUse>, KubeletError> {
        let stats = self.ctx.runtime.container_stats().await?;
        let config = self.ctx.config.clone();
        let measured = tokio::task::spawn_blocking(move || usage::measure(&config, pods, &stats)).await;
        Ok(measured.unwrap_or_default())
    }

    /// True if somebody was.
    async fn end_who_is_over_a_limit(&self) -> Result<bool, KubeletError> {
        let limited: Vec<_> = self.active().into_iter().filter(|pod| plan::has_limits(pod)).collect();
        if limited.is_empty() {
            return Ok(false);
        }
        let evictions = plan::over_their_limits(&self.measure(limited).await?);
        evictions.iter().for_each(|eviction| self.evict(eviction));
        Ok(!evictions.is_empty())
    }

    async fn end_one_for(&self, short: &Short) -> Result<(), KubeletError> {
        let used = self.measure(self.active()).await?;
        let Some(eviction) = plan::first(short.signal, short.least, short.seen, &used) else {
            tracing::warn!(
                plane = "kubelet",
                signal = short.signal.name(),
                "short of it, and no Pod may be evicted"
            );
            return Ok(());
        };
        self.evict(&eviction);
        let leaving = async {
            while self.runs(&eviction.uid).await {
                tokio::time::sleep(LEFT).await;
            }
        };
        let _ = tokio::time::timeout(LEAVING, leaving).await;
        Ok(())
    }

    async fn runs(&self, uid: &str) -> bool {
        let observed = self.ctx.runtime.observe(uid).await;
        observed.is_ok_and(|seen| seen.containers.iter().any(|c| c.state == RunState::Running))
    }

    fn evict(&self, eviction: &Eviction) {
        if self.ctx.evictions.give(eviction) {
            tracing::warn!(
                plane = "kubelet",
                pod_uid = eviction.uid,
                why = eviction.message,
                "a Pod has to leave"
            );
            self.ctx.wakers.wake(&eviction.uid);
        }
    }

    fn say(&self, signal: Signal) {
        let text = format!("Attempting to reclaim {}", signal.resource());
        self.ctx.events.node(&self.ctx.config.node_name, Level::Warning, "EvictionThresholdMet", text);
    }
}
