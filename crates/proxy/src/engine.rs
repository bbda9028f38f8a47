//! The executor: what the model says, done to the kernel.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use trine_kernel::netns::Netns;
use trine_kernel::sysctl;

use crate::config::Config;
use crate::error::ProxyError;
use crate::model::{Model, ServiceKey};
use crate::plan::{Action, Plan};
use crate::table::Table;
use crate::{ranges, routes};

/// One node's proxy, without the watches. Its calls block.
#[derive(Debug)]
pub struct Engine {
    config: Config,
    netns: Option<Netns>,
    /// What is known of the cluster; feed it, then [`Engine::sync`].
    pub model: Model,
    plan: Plan,
    table: Table,
    loaded: bool,
}

/// What a [`Engine::sync`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Synced {
    /// How many Services were looked at.
    pub services: usize,
    /// How many elements changed.
    pub elements: usize,
}

fn open_netns(path: Option<&Path>) -> Result<Option<Netns>, ProxyError> {
    path.map(Netns::open).transpose().map_err(ProxyError::Netns)
}

impl Engine {
    /// Opens the kernel's side; changes nothing yet.
    ///
    /// # Errors
    /// [`ProxyError::Netns`], [`ProxyError::Table`].
    pub fn new(config: Config) -> Result<Self, ProxyError> {
        let netns = open_netns(config.netns.as_deref())?;
        let table = Table::open(&config.instance, netns.as_ref())?;
        let plan = Plan::new(&config.node_name, config.own_pods(), config.service_cidr);
        Ok(Self { config, netns, model: Model::default(), plan, table, loaded: false })
    }

    /// Switches forwarding on and guards the ranges of Pods and Services. Repeatable.
    ///
    /// # Errors
    /// [`ProxyError::Forwarding`], [`ProxyError::Routes`].
    pub fn guard(&self) -> Result<(), ProxyError> {
        let forward = || sysctl::ensure("net/ipv4/ip_forward", "1");
        match &self.netns {
            Some(netns) => netns.run(forward).map_err(ProxyError::Netns)?,
            None => forward(),
        }
        .map_err(ProxyError::Forwarding)?;
        let source = self.config.node_ips.iter().copied().find(std::net::IpAddr::is_ipv4);
        let wanted =
            ranges::wanted(&self.config.instance, self.config.pod_cidr, self.config.service_cidr, source);
        routes::ensure(&self.config.instance, self.netns.as_ref(), &wanted)
    }

    /// Does what the model asks for since the last call: the first time, and after a failure, the whole table anew.
    ///
    /// # Errors
    /// [`ProxyError::Table`]; the next call tries the whole again.
    pub fn sync(&mut self) -> Result<Synced, ProxyError> {
        let dirty = self.model.take_dirty();
        for key in &dirty {
            self.plan.set(key, self.model.service(key));
        }
        let elements = if self.loaded {
            let actions = self.plan.take_actions();
            match self.table.change(&actions) {
                Ok(()) => actions.len(),
                Err(error) => {
                    tracing::warn!(%error, cause = ?std::error::Error::source(&error), "the table is loaded anew");
                    self.load()?
                }
            }
        } else {
            self.load()?
        };
        Ok(Synced { services: dirty.len(), elements })
    }

    /// True once the table was loaded whole.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.loaded
    }

    fn load(&mut self) -> Result<usize, ProxyError> {
        self.loaded = false;
        let actions: Vec<Action> = self.plan.everything();
        self.table.load(&self.config, &actions)?;
        self.loaded = true;
        Ok(actions.len())
    }

    /// Looks whether the table and the routes are still there, and makes them if not. True if the table was gone.
    ///
    /// # Errors
    /// [`ProxyError`].
    pub fn verify(&mut self) -> Result<bool, ProxyError> {
        self.guard()?;
        if !self.loaded || self.table.is_there()? {
            return Ok(false);
        }
        self.load()?;
        Ok(true)
    }

    /// The Pods which take traffic of these Services.
    #[must_use]
    pub fn pods_of(&self, services: &BTreeSet<ServiceKey>) -> BTreeSet<Arc<str>> {
        let slices = services.iter().filter_map(|key| self.model.service(key)).flat_map(|(_, slices)| slices);
        let endpoints = slices.flat_map(|slice| &slice.endpoints).filter(|e| e.ready);
        endpoints.filter_map(|e| e.pod.clone()).collect()
    }
}

/// Removes the table and the routes of an instance from a network namespace (none: the calling thread's). Absent is
/// success; both are tried, and the first error is given.
///
/// # Errors
/// [`ProxyError`].
pub fn cleanup(instance: &str, netns: Option<&Path>) -> Result<(), ProxyError> {
    let netns = open_netns(netns)?;
    let table = Table::open(instance, netns.as_ref()).and_then(|mut table| table.delete());
    let routes = routes::ensure(instance, netns.as_ref(), &[]);
    table.and(routes)
}
