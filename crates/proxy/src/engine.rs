//! The executor: what the model says, done to the kernel.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use trine_kernel::netns::Netns;
use trine_kernel::sysctl;

use crate::config::{Config, Ranges};
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
    shares: Vec<Share>,
}

/// What the node has of one family.
#[derive(Debug)]
struct Share {
    ranges: Ranges,
    plan: Plan,
    table: Table,
    loaded: bool,
}

impl Share {
    /// Does what the plan asks for; says how many elements changed.
    fn sync(&mut self) -> Result<usize, ProxyError> {
        if !self.loaded {
            return self.load();
        }
        let actions = self.plan.take_actions();
        if actions.is_empty() {
            return Ok(0);
        }
        match self.table.change(&actions) {
            Ok(()) => Ok(actions.len()),
            Err(error) => {
                tracing::warn!(%error, cause = ?std::error::Error::source(&error), "the table is loaded anew");
                self.load()
            }
        }
    }

    fn load(&mut self) -> Result<usize, ProxyError> {
        self.loaded = false;
        let actions: Vec<Action> = self.plan.everything();
        self.table.load(&self.ranges, &actions)?;
        self.loaded = true;
        Ok(actions.len())
    }

    /// True if the table was gone, and is there again.
    fn verify(&mut self) -> Result<bool, ProxyError> {
        if !self.loaded || self.table.is_there()? {
            return Ok(false);
        }
        self.load().map(|_| true)
    }
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
        let shares = config.ranges.iter().map(|ranges| {
            let plan = Plan::new(&config.node_name, ranges.own_pods(), ranges.services);
            let table = Table::open(&config.instance, ranges.v6(), netns.as_ref())?;
            Ok(Share { ranges: *ranges, plan, table, loaded: false })
        });
        let shares = shares.collect::<Result<_, ProxyError>>()?;
        Ok(Self { config, netns, model: Model::default(), shares })
    }

    /// Switches forwarding on and guards the ranges of Pods and Services. Repeatable.
    ///
    /// # Errors
    /// [`ProxyError::Forwarding`], [`ProxyError::Routes`].
    pub fn guard(&self) -> Result<(), ProxyError> {
        let families: BTreeSet<bool> = self.config.ranges.iter().map(Ranges::v6).collect();
        let forward = || families.iter().try_for_each(|v6| sysctl::forward(*v6));
        match &self.netns {
            Some(netns) => netns.run(forward).map_err(ProxyError::Netns)?,
            None => forward(),
        }
        .map_err(ProxyError::Forwarding)?;
        let wanted = self
            .config
            .ranges
            .iter()
            .flat_map(|r| ranges::wanted(&self.config.instance, r, &self.config.node_ips));
        routes::ensure(&self.config.instance, self.netns.as_ref(), &wanted.collect::<Vec<_>>())
    }

    /// Does what the model asks for since the last call: the first time, and after a failure, the whole table anew.
    ///
    /// # Errors
    /// [`ProxyError::Table`]; the next call tries the whole again.
    pub fn sync(&mut self) -> Result<Synced, ProxyError> {
        let dirty = self.model.take_dirty();
        let mut synced = Synced { services: dirty.len(), elements: 0 };
        for key in &dirty {
            self.shares.iter_mut().for_each(|share| share.plan.set(key, self.model.service(key)));
        }
        for share in &mut self.shares {
            synced.elements += share.sync()?;
        }
        Ok(synced)
    }

    /// True once all tables were loaded whole.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.shares.iter().all(|share| share.loaded)
    }

    /// Looks whether the tables and the routes are still there, and makes them if not. True if a table was gone.
    ///
    /// # Errors
    /// [`ProxyError`].
    pub fn verify(&mut self) -> Result<bool, ProxyError> {
        self.guard()?;
        let mut gone = false;
        for share in &mut self.shares {
            gone |= share.verify()?;
        }
        Ok(gone)
    }

    /// The Pods which take traffic of these Services.
    #[must_use]
    pub fn pods_of(&self, services: &BTreeSet<ServiceKey>) -> BTreeSet<Arc<str>> {
        let slices = services.iter().filter_map(|key| self.model.service(key)).flat_map(|(_, slices)| slices);
        let endpoints = slices.flat_map(|slice| &slice.endpoints).filter(|e| e.ready);
        endpoints.filter_map(|e| e.pod.clone()).collect()
    }
}

/// Removes the tables and the routes of an instance from a network namespace (none: the calling thread's). Absent is
/// success; all are tried, and the first error is given.
///
/// # Errors
/// [`ProxyError`].
pub fn cleanup(instance: &str, netns: Option<&Path>) -> Result<(), ProxyError> {
    let netns = open_netns(netns)?;
    let table = |v6| Table::open(instance, v6, netns.as_ref()).and_then(|mut table| table.delete());
    let tables = [false, true].map(table);
    let routes = routes::ensure(instance, netns.as_ref(), &[]);
    tables.into_iter().chain([routes]).collect()
}
