//! CreateContainer: image, root, specification, group, and a process that waits for its start.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tracing::Instrument;
use trine_contracts::cri::{ContainerConfig, ContainerEventType, NamespaceMode, Signal};
use trine_images::{Image, RootOptions};
use trine_kernel::container::Groups;
use trine_kernel::container::oci::{Device, Spec, User};
use trine_kernel::proc::{SIGTERM, signal_number};
use trine_kernel::testing::failpoint;

use super::capabilities::sets;
use super::image_volume;
use super::paths;
use super::record::{Container, ContainerRecord, State};
use super::seccomp;
use super::spec::{Inputs, device_rules, limits, pid_mode, spec};
use super::user::{Lists, resolve};
use crate::error::{CriError, chain};
use crate::keeper::{NewContainer, Request};
use crate::runtime::{Runtime, new_id, now};
use crate::sandbox::record::{owners, sharing};
use crate::sandbox::{Sandbox, SandboxState, files};

const CALL: &str = "CreateContainer";
/// How long a container's set-up may take: a mount may hang.
const DEADLINE: Duration = Duration::from_secs(90);

/// What was found out about a container before its process is made.
struct Prepared {
    spec: Spec,
    user: User,
    rules: Vec<String>,
}

impl Runtime {
    /// Makes a container; a repeated call with the same name and attempt waits for the first and gets its container.
    ///
    /// # Errors
    /// [`CriError`]; nothing is left of the container then.
    pub(crate) async fn create_container(
        &self,
        sandbox: &str,
        config: ContainerConfig,
    ) -> Result<String, CriError> {
        let sandbox = self.sandbox(sandbox)?;
        let Some(metadata) = config.metadata.clone().filter(|m| !m.name.is_empty()) else {
            return Err(CriError::invalid(CALL, "the container has no name"));
        };
        let span = tracing::info_span!(
            target: "trine::step", "CreateContainer", plane = "cri", pod = sandbox.record().pod.as_str(),
            sandbox = sandbox.id.as_str(), container = metadata.name.as_str(), error = tracing::field::Empty
        );
        let runtime = self.clone();
        let name = format!("{}_{}_{}", sandbox.id, metadata.name, metadata.attempt);
        let made = async move {
            let lock = runtime.name_lock(&name);
            let _turn = lock.lock().await;
            let there = runtime.containers_of(&sandbox.id).into_iter().find(|container| {
                container.state() != State::Making && container.record().config.metadata == config.metadata
            });
            match there {
                Some(there) => Ok(there.id.clone()),
                None => runtime.make_container(&sandbox, config).await,
            }
        };
        let result = tokio::spawn(made.instrument(span.clone())).await.map_err(CriError::joined(CALL))?;
        if let Err(error) = &result {
            span.record("error", chain(error));
        }
        result
    }

    async fn make_container(
        &self,
        sandbox: &Arc<Sandbox>,
        config: ContainerConfig,
    ) -> Result<String, CriError> {
        must_be_ready(sandbox)?;
        let mut config = config;
        image_volume::note(&self.inner.images, &mut config);
        let reference = config.image.as_ref().map_or("", |i| i.image.as_str());
        let image = self
            .inner
            .images
            .status(reference)
            .map_err(|source| CriError::Image { call: CALL, source: Box::new(source) })?
            .ok_or_else(|| CriError::NotFound { kind: "image", id: reference.to_owned() })?;
        let id = new_id()?;
        let folder = sandbox.folder.join("containers").join(&id);
        let container = Arc::new(Container::new(self.new_record(&id, sandbox, &config, &image), folder));
        // Whoever removes the sandbox meanwhile finds it, and waits until it is made or undone.
        let turn = container.busy.lock().await;
        self.containers().insert(id.clone(), Arc::clone(&container));
        let filled = match must_be_ready(sandbox) {
            Ok(()) => self.fill_container(sandbox, &container, &config, image).await,
            refused => refused,
        };
        if let Err(error) = filled {
            self.undo_container(&container).await;
            return Err(error);
        }
        failpoint("CreateContainer: set up");
        container
            .update(|record| {
                record.state = if record.exit.is_none() { State::Created } else { State::Exited };
            })
            .map_err(CriError::io("write the record in", &container.folder))?;
        failpoint("CreateContainer: created");
        self.tell(&container, ContainerEventType::ContainerCreatedEvent);
        if container.state() == State::Exited {
            self.tell(&container, ContainerEventType::ContainerStoppedEvent);
        }
        drop(turn);
        Ok(id)
    }

