//! RunPodSandbox: record, namespaces, keeper and network; all of it or nothing.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tracing::Instrument;
use trine_contracts::cri::PodSandboxConfig;
use trine_contracts::networks::Attached;
use trine_contracts::networks::attachments::DEFAULT_LINK;
use trine_kernel::container::Owners;
use trine_kernel::mountpoint::mount_device;
use trine_kernel::netns::Netns;
use trine_kernel::testing::failpoint;

use super::files;
use super::network;
use super::record::{Sandbox, SandboxRecord, SandboxState, owners, sharing};
use crate::error::{CriError, chain};
use crate::keeper::spawn::{Settings, Users, spawn};
use crate::runtime::{Intent, Runtime, new_id, now};

const CALL: &str = "RunPodSandbox";
/// How long attaching to a network may take.
const NETWORK_DEADLINE: Duration = Duration::from_secs(90);

impl Runtime {
    /// Makes a sandbox; a repeated call for the same Pod and attempt waits for the first and gets its sandbox.
    ///
    /// # Errors
    /// [`CriError`]; nothing is left of the sandbox then, or what is left is recorded and removed later.
    pub(crate) async fn run_sandbox(
        &self,
        config: PodSandboxConfig,
        handler: String,
    ) -> Result<String, CriError> {
        let Some(metadata) = config.metadata.clone() else {
            return Err(CriError::invalid(CALL, "the sandbox has no metadata"));
        };
        if metadata.uid.is_empty() || metadata.name.is_empty() {
            return Err(CriError::invalid(CALL, "the Pod has no name or no uid"));
        }
        if !handler.is_empty() {
            return Err(CriError::invalid(CALL, format!("there is no runtime handler {handler:?}")));
        }
        owners(&config).map_err(|why| CriError::invalid(CALL, why))?;
        network::check(&config).map_err(|why| CriError::invalid(CALL, why))?;
        let pod = format!("{}/{}", metadata.namespace, metadata.name);
        let span = tracing::info_span!(
            target: "trine::step", "RunPodSandbox", plane = "cri", pod = pod.as_str(), pod_uid = metadata.uid.as_str(),
            sandbox = tracing::field::Empty, error = tracing::field::Empty
        );
        let name = format!("{}_{}", metadata.uid, metadata.attempt);
        let (runtime, inside) = (self.clone(), span.clone());
        // On a task of its own: a caller that goes away must not leave half a sandbox.
        let made = async move {
            let lock = runtime.name_lock(&name);
            let _turn = lock.lock().await;
            match runtime.find_sandbox(&config) {
                Some(there) => Ok(there.id.clone()),
                None => runtime.make_sandbox(config, pod, &inside).await,
            }
        };
        let result = tokio::spawn(made.instrument(span.clone())).await.map_err(CriError::joined(CALL))?;
        match &result {
            Ok(id) => span.record("sandbox", id.as_str()),
            Err(error) => span.record("error", chain(error)),
        };
        result
    }

    fn find_sandbox(&self, config: &PodSandboxConfig) -> Option<Arc<Sandbox>> {
        let sandboxes = self.sandboxes();
        sandboxes
            .values()
            .find(|sandbox| {
                let record = sandbox.record();
                record.state == SandboxState::Ready && record.config.metadata == config.metadata
            })
            .cloned()
    }

    async fn make_sandbox(
        &self,
        config: PodSandboxConfig,
        pod: String,
        span: &tracing::Span,
    ) -> Result<String, CriError> {
        let id = new_id()?;
        span.record("sandbox", id.as_str());
        let folder = self.config().sandbox_dir(&id);
        let sharing = sharing(&config);
        let netns = (!sharing.host_network).then(|| folder.join("netns"));
        let (cgroup, own_cgroup) = self.pod_cgroup(&config);
        let intent = Intent { folder: folder.clone(), netns: netns.clone(), cgroup: cgroup.clone() };
        failpoint("RunPodSandbox: begun");
        self.inner.ledger.put(&id, &intent)?;
        failpoint("RunPodSandbox: intent");
        std::fs::create_dir_all(folder.join("containers")).map_err(CriError::io("make", &folder))?;
        failpoint("RunPodSandbox: folder");
        let record = SandboxRecord {
            id: id.clone(),
            pod,
            config: config.clone().into(),
            handler: String::new(),
            state: SandboxState::Making,
            boot: self.inner.boot.clone(),
            created_at: now(),
            netns,
            attached: false,
            ips: Vec::new(),
            networks: Vec::new(),
            cgroup,
            own_cgroup,
        };
        let sandbox = Arc::new(Sandbox::new(record, folder));
        self.sandboxes().insert(id.clone(), Arc::clone(&sandbox));
        let Err(error) = self.fill_sandbox(&sandbox, &config).await else { return Ok(id) };
        // With deadlines of its own, never the caller's.
        self.undo_sandbox(&sandbox).await;
        Err(error)
    }

