//! The operations, synchronously. Whoever calls them may block for as long as a plugin takes.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value, json};
use trine_kernel::netns::Netns;
use trine_kernel::testing::failpoint;

use super::cache::{Cache, Entry};
use super::chain::Chain;
use super::conf_dir::{BrokenFile, ConfDir};
use super::{gateways, wishes};
use crate::invoke;
use crate::plugins;
use crate::spec::{AttachmentId, CniError, CniResult, Code, Command, Env, NetworkList, Version};

/// Where things are.
#[derive(Debug, Clone)]
pub struct RuntimeOptions {
    /// The folder of configurations (`/etc/cni/net.d`).
    pub conf_dir: PathBuf,
    /// The folders of plugins (`/opt/cni/bin`), first match wins.
    pub bin_dirs: Vec<PathBuf>,
    /// The folder of the cache (`/var/lib/cni`); entries are in `results` below it.
    pub cache_dir: PathBuf,
    /// The folder in which our own network keeps its addresses, unless its configuration says where.
    pub data_dir: PathBuf,
    /// The instance's id, part of the names of our own network's links.
    pub instance: String,
}

/// The network that an attachment is to.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Which {
    /// That of the node: the first valid one of the folder.
    #[default]
    OfTheNode,
    /// The one of this name in the folder.
    Named(String),
    /// This configuration, a list or a single plugin.
    Given(Value),
}

/// What is to be attached to the network.
#[derive(Debug, Clone, Default)]
pub struct Attachment {
    /// The sandbox.
    pub container_id: String,
    /// Its network namespace.
    pub netns: PathBuf,
    /// The name of its link (`eth0`).
    pub ifname: String,
    /// The pairs of `CNI_ARGS` (`K8S_POD_NAME` and so on).
    pub args: Vec<(String, String)>,
    /// The capabilities on offer (`portMappings` and so on); each plugin gets those that it asks for.
    pub capabilities: Map<String, Value>,
    /// The network.
    pub which: Which,
    /// Further capabilities, which have to come true.
    pub wishes: Map<String, Value>,
    /// Further arguments of every plugin (`args.cni`).
    pub cni_args: Map<String, Value>,
    /// The gateways of default routes by this link, in place of what its plugins make; none leave that as it is.
    pub gateways: Option<Vec<IpAddr>>,
}

impl Attachment {
    /// Its name.
    #[must_use]
    pub fn id(&self) -> AttachmentId {
        AttachmentId { container_id: self.container_id.clone(), ifname: self.ifname.clone() }
    }

    /// All capabilities on offer.
    fn offered(&self) -> Map<String, Value> {
        self.capabilities.clone().into_iter().chain(self.wishes.clone()).collect()
    }

    /// The value of a pair of its arguments.
    #[must_use]
    pub fn arg(&self, key: &str) -> Option<&str> {
        self.args.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }
}

/// How it is attached.
#[derive(Debug, Clone, PartialEq)]
pub struct Attached {
    /// The network.
    pub network: String,
    /// The addresses inside, with their prefix lengths, in the order of the result.
    pub ips: Vec<(IpAddr, u8)>,
    /// The whole result of the last plugin.
    pub result: Value,
}

impl Attached {
    fn new(network: &NetworkList, result: Value) -> Result<Self, CniError> {
        let read = CniResult::from_json(&result).map_err(|e| e.in_network("ADD", &network.name))?;
        Ok(Self { network: network.name.clone(), ips: read.container_ips(), result })
    }
}

/// The network that ADD would use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkStatus {
    /// Its name.
    pub network: String,
    /// The types of its plugins.
    pub plugins: Vec<String>,
    /// The file that it is from.
    pub file: PathBuf,
    /// Files that sort before it and cannot be used.
    pub broken: Vec<BrokenFile>,
}

/// The synchronous runtime.
#[derive(Debug)]
pub struct Engine {
    bin_dirs: Vec<PathBuf>,
    conf: ConfDir,
    pub(super) cache: Cache,
    defaults: Map<String, Value>,
}

impl Engine {
    /// A runtime with `options`.
    pub fn new(options: RuntimeOptions) -> Self {
        let defaults = Map::from_iter([
            ("instance".to_owned(), json!(options.instance)),
            ("dataDir".to_owned(), json!(options.data_dir.join("networks"))),
        ]);
        Self {
            bin_dirs: options.bin_dirs,
            conf: ConfDir::new(options.conf_dir),
            cache: Cache::new(&options.cache_dir),
            defaults,
        }
    }

