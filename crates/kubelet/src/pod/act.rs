//! Performing a plan, action by action. What goes wrong is remembered and said; the worker looks again after.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;
use tracing::field::Empty;
use trine_contracts::cri;
use trine_typed::event::Level;
use trine_typed::k8s_openapi::api::core::v1::Pod;

use super::memory::{Memory, ProbeKind, Waiting};
use super::plan::{Action, SANDBOX};
use super::start::{self, Start};
use super::{Context, spec, stop};
use crate::container::{resources, sandbox};
use crate::error::KubeletError;
use crate::networks;
use crate::resize::Numbers;
use crate::runtime::Observed;
use crate::step::traced;
use crate::users;

/// One batch of actions for one Pod.
pub struct Batch {
    /// Shared by all workers.
    pub ctx: Arc<Context>,
    /// The Pod as it was when the plan was made.
    pub pod: Arc<Pod>,
    /// What the runtime had then.
    pub observed: Arc<Observed>,
    /// What the worker remembers.
    pub memory: Arc<Mutex<Memory>>,
    /// Ends pulls and what has not begun.
    pub cancel: CancellationToken,
}

impl Batch {
    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Performs the actions in order; true if all went well.
    pub async fn perform(self, actions: Vec<Action>) -> bool {
        let mut well = true;
        for action in actions {
            if self.cancel.is_cancelled() {
                break;
            }
            if let Err(error) = self.one(&action).await {
                let pod = spec::key(&self.pod);
                tracing::warn!(pod, ?action, error = error.chain(), "action failed");
                well = false;
            }
        }
        well
    }

    async fn one(&self, action: &Action) -> Result<(), KubeletError> {
        let (ctx, pod) = (&*self.ctx, &*self.pod);
        match action {
            Action::CreateSandbox { attempt } => self.create_sandbox(*attempt).await,
            Action::StopSandbox { id } => stop::sandbox(ctx, pod, id).await,
            Action::RemoveSandbox { id } => stop::remove_sandbox(ctx, pod, id).await,
            Action::RemoveContainer { id } => ctx.runtime.remove_container(id).await,
            Action::AnnounceSandboxChanged => {
                let text = "Pod sandbox changed, it will be killed and re-created.";
                ctx.events.pod(pod, Level::Normal, "SandboxChanged", text);
                Ok(())
            }
            Action::AnnounceNetworkNotReady => {
                self.memory().network_announced = true;
                let text = "network is not ready: container runtime network not ready";
                ctx.events.pod(pod, Level::Warning, "NetworkNotReady", text);
                Ok(())
            }
            Action::AnnounceCrash { container, id } => {
                self.announce_crash(container, id);
                Ok(())
            }
            Action::AnnouncePullBackOff { container } => {
                self.announce_pull(container);
                Ok(())
            }
            Action::Start { container, attempt, sandbox, restart } => {
                self.start(container, *attempt, sandbox, *restart).await;
                Ok(())
            }
            Action::Resize { id, container } => self.resize(id, container).await,
            Action::Kill { id, why, probe, .. } => self.kill(id, why, *probe).await,
            Action::KillPod { grace } => stop::all(ctx, pod, &self.observed, *grace).await,
        }
    }

    async fn create_sandbox(&self, attempt: u32) -> Result<(), KubeletError> {
        let (ctx, pod) = (&*self.ctx, &*self.pod);
        let handler = pod.spec.as_ref().and_then(|s| s.runtime_class_name.clone()).unwrap_or_default();
        let mut config = self.sandbox_config(attempt)?;
        let logs = std::path::Path::new(&config.log_directory);
        std::fs::create_dir_all(logs).map_err(KubeletError::io("create folder", logs))?;
        crate::volumes::metadata::make_dir(&crate::volumes::paths::pod(&ctx.config.root, spec::uid(pod)))?;
        if let Err(error) = ctx.devices.prepare(pod).await {
            let text = format!("Failed to prepare dynamic resources: {}", error.chain());
            ctx.events.pod(pod, Level::Warning, "FailedPrepareDynamicResources", text);
            return Err(error);
        }
        let key = spec::key(pod);
        let span = tracing::info_span!(target: "trine::step", "RunPodSandbox", plane = "kubelet", pod = %key,
            pod_uid = spec::uid(pod), error = Empty);
        let run = async {
            if users::own(pod) && !users::supported(&ctx.runtime.status().await?, &handler) {
                let why = format!("the runtime handler {handler:?} does not support user namespaces");
                return Err(KubeletError::Invalid(why));
            }
            networks::give(ctx, pod, &mut config).await?;
            ctx.runtime.run_sandbox(config, &handler).await
        };
        match traced(span, run).await {
            Ok(_) => {
                let mut memory = self.memory();
                memory.sandbox_failed = None;
                memory.network_announced = false;
                Ok(())
            }
            Err(error) => {
                let cause = match &error {
                    KubeletError::Cri { source, .. } => source.to_string(),
                    other => other.chain(),
                };
                let text = format!("Failed to create pod sandbox: {cause}");
                ctx.events.pod(pod, Level::Warning, "FailedCreatePodSandBox", text);
                let mut memory = self.memory();
                let now = Timestamp::now();
                memory.sandboxes.next(SANDBOX, now);
                memory.sandbox_failed = Some(now);
                Err(error)
            }
        }
    }

