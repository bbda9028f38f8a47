//! What the runtime knows and holds; every call works on it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;
use trine_contracts::cri::{ContainerEventType, PodSandboxConfig};
use trine_images::ImageStore;
use trine_kernel::cgroup::{Group, Hierarchies};
use trine_ledger::{Durability, Ledger};

use crate::config::Config;
use crate::container::{Container, State};
use crate::discarded::Discarded;
use crate::error::CriError;
use crate::keeper::{Client, Event, Exit, Nursery};
use crate::sandbox::{Sandbox, SandboxState};
use crate::streaming::Tokens;

/// Events that a slow reader may lag behind.
const EVENTS: usize = 1024;

/// What may leak of a sandbox, written before it is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Intent {
    /// The sandbox's folder, with the pin of its network namespace and its `shm` mount.
    pub folder: PathBuf,
    /// Its network namespace.
    pub netns: Option<PathBuf>,
    /// Its group.
    pub cgroup: PathBuf,
}

/// A change of a container, for who listens.
#[derive(Debug, Clone)]
pub(crate) struct Changed {
    pub container: String,
    pub sandbox: String,
    pub kind: ContainerEventType,
    pub at: i64,
}

/// The runtime. Clones share it.
#[derive(Clone)]
pub struct Runtime {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub config: Config,
    pub images: ImageStore,
    pub network: trine_cni::Runtime,
    pub hierarchies: Hierarchies,
    pub ledger: Ledger<Intent>,
    pub nursery: Arc<Nursery>,
    pub discarded: Discarded,
    pub boot: String,
    pub tokens: Tokens,
    pub events: broadcast::Sender<Changed>,
    /// Cancelled when the daemon ends: what is tried again and again is left to the next one.
    pub ended: CancellationToken,
    /// Where streams are served, once they are: `http://address:port`.
    pub streaming_base: Mutex<String>,
    sandboxes: Mutex<BTreeMap<String, Arc<Sandbox>>>,
    containers: Mutex<BTreeMap<String, Arc<Container>>>,
    /// One making of a name at a time; a repeated call waits for the first and gets its result.
    names: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

impl Runtime {
    /// A runtime that knows nothing yet; [`crate::serve`] lets it read its records. Groups are made in `hierarchies`.
    ///
    /// # Errors
    /// [`CriError`] if its folders or the image store cannot be opened.
    pub(crate) fn open(config: Config, hierarchies: Hierarchies) -> Result<Self, CriError> {
        let sandboxes = config.sandboxes_dir();
        std::fs::create_dir_all(&sandboxes).map_err(CriError::io("make", &sandboxes))?;
        let images = ImageStore::open(&config.images_dir, config.images.clone())
            .map_err(|source| CriError::Image { call: "open the image store", source: Box::new(source) })?;
        let network = trine_cni::Runtime::new(trine_cni::RuntimeOptions {
            conf_dir: config.cni_conf_dir.clone(),
            bin_dirs: config.cni_bin_dirs.clone(),
            cache_dir: config.cni_state_dir.clone(),
            data_dir: config.cni_state_dir.clone(),
            instance: config.instance.clone(),
        });
        let ledger = Ledger::open(config.state_dir.join("ledger"), Durability::ThisBoot)?;
        let boot = trine_kernel::proc::boot_id()
            .map_err(CriError::io("read", Path::new("/proc/sys/kernel/random/boot_id")))?;
        let nursery = Arc::new(Nursery::new(config.keeper_program(), config.state_dir.clone()));
        let gone = config.state_dir.join("gone");
        let discarded = Discarded::open(gone.clone()).map_err(CriError::io("open", &gone))?;
        let inner = Inner {
            config,
            images,
            network,
            hierarchies,
            ledger,
            nursery,
            discarded,
            boot,
            tokens: Tokens::default(),
            events: broadcast::Sender::new(EVENTS),
            ended: CancellationToken::new(),
            streaming_base: Mutex::default(),
            sandboxes: Mutex::default(),
            containers: Mutex::default(),
            names: Mutex::default(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    pub(crate) fn config(&self) -> &Config {
        &self.inner.config
    }

    pub(crate) fn sandboxes(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Sandbox>>> {
        self.inner.sandboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn containers(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Container>>> {
        self.inner.containers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A sandbox by its id, or by the beginning of it if that is enough.
    pub(crate) fn sandbox(&self, id: &str) -> Result<Arc<Sandbox>, CriError> {
        by_id(&self.sandboxes(), id).ok_or_else(|| CriError::NotFound { kind: "sandbox", id: id.to_owned() })
    }

    /// A container by its id, or by the beginning of it if that is enough.
    pub(crate) fn container(&self, id: &str) -> Result<Arc<Container>, CriError> {
        by_id(&self.containers(), id)
            .ok_or_else(|| CriError::NotFound { kind: "container", id: id.to_owned() })
    }

    /// False once it is removed.
    pub(crate) fn has_sandbox(&self, sandbox: &Sandbox) -> bool {
        self.sandboxes().contains_key(&sandbox.id)
    }

    /// False once it is removed.
    pub(crate) fn has_container(&self, container: &Container) -> bool {
        self.containers().contains_key(&container.id)
    }

    pub(crate) fn containers_of(&self, sandbox: &str) -> Vec<Arc<Container>> {
        self.containers().values().filter(|c| c.sandbox == sandbox).cloned().collect()
    }

    /// The keeper of a sandbox.
    pub(crate) fn keeper(&self, call: &'static str, sandbox: &Sandbox) -> Result<Client, CriError> {
        sandbox.keeper().ok_or_else(|| CriError::State {
            call,
            object: sandbox.id.clone(),
            why: "the sandbox is not ready".to_owned(),
        })
    }

    /// One making of `name` at a time.
    pub(crate) fn name_lock(&self, name: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut names = self.inner.names.lock().unwrap_or_else(PoisonError::into_inner);
        names.retain(|_, lock| Arc::strong_count(lock) > 1);
        Arc::clone(names.entry(name.to_owned()).or_default())
    }

    /// A group below all hierarchies.
    pub(crate) fn group(&self, path: &Path) -> Group {
        self.inner.hierarchies.group(path)
    }

    /// Where a Pod's group is, and whether it is ours. A parent that the kubelet has made is used as it is named.
    pub(crate) fn pod_cgroup(&self, config: &PodSandboxConfig) -> (PathBuf, bool) {
        let asked = config.linux.as_ref().map_or("", |l| l.cgroup_parent.as_str());
        let asked = Path::new(asked);
        if asked.components().count() > 1 && asked.is_absolute() && self.group(asked).exists() {
            return (asked.to_owned(), false);
        }
        let uid = config.metadata.as_ref().map_or("", |m| m.uid.as_str());
        let plain: String =
            uid.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect();
        (self.config().pods_cgroup().join(format!("pod{plain}")), true)
    }

    pub(crate) fn tell(&self, container: &Container, kind: ContainerEventType) {
        // Nobody listening is fine.
        let _ = self.inner.events.send(Changed {
            container: container.id.clone(),
            sandbox: container.sandbox.clone(),
            kind,
            at: now(),
        });
    }

    /// Takes over a sandbox's keeper: its events from now on, and what happened before.
    pub(crate) async fn adopt_keeper(&self, sandbox: &Arc<Sandbox>) -> Result<(), CriError> {
        let failed = |source| CriError::Keeper { call: "connect", object: sandbox.id.clone(), source };
        let (client, mut events) = Client::connect(&sandbox.folder).await.map_err(failed)?;
        sandbox.set_keeper(Some(client));
        let (runtime, sandbox) = (self.clone(), Arc::clone(sandbox));
        tokio::spawn(async move {
            let follow = async {
                while let Some(Event::Exited { container, exit }) = events.recv().await {
                    runtime.container_exited(&container, exit);
                }
                runtime.keeper_lost(&sandbox);
            };
            // Once the daemon has ended, what happens is another's to write down.
            tokio::select! {
                () = follow => {}
                () = runtime.inner.ended.cancelled() => {}
            }
        });
        Ok(())
    }

    /// A container has ended. One that is still being made stays in the hands of the call that makes it.
    pub(crate) fn container_exited(&self, id: &str, exit: Exit) {
        let Some(container) = self.containers().get(id).cloned() else { return };
        if container.record().exit.is_some() {
            return;
        }
        let seen = container.state() != State::Making;
        let written = container.update(|record| {
            if seen {
                record.state = State::Exited;
            }
            record.started_at = record.started_at.max(exit.started_at);
            record.exit = Some(exit);
        });
        if let Err(error) = written {
            tracing::warn!(container = id, %error, "cannot write down a container's end");
        }
        if seen {
            self.tell(&container, ContainerEventType::ContainerStoppedEvent);
        }
    }

    /// A sandbox's keeper is gone: by a stop, or it died, and its containers with it.
    pub(crate) fn keeper_lost(&self, sandbox: &Sandbox) {
        sandbox.set_keeper(None);
        if sandbox.record().state == SandboxState::Ready {
            tracing::warn!(sandbox = sandbox.id, "a keeper is gone; its sandbox is not ready any more");
            let _ = sandbox.update(|record| record.state = SandboxState::NotReady);
        }
        for container in self.containers_of(&sandbox.id) {
            if container.state() != State::Exited {
                self.group(&container.record().cgroup).kill();
                self.container_exited(&container.id, lost(&container.folder));
            }
        }
    }
}

/// How a container ended that nobody watched: as the keeper wrote it down, or unknown.
pub(crate) fn lost(folder: &Path) -> Exit {
    std::fs::read(folder.join("exit.json"))
        .ok()
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .unwrap_or_else(|| Exit { code: 255, finished_at: now(), ..Exit::default() })
}

fn by_id<T>(all: &BTreeMap<String, Arc<T>>, id: &str) -> Option<Arc<T>> {
    if let Some(exact) = all.get(id) {
        return Some(Arc::clone(exact));
    }
    if id.is_empty() {
        return None;
    }
    let mut matching = all.range(id.to_owned()..).take_while(|(known, _)| known.starts_with(id));
    let first = matching.next()?;
    matching.next().is_none().then(|| Arc::clone(first.1))
}

/// Now, ns since 1970.
pub(crate) fn now() -> i64 {
    i64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX)
}

/// A new id: 64 hex digits.
pub(crate) fn new_id() -> Result<String, CriError> {
    let path = Path::new("/dev/urandom");
    let mut bytes = [0; 32];
    std::fs::File::open(path)
        .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut bytes))
        .map_err(CriError::io("read", path))?;
    Ok(hex::encode(bytes))
}