    pub(super) fn chain<'a>(&'a self, network: &'a NetworkList) -> Chain<'a> {
        Chain {
            network,
            bin_dirs: &self.bin_dirs,
            id: None,
            netns: None,
            args: &[],
            capabilities: None,
            defaults: &self.defaults,
        }
    }

    /// The network of now.
    ///
    /// # Errors
    /// [`Code::TryAgainLater`] if there is none.
    pub(super) fn network(&self) -> Result<Arc<NetworkList>, CniError> {
        self.conf.load().need_network(self.conf.path())
    }

    /// The network of an attachment.
    ///
    /// # Errors
    /// [`Code::TryAgainLater`] if there is none; what is wrong with its configuration.
    fn network_of(&self, attachment: &Attachment) -> Result<Arc<NetworkList>, CniError> {
        let mut network = match &attachment.which {
            Which::OfTheNode if attachment.cni_args.is_empty() => return self.network(),
            Which::OfTheNode => (*self.network()?).clone(),
            Which::Named(name) => self.conf.named(name)?,
            Which::Given(config) => {
                let mut network = NetworkList::parse(config.to_string().as_bytes())?;
                network.keep_addresses_in(&self.defaults["dataDir"]);
                network
            }
        };
        if network.plugins.is_empty() {
            let msg = format!("the network {} has no plugins", network.name);
            return Err(CniError::new(Code::InvalidConfig, msg));
        }
        network.give_args(&attachment.cni_args);
        Ok(Arc::new(network))
    }

    /// Attaches.
    ///
    /// # Errors
    /// The plugin's; DEL has then been called for what was made.
    pub fn add(&self, attachment: &Attachment) -> Result<Attached, CniError> {
        let id = attachment.id();
        let network = self.network_of(attachment)?;
        wishes::taken(&attachment.wishes, &network)?;
        match self.cache.find(Some(&network.name), &id) {
            Some(entry) if entry.result.is_some() => {
                return Err(CniError::new(
                    Code::InvalidEnvironment,
                    "it is attached already; DEL comes first",
                )
                .details(format!("container {} link {}", id.container_id, id.ifname))
                .in_network("ADD", &entry.network_name));
            }
            // An ADD that never ended, because we were killed: what it made goes first.
            Some(entry) => self.detach(&entry)?,
            None => {}
        }
        loopback_up(attachment)?;
        let offered = attachment.offered();
        let mut entry = Entry::intent(&id, &attachment.netns, &network, &attachment.args, &offered);
        self.cache.put(&entry)?;
        failpoint("ADD: intent");
        let chain = Chain {
            id: Some(&id),
            netns: Some(&attachment.netns),
            args: &attachment.args,
            capabilities: Some(&offered),
            ..self.chain(&network)
        };
        let attached = chain.add().and_then(|result| {
            // Whatever comes now, DEL is given what the plugins made.
            entry.result = Some(result.clone());
            let result = complete(attachment, &network, result)?;
            entry.result = Some(result.clone());
            failpoint("ADD: attached");
            self.cache.put(&entry)?;
            failpoint("ADD: recorded");
            Attached::new(&network, result)
        });
        attached.map_err(|error| match self.detach(&entry) {
            Ok(()) => error,
            // The entry stays: DEL and GC try again.
            Err(undo) => {
                let details = join(&error.details, &undo.chain());
                error.details(details)
            }
        })
    }

    /// Detaches. What was never attached is detached.
    ///
    /// # Errors
    /// All errors of all plugins; the cache entry stays then, so that it can be tried again.
    pub fn del(&self, attachment: &Attachment) -> Result<(), CniError> {
        let id = attachment.id();
        let network = self.network_of(attachment).ok();
        let likely = network.as_ref().map(|network| network.name.as_str());
        if let Some(entry) = self.cache.find(likely, &id) {
            return self.detach(&entry);
        }
        // No record: made by another runtime, or lost, or never begun. The network of now is the best guess; without one
        // there is nothing that could be asked.
        let Some(network) = network else { return Ok(()) };
        let entry = Entry::intent(&id, &attachment.netns, &network, &attachment.args, &attachment.offered());
        self.detach(&entry)
    }

