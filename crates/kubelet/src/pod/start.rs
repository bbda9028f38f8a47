//! Starting a container: image, configuration, create, start, postStart.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;
use tracing::field::Empty;
use trine_contracts::cri;
use trine_typed::event::Level;
use trine_typed::k8s_openapi::api::core::v1::{Container, Pod};

use super::images::{self, Image, ImageFailure};
use super::memory::{Failure, Memory, Waiting};
use super::mounts::Volumes;
use super::{Context, hooks, mounts, spec, stop};
use crate::container::config::{self as container_config, ContainerInput};
use crate::container::env::{self, EnvInput};
use crate::container::sources::{Names, Sources};
use crate::error::KubeletError;
use crate::runtime::{ContainerView, RunState};
use crate::step::traced;
use crate::users;

/// Deadline of a postStart hook; it holds up only its own Pod.
const POST_START: Duration = Duration::from_secs(600);

/// How long the first list of Services is waited for.
const SERVICES: Duration = Duration::from_secs(10);

/// What is to be started.
pub struct Start<'a> {
    /// The Pod.
    pub pod: &'a Pod,
    /// The container's spec.
    pub container: &'a Container,
    /// How many of this name there were before.
    pub attempt: u32,
    /// The sandbox's id.
    pub sandbox: &'a str,
    /// The sandbox's configuration.
    pub sandbox_config: &'a cri::PodSandboxConfig,
    /// The sandbox's addresses.
    pub ips: &'a [String],
    /// Where the Pod is reached from this node.
    pub address: &'a str,
    /// Id of the container whose processes it sees.
    pub target: Option<&'a str>,
}

/// Why a container did not start.
struct NotStarted {
    reason: &'static str,
    message: String,
    /// The image that could not be pulled.
    pull: Option<String>,
}

impl From<ImageFailure> for NotStarted {
    fn from(failure: ImageFailure) -> Self {
        Self { reason: failure.reason, message: failure.message, pull: failure.pull }
    }
}

fn lock(memory: &Mutex<Memory>) -> std::sync::MutexGuard<'_, Memory> {
    memory.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts it, and notes in `memory` how that went. A pull ends early when `cancel` says so.
pub async fn start(ctx: &Context, start: &Start<'_>, memory: &Mutex<Memory>, cancel: &CancellationToken) {
    let name = start.container.name.clone();
    match attempt(ctx, start, memory, cancel).await {
        Ok(()) => {
            let mut memory = lock(memory);
            memory.failures.remove(&name);
            memory.waiting.remove(&name);
        }
        Err(_) if cancel.is_cancelled() => {}
        Err(failure) => note(start, memory, failure),
    }
}

fn note(start: &Start<'_>, memory: &Mutex<Memory>, failure: NotStarted) {
    let mut memory = lock(memory);
    let now = Timestamp::now();
    let name = start.container.name.clone();
    let delay = match &failure.pull {
        Some(image) => memory.pulls.next(image, now),
        None => memory.starts.next(&name, now),
    };
    let reason = failure.reason.to_owned();
    let waiting = Waiting { reason: reason.clone(), message: failure.message.clone() };
    memory.waiting.insert(name.clone(), waiting);
    memory.failures.insert(
        name,
        Failure {
            reason,
            message: failure.message,
            image: failure.pull,
            at: now,
            retry: now.checked_add(delay).unwrap_or(now),
            announced: false,
        },
    );
}

async fn attempt(
    ctx: &Context,
    start: &Start<'_>,
    memory: &Mutex<Memory>,
    cancel: &CancellationToken,
) -> Result<(), NotStarted> {
    let Start { pod, container, .. } = *start;
    let ensure = async {
        let volumes = images::ensure_volumes(ctx, pod, container, start.sandbox_config).await?;
        Ok((images::ensure(ctx, pod, container, start.sandbox_config).await?, volumes))
    };
    let images: Result<_, ImageFailure> = tokio::select! {
        images = ensure => images,
        () = cancel.cancelled() => {
            return Err(NotStarted { reason: "ContainerCreating", message: String::new(), pull: None });
        }
    };
    let (image, image_volumes) = images?;
    let failed = |reason: &'static str, error: &KubeletError| {
        let cause = match error {
            KubeletError::Cri { source, .. } => source.0.message().to_owned(),
            other => other.chain(),
        };
        ctx.events.container(pod, &container.name, Level::Warning, "Failed", format!("Error: {cause}"));
        NotStarted { reason, message: cause, pull: None }
    };
    let config = configure(ctx, start, &image, &image_volumes)
        .await
        .map_err(|e| failed("CreateContainerConfigError", &e))?;
    let key = spec::key(pod);
    let span = tracing::info_span!(target: "trine::step", "CreateContainer", plane = "kubelet", pod = %key,
        pod_uid = spec::uid(pod), sandbox = start.sandbox, container = %container.name, error = Empty);
    let create = ctx.runtime.create_container(start.sandbox, config, start.sandbox_config.clone());
    let id = traced(span, create).await.map_err(|e| failed("CreateContainerError", &e))?;
    let text = format!("Created container: {}", container.name);
    ctx.events.container(pod, &container.name, Level::Normal, "Created", text);
    let hook = container.lifecycle.as_ref().and_then(|l| l.post_start.as_ref());
    if hook.is_some() {
        lock(memory).post_start.insert(id.clone());
    }
    let span = tracing::info_span!(target: "trine::step", "StartContainer", plane = "kubelet", pod = %key,
        pod_uid = spec::uid(pod), sandbox = start.sandbox, container = %container.name, error = Empty);
    if let Err(error) = traced(span, ctx.runtime.start_container(&id)).await {
        lock(memory).post_start.remove(&id);
        return Err(failed("RunContainerError", &error));
    }
    let text = format!("Started container {}", container.name);
    ctx.events.container(pod, &container.name, Level::Normal, "Started", text);
    if let Some(hook) = hook {
        post_start(ctx, start, hook, &id, memory).await;
    }
    Ok(())
}