    /// What a sandbox is to be, with the Pod's own users.
    fn sandbox_config(&self, attempt: u32) -> Result<cri::PodSandboxConfig, KubeletError> {
        let (ctx, pod) = (&*self.ctx, &*self.pod);
        let mut config = sandbox::config(pod, attempt, &ctx.config, &ctx.resolv_conf());
        ctx.users.give(pod, &mut config)?;
        Ok(config)
    }

    async fn start(&self, name: &str, attempt: u32, sandbox_id: &str, restart: bool) {
        let (ctx, pod) = (&*self.ctx, &*self.pod);
        let Some(container) = spec::find(pod, name) else { return };
        let Some(sandbox_view) = self.observed.sandbox() else { return };
        if restart {
            self.memory().crashes.next(name, Timestamp::now());
        }
        let config = match self.sandbox_config(sandbox_view.attempt) {
            Ok(config) => config,
            Err(error) => {
                tracing::warn!(pod = spec::key(pod), error = error.chain(), "its users are not known");
                return;
            }
        };
        let request = Start {
            pod,
            container: &container,
            attempt,
            sandbox: sandbox_id,
            sandbox_config: &config,
            ips: &sandbox_view.ips,
            target: spec::target(pod, name).and_then(|t| Some(self.observed.latest(t)?.id.as_str())),
            address: &ctx.address(pod, &self.observed),
        };
        start::start(ctx, &request, &self.memory, &self.cancel).await;
    }

    async fn resize(&self, id: &str, name: &str) -> Result<(), KubeletError> {
        let (ctx, pod) = (&*self.ctx, &*self.pod);
        let Some(container) = spec::find(pod, name) else { return Ok(()) };
        let mut wanted = resources::linux(pod, &container, ctx.memory, ctx.cgroup_2);
        let numbers = Numbers::from(&wanted);
        // Zero is not said; without a limit there is to be none.
        for limit in [&mut wanted.cpu_quota, &mut wanted.memory_limit_in_bytes] {
            *limit = if *limit == 0 { -1 } else { *limit };
        }
        // What comes with the start stays as it is.
        wanted.unified.clear();
        match ctx.runtime.update_resources(id, wanted).await {
            Ok(()) => {
                let mut memory = self.memory();
                memory.resized.insert(id.to_owned(), numbers);
                memory.resize_errors.remove(id);
                Ok(())
            }
            Err(error) => {
                self.memory().resize_errors.insert(id.to_owned(), error.chain());
                Err(error)
            }
        }
    }

    async fn kill(&self, id: &str, why: &str, probe: Option<ProbeKind>) -> Result<(), KubeletError> {
        let (ctx, pod) = (&*self.ctx, &*self.pod);
        let Some(view) = self.observed.containers.iter().find(|c| c.id == id) else { return Ok(()) };
        let container = spec::find(pod, &view.name);
        let own = match probe {
            Some(ProbeKind::Liveness) => container.as_ref().and_then(|c| c.liveness_probe.as_ref()),
            Some(ProbeKind::Startup) => container.as_ref().and_then(|c| c.startup_probe.as_ref()),
            _ => None,
        };
        let grace = own.and_then(|p| p.termination_grace_period_seconds).unwrap_or_else(|| spec::grace(pod));
        let ip = ctx.address(pod, &self.observed);
        stop::container(ctx, pod, view, &ip, grace, why).await
    }

    fn announce_crash(&self, name: &str, id: &str) {
        let pod = &*self.pod;
        let title = spec::title(pod);
        let delay = {
            let mut memory = self.memory();
            let delay = memory.crashes.delay(name).as_secs();
            memory.announced.retain(|old, _| self.observed.containers.iter().any(|c| c.id == *old));
            memory.announced.insert(id.to_owned(), Timestamp::now());
            let pause =
                if delay >= 60 { format!("{}m{}s", delay / 60, delay % 60) } else { format!("{delay}s") };
            let message = format!("back-off {pause} restarting failed container={name} pod={title}");
            memory
                .waiting
                .insert(name.to_owned(), Waiting { reason: "CrashLoopBackOff".to_owned(), message });
            delay
        };
        tracing::debug!(name, delay, "crash back-off");
        let text = format!("Back-off restarting failed container {name} in pod {title}");
        self.ctx.events.container(pod, name, Level::Warning, "BackOff", text);
    }

    fn announce_pull(&self, name: &str) {
        let text = {
            let mut memory = self.memory();
            let Some(failure) = memory.failures.get_mut(name) else { return };
            failure.announced = true;
            let text = format!("Back-off pulling image {:?}", failure.image.clone().unwrap_or_default());
            let message = format!("{text}: {}: {}", failure.reason, failure.message);
            let waiting = Waiting { reason: "ImagePullBackOff".to_owned(), message };
            memory.waiting.insert(name.to_owned(), waiting);
            text
        };
        self.ctx.events.container(&self.pod, name, Level::Normal, "BackOff", text);
        self.ctx.events.container(&self.pod, name, Level::Warning, "Failed", "Error: ImagePullBackOff");
    }
}
