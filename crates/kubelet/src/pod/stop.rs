//! Ending containers: the preStop hook first, then the signal, and the kill when the grace is over.

use std::time::Duration;

use futures::future::join_all;
use tokio::time::Instant;
use tracing::field::Empty;
use trine_typed::event::Level;
use trine_typed::k8s_openapi::api::core::v1::Pod;

use super::{Context, hooks, spec};
use crate::config::MINIMUM_GRACE;
use crate::error::KubeletError;
use crate::runtime::{ContainerView, Observed, RunState};
use crate::step::traced;

/// Ends one container within `grace` seconds and says why.
///
/// # Errors
/// [`KubeletError::Cri`].
pub async fn container(
    ctx: &Context,
    pod: &Pod,
    view: &ContainerView,
    ip: &str,
    grace: i64,
    why: &str,
) -> Result<(), KubeletError> {
    ctx.events.container(pod, &view.name, Level::Normal, "Killing", why);
    let started = Instant::now();
    if let Some(container) = spec::find(pod, &view.name)
        && let Some(hook) = container.lifecycle.as_ref().and_then(|l| l.pre_stop.as_ref())
        && grace > 0
        && view.state == RunState::Running
    {
        let deadline = Duration::from_secs(u64::try_from(grace).unwrap_or_default());
        if let Err(error) = hooks::run(ctx, hook, &container, &view.id, ip, deadline).await {
            let text = format!("PreStopHook failed: {}", error.chain());
            ctx.events.container(pod, &view.name, Level::Warning, "FailedPreStopHook", text);
        }
    }
    let used = i64::try_from(started.elapsed().as_secs()).unwrap_or(grace);
    let left = if grace == 0 { 0 } else { (grace - used).max(MINIMUM_GRACE) };
    let key = spec::key(pod);
    let span = tracing::info_span!(target: "trine::step", "StopContainer", plane = "kubelet", pod = %key,
        pod_uid = spec::uid(pod), container = %view.name, error = Empty);
    traced(span, ctx.runtime.stop_container(&view.id, left)).await
}

/// Ends all containers: the main ones together, then the sidecars in reverse order, each with what is left.
///
/// # Errors
/// The last error; all were tried.
pub async fn all(ctx: &Context, pod: &Pod, observed: &Observed, grace: i64) -> Result<(), KubeletError> {
    let started = Instant::now();
    let ip = ctx.address(pod, observed);
    let alive: Vec<&ContainerView> = observed
        .containers
        .iter()
        .filter(|c| matches!(c.state, RunState::Running | RunState::Unknown))
        .collect();
    let order =
        |name: &str| spec::init_containers(pod).iter().position(|c| c.name == name && spec::is_sidecar(c));
    let mut result = Ok(());
    let main = alive.iter().filter(|c| order(&c.name).is_none());
    let stops = main.map(|view| stop_one(ctx, pod, view, &ip, grace));
    for stopped in join_all(stops).await {
        result = stopped.and(result);
    }
    let mut sidecars: Vec<_> = alive.iter().filter_map(|c| Some((order(&c.name)?, c))).collect();
    sidecars.sort_by_key(|(position, _)| std::cmp::Reverse(*position));
    for (_, view) in sidecars {
        let used = i64::try_from(started.elapsed().as_secs()).unwrap_or(grace);
        let left = if grace == 0 { 0 } else { (grace - used).max(MINIMUM_GRACE) };
        result = stop_one(ctx, pod, view, &ip, left).await.and(result);
    }
    result
}

async fn stop_one(
    ctx: &Context,
    pod: &Pod,
    view: &ContainerView,
    ip: &str,
    grace: i64,
) -> Result<(), KubeletError> {
    let why = format!("Stopping container {}", view.name);
    let stopped = container(ctx, pod, view, ip, grace, &why).await;
    if let Err(error) = &stopped {
        let text = format!("error killing container {}: {}", view.name, error.chain());
        ctx.events.container(pod, &view.name, Level::Warning, "FailedKillPod", text);
    }
    stopped
}

/// Stops a sandbox.
///
/// # Errors
/// [`KubeletError::Cri`].
pub async fn sandbox(ctx: &Context, pod: &Pod, id: &str) -> Result<(), KubeletError> {
    let key = spec::key(pod);
    let span = tracing::info_span!(target: "trine::step", "StopPodSandbox", plane = "kubelet", pod = %key,
        pod_uid = spec::uid(pod), sandbox = id, error = Empty);
    traced(span, ctx.runtime.stop_sandbox(id)).await
}

/// Removes a sandbox with its containers.
///
/// # Errors
/// [`KubeletError::Cri`].
pub async fn remove_sandbox(ctx: &Context, pod: &Pod, id: &str) -> Result<(), KubeletError> {
    let key = spec::key(pod);
    let span = tracing::info_span!(target: "trine::step", "RemovePodSandbox", plane = "kubelet", pod = %key,
        pod_uid = spec::uid(pod), sandbox = id, error = Empty);
    traced(span, ctx.runtime.remove_sandbox(id)).await
}