/// A failed postStart hook ends the container; its restart policy decides what follows.
async fn post_start(
    ctx: &Context,
    start: &Start<'_>,
    hook: &trine_typed::k8s_openapi::api::core::v1::LifecycleHandler,
    id: &str,
    memory: &Mutex<Memory>,
) {
    let Start { pod, container, address, .. } = *start;
    let ran = hooks::run(ctx, hook, container, id, address, POST_START).await;
    lock(memory).post_start.remove(id);
    let Err(error) = ran else { return };
    let text = format!("PostStartHook failed: {}", error.chain());
    ctx.events.container(pod, &container.name, Level::Warning, "FailedPostStartHook", text);
    let view = ContainerView {
        id: id.to_owned(),
        name: container.name.clone(),
        state: RunState::Running,
        ..Default::default()
    };
    let why = "FailedPostStartHook";
    if let Err(error) = stop::container(ctx, pod, &view, address, spec::grace(pod), why).await {
        tracing::warn!(error = error.chain(), "a container whose postStart hook failed does not stop");
    }
}

async fn configure(
    ctx: &Context,
    start: &Start<'_>,
    image: &Image,
    image_volumes: &BTreeMap<String, cri::ImageSpec>,
) -> Result<cri::ContainerConfig, KubeletError> {
    let Start { pod, container, attempt, ips, .. } = *start;
    let mut sources = Sources::default();
    sources.read(&ctx.client, spec::namespace(pod), Names::of_env(container)).await?;
    // Without them the variables would be silently missing.
    if tokio::time::timeout(SERVICES, ctx.services.ready()).await.is_err() {
        return Err(KubeletError::NotYet("services have not yet been read at least once".to_owned()));
    }
    let services = ctx.service_environment(pod);
    let node = ctx.facts_for(pod, ips);
    let env =
        env::environment(&EnvInput { pod, container, sources: &sources, services: &services, node: &node })?;
    let volumes = ctx
        .volumes
        .ready(pod)
        .map_err(|missing| KubeletError::NotYet(format!("volumes are not mounted: {}", missing.join(" "))))?;
    let collected = mounts::collect(
        ctx,
        pod,
        container,
        attempt,
        &Volumes { ready: &volumes, images: image_volumes },
        &env,
        ips,
    )?;
    let name = container.image.clone().unwrap_or_default();
    let mut config = container_config::config(ContainerInput {
        pod,
        container,
        attempt,
        image: &name,
        image_ref: &image.reference,
        image_user: image.user.clone(),
        seccomp_root: &ctx.config.root.join("seccomp"),
        env,
        mounts: collected.mounts,
        devices: collected.devices,
        node_memory: ctx.memory,
        huge_pages: &ctx.node.machine().huge_pages,
        cgroup_2: ctx.cgroup_2,
    })?;
    // The kubelet may have forgotten what a former one had made ready.
    ctx.devices.prepare(pod).await?;
    let devices = ctx.devices.cdi_devices(pod, container).into_iter();
    config.cdi_devices = devices.map(|name| cri::CdiDevice { name }).collect();
    users::follow(start.sandbox_config, &mut config);
    let security = config.linux.as_mut().and_then(|l| l.security_context.as_mut());
    if let (Some(target), Some(options)) = (start.target, security.and_then(|s| s.namespace_options.as_mut()))
    {
        options.pid = cri::NamespaceMode::Target as i32;
        options.target_id = target.to_owned();
    }
    Ok(config)
}