    fn new_record(
        &self,
        id: &str,
        sandbox: &Sandbox,
        config: &ContainerConfig,
        image: &Image,
    ) -> ContainerRecord {
        let pod = sandbox.record().config;
        let log_path = match (pod.log_directory.as_str(), config.log_path.as_str()) {
            ("", _) | (_, "") => String::new(),
            (directory, path) => Path::new(directory).join(path).to_string_lossy().into_owned(),
        };
        ContainerRecord {
            id: id.to_owned(),
            sandbox: sandbox.id.clone(),
            config: config.clone().into(),
            state: State::Making,
            image_id: image.id.clone(),
            image_name: name(config, &image.repo_tags),
            image_ref: image.repo_digests.first().unwrap_or(&image.id).clone(),
            cgroup: sandbox.record().cgroup.join(id),
            log_path,
            stop_signal: stop_signal(config.stop_signal(), &image.config.stop_signal),
            user: User::default(),
            created_at: now(),
            started_at: 0,
            exit: None,
        }
    }

    async fn fill_container(
        &self,
        sandbox: &Arc<Sandbox>,
        container: &Arc<Container>,
        config: &ContainerConfig,
        image: Image,
    ) -> Result<(), CriError> {
        // The sandbox's folder must not come to life again.
        std::fs::create_dir(&container.folder).map_err(CriError::io("make", &container.folder))?;
        failpoint("CreateContainer: folder");
        container.update(|_| {}).map_err(CriError::io("write the record in", &container.folder))?;
        failpoint("CreateContainer: record");
        let prepared = self.prepare(sandbox, container, config, image).await?;
        failpoint("CreateContainer: prepared");
        let path = container.folder.join("config.json");
        // Read only once the record says that it is made.
        let bytes = serde_json::to_vec(&prepared.spec).map_err(|e| CriError::io("write", &path)(e.into()))?;
        std::fs::write(&path, bytes).map_err(CriError::io("write", &path))?;
        container
            .update(|record| record.user = prepared.user.clone())
            .map_err(CriError::io("write the record in", &container.folder))?;
        let group = self.group(&container.record().cgroup);
        let cgroup = |source| CriError::Cgroup { call: CALL, object: container.id.clone(), source };
        failpoint("CreateContainer: specified");
        group.create().map_err(cgroup)?;
        let resources = config.linux.as_ref().and_then(|l| l.resources.as_ref());
        if let Some(resources) = resources {
            group.limit(&limits(resources)).map_err(cgroup)?;
        }
        group.allow_devices(&prepared.rules).map_err(cgroup)?;
        failpoint("CreateContainer: group");
        let none = trine_contracts::cri::LinuxContainerSecurityContext::default();
        let security = config.linux.as_ref().and_then(|l| l.security_context.as_ref()).unwrap_or(&none);
        let pid = pid_mode(security);
        let target = security.namespace_options.as_ref().map(|n| n.target_id.clone());
        let log_path = container.record().log_path;
        let new = NewContainer {
            id: container.id.clone(),
            spec: prepared.spec,
            groups: group.folders().cloned().collect::<Vec<Groups>>(),
            oom_files: group.oom_files(),
            share_pid: pid == NamespaceMode::Pod,
            target: target.filter(|_| pid == NamespaceMode::Target),
            folder: container.folder.clone(),
            log: (!log_path.is_empty()).then(|| log_path.into()),
            stdin: config.stdin,
            stdin_once: config.stdin_once,
            deadline: u64::try_from(DEADLINE.as_millis()).unwrap_or(u64::MAX),
        };
        let keeper = self.keeper(CALL, sandbox)?;
        keeper
            .call(Request::Create(Box::new(new)), DEADLINE)
            .await
            .map(drop)
            .map_err(|source| CriError::Keeper { call: CALL, object: container.id.clone(), source })
    }