    /// DEL by a cache entry, which is removed after success.
    pub(super) fn detach(&self, entry: &Entry) -> Result<(), CniError> {
        let id = entry.id();
        let network = match entry.network() {
            Ok(network) => Arc::new(network),
            Err(damaged) => self.network().map_err(|_| damaged)?,
        };
        let netns = Path::new(&entry.netns);
        let there = Netns::open(netns).is_ok();
        let chain = Chain {
            id: Some(&id),
            // A namespace that is gone is no argument: some plugins stumble over a path without one.
            netns: there.then_some(netns),
            args: &entry.cni_args,
            capabilities: Some(&entry.capability_args),
            ..self.chain(&network)
        };
        chain.del(entry.result.as_ref())?;
        failpoint("DEL: detached");
        self.cache.remove(&entry.network_name, &id)
    }

    /// Checks that an attachment is as it was made.
    ///
    /// # Errors
    /// The plugin's; [`Code::UnknownContainer`] without a record; [`Code::IncompatibleVersion`] if the network is
    /// older than CHECK.
    pub fn check(&self, attachment: &Attachment) -> Result<(), CniError> {
        let id = attachment.id();
        let entry = self.cache.find(None, &id).filter(|entry| entry.result.is_some()).ok_or_else(|| {
            CniError::new(Code::UnknownContainer, format!("container {} is not attached", id.container_id))
        })?;
        let network = entry.network()?;
        if network.disable_check {
            return Ok(());
        }
        if !network.version.has_check() {
            let msg = format!("version {} has no CHECK", network.version);
            return Err(CniError::new(Code::IncompatibleVersion, msg).in_network("CHECK", &network.name));
        }
        let chain = Chain {
            id: Some(&id),
            netns: Some(&attachment.netns),
            args: &entry.cni_args,
            capabilities: Some(&entry.capability_args),
            ..self.chain(&network)
        };
        chain.check(entry.result.as_ref())
    }

    /// Would ADD of this attachment work?
    ///
    /// # Errors
    /// Why not.
    pub fn status_of(&self, attachment: &Attachment) -> Result<(), CniError> {
        let network = self.network_of(attachment)?;
        self.chain(&network).status()
    }

    /// Would ADD work?
    ///
    /// # Errors
    /// Why not.
    pub fn status(&self) -> Result<NetworkStatus, CniError> {
        let loaded = self.conf.load();
        let network = loaded.need_network(self.conf.path())?;
        self.chain(&network).status()?;
        Ok(NetworkStatus {
            network: network.name.clone(),
            plugins: network.plugins.iter().map(|plugin| plugin.kind.clone()).collect(),
            file: loaded.file.clone().unwrap_or_default(),
            broken: loaded.broken.clone(),
        })
    }
}

/// What the plugins do not do: that wishes came true, and the default routes that are wanted.
fn complete(attachment: &Attachment, network: &NetworkList, result: Value) -> Result<Value, CniError> {
    if attachment.wishes.is_empty() && attachment.gateways.is_none() {
        return Ok(result);
    }
    let mut read = CniResult::from_json(&result).map_err(|e| e.in_network("ADD", &network.name))?;
    wishes::fulfilled(&attachment.wishes, &attachment.ifname, network, &read)?;
    let Some(gateways) = &attachment.gateways else { return Ok(result) };
    gateways::set(&attachment.netns, &attachment.ifname, gateways, &mut read)
        .map_err(|e| e.in_network("ADD", &network.name))?;
    Ok(read.to_json(network.version))
}

fn join(first: &str, second: &str) -> String {
    if first.is_empty() {
        format!("undoing it failed: {second}")
    } else {
        format!("{first}; undoing it failed: {second}")
    }
}

/// Every sandbox has a loopback, whatever its network is.
fn loopback_up(attachment: &Attachment) -> Result<(), CniError> {
    let env = Env {
        command: Command::Add.text().to_owned(),
        container_id: attachment.container_id.clone(),
        netns: attachment.netns.display().to_string(),
        ifname: "lo".to_owned(),
        ..Env::default()
    };
    let config = json!({"cniVersion": Version::NEWEST.text(), "name": "loopback", "type": "loopback"});
    let plugin = plugins::find("loopback")
        .ok_or_else(|| CniError::new(Code::Internal, "the loopback plugin is not built in"))?;
    invoke::call(&invoke::Found::BuiltIn(plugin), "loopback", &env, config)
        .map(drop)
        .map_err(|e| e.in_network("ADD", "loopback"))
}
