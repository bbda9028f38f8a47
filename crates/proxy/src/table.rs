//! The nftables table of one instance, for one family.

use trine_kernel::netns::Netns;
use trine_kernel::nft::matches::family;
use trine_kernel::nft::{Batch, Nft, NftError};

use crate::config::{Ranges, table_name};
use crate::error::ProxyError;
use crate::plan::Action;
use crate::rules;

/// The table, through a socket of its own.
#[derive(Debug)]
pub(crate) struct Table {
    nft: Nft,
    name: String,
    v6: bool,
}

impl Table {
    /// Opens the table of `instance` in a network namespace, or in the calling thread's.
    pub(crate) fn open(instance: &str, v6: bool, netns: Option<&Netns>) -> Result<Self, ProxyError> {
        let name = table_name(instance);
        let nft = match netns {
            Some(netns) => Nft::open_in(netns),
            None => Nft::open(),
        };
        match nft {
            Ok(nft) => Ok(Self { nft, name, v6 }),
            Err(source) => Err(ProxyError::Table { call: "open", table: name, source }),
        }
    }

    fn error(&self, call: &'static str) -> impl FnOnce(NftError) -> ProxyError {
        let table = self.name.clone();
        move |source| ProxyError::Table { call, table, source }
    }

    /// Puts a whole new table in place of the old one, in one transaction.
    pub(crate) fn load(&mut self, ranges: &Ranges, actions: &[Action]) -> Result<(), ProxyError> {
        let mut batch = Batch::new(family(self.v6));
        rules::write_fixed(&mut batch, &self.name, ranges);
        rules::write_actions(&mut batch, &self.name, self.v6, actions);
        self.nft.commit(batch).map_err(self.error("load"))
    }

    /// Changes the table in one transaction.
    pub(crate) fn change(&mut self, actions: &[Action]) -> Result<(), ProxyError> {
        let mut batch = Batch::new(family(self.v6));
        rules::write_actions(&mut batch, &self.name, self.v6, actions);
        self.nft.commit(batch).map_err(self.error("change"))
    }

    /// True if the table is there with its entry chains (others flush whole rulesets).
    pub(crate) fn is_there(&mut self) -> Result<bool, ProxyError> {
        let chains = self.nft.chains(family(self.v6), &self.name).map_err(self.error("list"))?;
        Ok(chains.iter().any(|chain| chain.name == "prerouting"))
    }

    /// Removes the table; absent is success.
    pub(crate) fn delete(&mut self) -> Result<(), ProxyError> {
        let mut batch = Batch::new(family(self.v6));
        batch.delete_table(&self.name);
        match self.nft.commit(batch) {
            Err(error) if !error.is_absent() => Err(self.error("delete")(error)),
            _ => Ok(()),
        }
    }
}
