//! The executor: what the model says, done to the kernel.

use std::path::Path;

use trine_kernel::netlink::Route;
use trine_kernel::netns::Netns;
use trine_kernel::nft::held::{self, Held};
use trine_kernel::nft::matches::family;
use trine_kernel::nft::{Batch, Family, Nft, NftError};

use crate::config::{Config, table_name};
use crate::error::PolicyError;
use crate::model::Model;
use crate::plan::{Desired, changes, desired};
use crate::policy::Proto;
use crate::rules;
use crate::verdict::Talk;

/// The table of one family.
#[derive(Debug, Default)]
enum Table {
    /// Perhaps another process's.
    #[default]
    Unknown,
    /// None is needed.
    Absent,
    /// As it was made.
    There(Desired),
}

/// One node's policies, without the watches. Its calls block.
#[derive(Debug)]
pub struct Engine {
    config: Config,
    netns: Option<Netns>,
    nft: Nft,
    /// What is known of the cluster; feed it, then [`Engine::turn`].
    pub model: Model,
    tables: [Table; 2],
    settled: bool,
}

/// What a [`Engine::turn`] came to.
#[derive(Debug, Default)]
pub struct Turn {
    /// What was let go.
    pub freed: Vec<Held>,
    /// What is held on.
    pub waiting: Vec<Held>,
    /// Why the tables are not as they should be.
    pub failed: Option<PolicyError>,
}

impl Engine {
    /// Opens the kernel's side. From now on links of new Pods can be held; what is held already stays so.
    ///
    /// # Errors
    /// [`PolicyError::Netns`], [`PolicyError::Table`].
    pub fn open(config: Config) -> Result<Self, PolicyError> {
        let netns = config.netns.as_deref().map(Netns::open).transpose().map_err(PolicyError::Netns)?;
        let nft = open(netns.as_ref(), &config.instance)?;
        let mut engine =
            Self { config, netns, nft, model: Model::default(), tables: Default::default(), settled: false };
        engine.prepare()?;
        Ok(engine)
    }

    fn table(&self) -> String {
        table_name(&self.config.instance)
    }

    fn prepare(&mut self) -> Result<(), PolicyError> {
        let failed = held_error(&self.config.instance, "load");
        self.nft.prepare_held(&self.config.instance).map_err(failed)
    }

    /// Has the tables say what the model does, and then lets Pods go that were held for it. After a failure they are held on, and
    /// the next call tries the whole again.
    pub fn turn(&mut self) -> Turn {
        let mut turn = Turn::default();
        turn.failed = self.try_turn(&mut turn).err();
        turn
    }