    async fn fill_sandbox(&self, sandbox: &Arc<Sandbox>, config: &PodSandboxConfig) -> Result<(), CriError> {
        let written = |e| CriError::io("write the record in", &sandbox.folder)(e);
        // Before the act: from here on CNI may have made something.
        sandbox.update(|record| record.attached = record.netns.is_some()).map_err(written)?;
        failpoint("RunPodSandbox: record");
        let sharing = sharing(config);
        let hostname = files::hostname(config, sharing.host_network);
        let owners = owners(config).map_err(|why| CriError::invalid(CALL, why))?;
        write_files(&sandbox.folder, config, hostname.as_deref(), owners.as_ref())?;
        failpoint("RunPodSandbox: files");
        let record = sandbox.record();
        // The keeper makes that of a Pod with its own users, whose it is to be.
        if let Some(path) = record.netns.clone().filter(|_| owners.is_none()) {
            let made = tokio::task::spawn_blocking(move || Netns::create(&path)).await;
            made.map_err(CriError::joined(CALL))?.map_err(|source| CriError::Netns {
                call: CALL,
                object: sandbox.id.clone(),
                source,
            })?;
        }
        if !sharing.host_ipc {
            mount_shm(sandbox, owners.as_ref())?;
        }
        failpoint("RunPodSandbox: namespaces");
        let settings = Settings {
            netns: record.netns.clone(),
            users: owners.map(|owners| Users { pin: sandbox.users_pin(), owners }),
            new_ipc: !sharing.host_ipc,
            hostname,
            share_pid: sharing.pod_pid,
            sysctls: config
                .linux
                .as_ref()
                .map(|l| l.sysctls.clone().into_iter().collect())
                .unwrap_or_default(),
        };
        let (ips, networks) = if settings.users.is_some() {
            self.start_keeper(sandbox, &settings).await?;
            self.attach(sandbox, config).await?
        } else {
            let (kept, attached) =
                tokio::join!(self.start_keeper(sandbox, &settings), self.attach(sandbox, config));
            kept?;
            attached?
        };
        failpoint("RunPodSandbox: attached");
        sandbox
            .update(|record| {
                record.ips = ips;
                record.networks = networks;
                record.state = SandboxState::Ready;
            })
            .map_err(written)?;
        failpoint("RunPodSandbox: ready");
        Ok(())
    }

    async fn start_keeper(&self, sandbox: &Arc<Sandbox>, settings: &Settings) -> Result<(), CriError> {
        let span = tracing::info_span!(
            target: "trine::step", "keeper", plane = "cri", sandbox = sandbox.id.as_str(), error = tracing::field::Empty
        );
        let start = async {
            spawn(&self.inner.nursery, &sandbox.folder, settings)
                .await
                .map_err(|source| CriError::Keeper { call: CALL, object: sandbox.id.clone(), source })?;
            self.adopt_keeper(sandbox).await
        };
        let result = start.instrument(span.clone()).await;
        if let Err(error) = &result {
            span.record("error", chain(error));
        }
        result
    }

    /// Attaches it to its networks, one after the other, the default one first: its addresses there, and, if there are others,
    /// how it is attached to each.
    async fn attach(
        &self,
        sandbox: &Sandbox,
        config: &PodSandboxConfig,
    ) -> Result<(Vec<String>, Vec<Attached>), CriError> {
        let Some(netns) = sandbox.record().netns else { return Ok((Vec::new(), Vec::new())) };
        let failed =
            |source| CriError::Network { call: CALL, object: sandbox.id.clone(), source: Box::new(source) };
        let (mut ips, mut networks) = (Vec::new(), Vec::new());
        for (name, attachment) in network::attachments(&sandbox.id, &netns, config) {
            let attached = tokio::time::timeout(NETWORK_DEADLINE, self.inner.network.add(&attachment)).await;
            let attached = attached
                .map_err(|_| CriError::Timeout {
                    call: "ADD",
                    object: sandbox.id.clone(),
                    after: NETWORK_DEADLINE,
                })?
                .map_err(failed)?;
            failpoint("RunPodSandbox: network");
            if network::has_others(config) {
                let default = attachment.ifname == DEFAULT_LINK;
                networks.push(attached.told(&name, &attachment.ifname, default).map_err(failed)?);
            }
            if attachment.ifname == DEFAULT_LINK {
                ips = attached.ips.iter().map(|(ip, _)| ip.to_string()).collect();
            }
        }
        Ok((ips, networks))
    }
}

/// Files that all containers share, for the Pod's own root to change.
fn write_files(
    folder: &Path,
    config: &PodSandboxConfig,
    hostname: Option<&str>,
    owners: Option<&Owners>,
) -> Result<(), CriError> {
    let write = |name: &str, text: String| {
        let path = folder.join(name);
        std::fs::write(&path, text).map_err(CriError::io("write", &path))?;
        let Some(owners) = owners else { return Ok(()) };
        let given = std::os::unix::fs::chown(&path, Some(owners.uid(0)), Some(owners.gid(0)));
        given.map_err(CriError::io("give its owner", &path))
    };
    let resolv = files::resolv_conf(config.dns_config.as_ref())
        .unwrap_or_else(|| std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default());
    write("resolv.conf", resolv)?;
    hostname.map_or(Ok(()), |hostname| write("hostname", format!("{hostname}\n")))
}

fn mount_shm(sandbox: &Sandbox, owners: Option<&Owners>) -> Result<(), CriError> {
    let target = sandbox.folder.join("shm");
    std::fs::create_dir_all(&target).map_err(CriError::io("make", &target))?;
    let mut options = vec!["nosuid,nodev,noexec,mode=1777,size=65536k".to_owned()];
    options.extend(owners.map(|owners| format!("uid={},gid={}", owners.uid(0), owners.gid(0))));
    mount_device(Path::new("shm"), &target, "tmpfs", &options).map_err(|source| CriError::Mount {
        call: CALL,
        object: sandbox.id.clone(),
        source,
    })
}