    /// All that touches files, on a thread of its own, because a path of the host may hang.
    async fn prepare(
        &self,
        sandbox: &Arc<Sandbox>,
        container: &Arc<Container>,
        config: &ContainerConfig,
        image: Image,
    ) -> Result<Prepared, CriError> {
        let (images, mut config) = (self.inner.images.clone(), config.clone());
        let (sandbox, container) = (Arc::clone(sandbox), Arc::clone(container));
        let unified = self.inner.hierarchies.unified();
        let cdi_dirs = self.config().cdi_dirs.clone();
        let (object, late) = (container.id.clone(), Arc::clone(&container));
        let span = tracing::Span::current();
        let work = tokio::task::spawn_blocking(move || {
            let _entered = span.enter();
            let pod = sandbox.record().config;
            let owners = owners(&pod).map_err(|why| CriError::invalid(CALL, why))?;
            let users = owners.as_ref().map(|_| sandbox.users_pin());
            let options = RootOptions { for_mounts: true, users: users.as_deref() };
            let root = images
                .prepare_with(&container.id, &image, options)
                .map_err(|source| CriError::Image { call: CALL, source: Box::new(source) })?;
            let refused = |why: String| CriError::invalid(CALL, why);
            let lists = (paths::list(&root.path, "etc/passwd"), paths::list(&root.path, "etc/group"));
            let security = config.linux.as_ref().and_then(|l| l.security_context.as_ref());
            let user = resolve(security, &image.config.user, Lists { passwd: &lists.0, group: &lists.1 })
                .map_err(refused)?;
            let seccomp = security.map_or(Ok(None), |security| {
                let held = sets(security.capabilities.as_ref(), security.privileged);
                seccomp::profile(security, &held.bounding)
            });
            let seccomp = seccomp.map_err(refused)?;
            crate::cdi::inject(&cdi_dirs, &mut config).map_err(refused)?;
            image_volume::mount(CALL, &images, &container.id, users.as_deref(), &mut config)?;
            paths::make_sources(&config).map_err(refused)?;
            paths::check_propagation(&config).map_err(refused)?;
            let devices: Vec<Device> = paths::devices(&config).map_err(refused)?;
            let sharing = sharing(&pod);
            let cgroup = container.record().cgroup;
            let spec = spec(&Inputs {
                config: &config,
                image: &image.config,
                rootfs: &root.path,
                user: &user,
                hostname: files::hostname(&pod, sharing.host_network).as_deref().unwrap_or_default(),
                sandbox: &sandbox.folder,
                host_ipc: sharing.host_ipc,
                cgroup: &cgroup,
                unified,
                seccomp: seccomp.as_ref(),
                devices: &devices,
                owners: owners.as_ref(),
            })
            .map_err(|e| refused(e.0))?;
            Ok(Prepared { spec, user, rules: device_rules(&config, &devices) })
        });
        let (after, mut work) = (self.config().paths_deadline, work);
        match tokio::time::timeout(after, &mut work).await {
            Ok(done) => done.map_err(CriError::joined(CALL))?,
            Err(_) => {
                // What it makes once the path answers again is nobody's.
                let runtime = self.clone();
                tokio::spawn(async move {
                    let _ = work.await;
                    runtime.remove_roots(&late).await;
                });
                Err(CriError::Timeout { call: CALL, object, after })
            }
        }
    }
}

fn must_be_ready(sandbox: &Sandbox) -> Result<(), CriError> {
    if sandbox.record().state == SandboxState::Ready {
        return Ok(());
    }
    let (object, why) = (sandbox.id.clone(), "the sandbox is not ready".to_owned());
    Err(CriError::State { call: CALL, object, why })
}

/// The name by which the image was asked for, if it is one of its names; else its first.
fn name(config: &ContainerConfig, names: &[String]) -> String {
    let asked = config.image.as_ref().map_or("", |image| &image.user_specified_image);
    names.iter().find(|name| *name == asked).or(names.first()).cloned().unwrap_or_default()
}

/// The Pod's own signal, else the image's, else TERM.
fn stop_signal(asked: Signal, image: &str) -> i32 {
    let name = asked.as_str_name().trim_start_matches("SIGNAL_").replace("PLUS", "+").replace("MINUS", "-");
    let asked = if asked == Signal::RuntimeDefault { None } else { signal_number(&name) };
    asked.or_else(|| signal_number(image)).unwrap_or(SIGTERM)
}

#[cfg(test)]
mod tests {
    use trine_contracts::cri::ImageSpec;

    use super::*;

    #[test]
    fn an_image_that_was_asked_for_by_its_id_is_shown_by_name() {
        let asked = |user_specified_image: &str| {
            let (image, user_specified_image) = ("sha256:aa".to_owned(), user_specified_image.to_owned());
            let image = Some(ImageSpec { image, user_specified_image, ..Default::default() });
            ContainerConfig { image, ..Default::default() }
        };
        let names = ["a.io/x:1".to_owned(), "b.io/x:2".to_owned()];
        assert_eq!(name(&asked("b.io/x:2"), &names), "b.io/x:2");
        assert_eq!(name(&asked("x"), &names), "a.io/x:1");
        assert_eq!(name(&asked("x"), &[]), "");
    }

    #[test]
    fn the_stop_signal_is_the_pods_then_the_images_then_term() {
        assert_eq!(stop_signal(Signal::RuntimeDefault, ""), 15);
        assert_eq!(stop_signal(Signal::RuntimeDefault, "SIGQUIT"), 3);
        assert_eq!(stop_signal(Signal::Sigusr1, "SIGQUIT"), 10);
        assert_eq!(stop_signal(Signal::Sigrtminplus3, ""), 37);
        assert_eq!(stop_signal(Signal::Sigrtmaxminus1, ""), 63);
    }
}