    fn try_turn(&mut self, turn: &mut Turn) -> Result<(), PolicyError> {
        let failed = held_error(&self.config.instance, "list");
        turn.waiting = self.nft.held(&self.config.instance).map_err(failed)?;
        let judged = self.model.has_policies();
        let mut free = Vec::new();
        for link in &turn.waiting {
            if !judged || self.model.set_addresses(&link.pod_uid, &link.addresses) {
                free.push(link.clone());
            }
        }
        self.sync()?;
        for link in free {
            let failed = held_error(&self.config.instance, "change");
            self.nft.let_go(&self.config.instance, &link.link).map_err(failed)?;
            turn.waiting.retain(|held| *held != link);
            turn.freed.push(link);
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), PolicyError> {
        if !self.model.take_changed() && self.settled {
            return Ok(());
        }
        self.settled = false;
        self.model.begin_questions();
        let wanted = [false, true].map(|v6| desired(&mut self.model, &self.config.node_name, v6));
        self.model.end_questions();
        for (v6, wanted) in [false, true].into_iter().zip(wanted) {
            self.settle(v6, wanted)?;
        }
        self.settled = true;
        Ok(())
    }

    /// Makes the table of one family what is wanted.
    fn settle(&mut self, v6: bool, wanted: Option<Desired>) -> Result<(), PolicyError> {
        let now = &mut self.tables[usize::from(v6)];
        let Some(wanted) = wanted else {
            if !matches!(now, Table::Absent) {
                self.delete(v6)?;
            }
            return Ok(());
        };
        let Table::There(before) = now else { return self.load(v6, wanted) };
        let actions = changes(before, &wanted);
        if actions.is_empty() {
            return Ok(());
        }
        let table = self.table();
        let mut batch = Batch::new(family(v6));
        rules::write_actions(&mut batch, &table, &actions, v6);
        if let Err(error) = self.nft.commit(batch) {
            tracing::warn!(%error, cause = ?std::error::Error::source(&error), "the table is loaded anew");
            return self.load(v6, wanted);
        }
        let narrower = actions.iter().any(crate::plan::Action::narrows);
        self.tables[usize::from(v6)] = Table::There(wanted);
        if narrower { self.forget(v6) } else { Ok(()) }
    }

    /// Puts a whole new table in place of the old one, in one transaction.
    fn load(&mut self, v6: bool, wanted: Desired) -> Result<(), PolicyError> {
        self.tables[usize::from(v6)] = Table::Unknown;
        let table = self.table();
        let actions = changes(&Desired::default(), &wanted);
        let mut batch = Batch::new(family(v6));
        rules::write_fixed(&mut batch, &table, v6);
        rules::write_actions(&mut batch, &table, &actions, v6);
        self.nft.commit(batch).map_err(error("load", table))?;
        self.tables[usize::from(v6)] = Table::There(wanted);
        self.forget(v6)
    }

    fn delete(&mut self, v6: bool) -> Result<(), PolicyError> {
        let table = self.table();
        delete(&mut self.nft, family(v6), &table)?;
        self.tables[usize::from(v6)] = Table::Absent;
        Ok(())
    }

    /// Has datagrams' connections forgotten that are not allowed any more: what answers would keep them up. Where that fails the
    /// table counts as unknown, so that the next turn tries it again.
    fn forget(&mut self, v6: bool) -> Result<(), PolicyError> {
        self.forget_flows(v6).inspect_err(|_| self.tables[usize::from(v6)] = Table::Unknown)
    }

    fn forget_flows(&mut self, v6: bool) -> Result<(), PolicyError> {
        let Table::There(now) = &self.tables[usize::from(v6)] else { return Ok(()) };
        let table = self.table();
        let flows = self.nft.flows(family(v6)).map_err(error("list", table.clone()))?;
        for flow in flows.iter().filter(|flow| flow.proto == Proto::Udp as u8 && !now.allows(&Talk::of(flow)))
        {
            self.nft.forget(flow).map_err(error("change", table.clone()))?;
        }
        Ok(())
    }

    /// Looks whether the tables are still there, and makes them if not; lets go what is held of links that are gone. True if a
    /// table was gone.
    ///
    /// # Errors
    /// [`PolicyError`].
    pub fn verify(&mut self) -> Result<bool, PolicyError> {
        let mut lost = false;
        for v6 in [false, true] {
            if let Table::There(_) = self.tables[usize::from(v6)]
                && !self.is_there(family(v6), &self.table())?
            {
                self.tables[usize::from(v6)] = Table::Unknown;
                (self.settled, lost) = (false, true);
            }
        }
        let held = held::table_name(&self.config.instance);
        if !self.is_there(Family::Inet, &held)? {
            self.prepare()?;
            lost = true;
        }
        self.let_go_of_lost_links()?;
        Ok(lost)
    }

    fn is_there(&mut self, family: Family, table: &str) -> Result<bool, PolicyError> {
        let chains = self.nft.chains(family, table).map_err(error("list", table.to_owned()))?;
        Ok(chains.iter().any(|chain| chain.base.is_some()))
    }

    fn let_go_of_lost_links(&mut self) -> Result<(), PolicyError> {
        let instance = &self.config.instance;
        let held = self.nft.held(instance).map_err(held_error(instance, "list"))?;
        if held.is_empty() {
            return Ok(());
        }
        let route = self.netns.as_ref().map_or_else(Route::open, Route::open_in);
        let mut route = route.map_err(PolicyError::Links)?;
        for link in held {
            if route.find_link(&link.link).map_err(PolicyError::Links)?.is_none() {
                self.nft.let_go(instance, &link.link).map_err(held_error(instance, "change"))?;
            }
        }
        Ok(())
    }
}

fn open(netns: Option<&Netns>, instance: &str) -> Result<Nft, PolicyError> {
    netns.map_or_else(Nft::open, Nft::open_in).map_err(error("open", table_name(instance)))
}

fn error(call: &'static str, table: String) -> impl FnOnce(NftError) -> PolicyError {
    move |source| PolicyError::Table { call, table, source }
}

fn held_error(instance: &str, call: &'static str) -> impl FnOnce(NftError) -> PolicyError + use<> {
    error(call, held::table_name(instance))
}

fn delete(nft: &mut Nft, family: Family, table: &str) -> Result<(), PolicyError> {
    let mut batch = Batch::new(family);
    batch.delete_table(table);
    match nft.commit(batch) {
        Err(failed) if !failed.is_absent() => Err(error("delete", table.to_owned())(failed)),
        _ => Ok(()),
    }
}

/// Removes all tables of an instance from a network namespace (none: the calling thread's). Absent is success; all are tried,
/// and the first error is given.
///
/// # Errors
/// [`PolicyError`].
pub fn cleanup(instance: &str, netns: Option<&Path>) -> Result<(), PolicyError> {
    let netns = netns.map(Netns::open).transpose().map_err(PolicyError::Netns)?;
    let mut nft = open(netns.as_ref(), instance)?;
    let policies = [Family::Ip, Family::Ip6].map(|family| delete(&mut nft, family, &table_name(instance)));
    let held = delete(&mut nft, Family::Inet, &held::table_name(instance));
    policies.into_iter().fold(held, Result::and)
}
