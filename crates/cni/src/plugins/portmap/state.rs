//! The table as it is in the kernel, changed by one at a time.

use std::fs::File;

use trine_kernel::nft::{Batch, Family, Flow, Nft, NftError};

use super::plan::{Mapping, Present};
use super::rules::{DEVICES, OWNERS, TARGETS};
use crate::plugins::owner::{self, Owner, value};
use crate::spec::CniError;

/// The table of one family; no other is changed in its network namespace for as long as this lives.
pub struct Table {
    nft: Nft,
    name: String,
    family: Family,
    _lock: File,
}

impl Table {
    /// Waits for its turn.
    ///
    /// # Errors
    /// If the lock cannot be had, or what netlink says.
    pub fn lock(name: &str, family: Family) -> Result<Self, CniError> {
        let lock = owner::lock_tables()?;
        Ok(Self { nft: Nft::open()?, name: name.to_owned(), family, _lock: lock })
    }

    /// What is in it; nothing if it is absent.
    ///
    /// # Errors
    /// [`NftError`].
    pub fn present(&mut self) -> Result<Present, NftError> {
        if !self.nft.tables(self.family)?.contains(&self.name) {
            return Ok(Present::default());
        }
        let mut elements = |set| self.nft.elements(self.family, &self.name, set);
        let mappings = elements(TARGETS)?;
        let owners = elements(OWNERS)?;
        let devices = elements(DEVICES)?;
        Ok(Present {
            mappings: mappings.iter().filter_map(|e| Mapping::read(&e.key, value(e)?)).collect(),
            owners: owners
                .into_iter()
                .filter_map(|e| Owner::read(value(&e)?).map(|owner| (e.key, owner)))
                .collect(),
            devices: devices
                .iter()
                .filter_map(|e| {
                    Some((Owner::read(&e.key)?, u32::from_ne_bytes(e.key.get(16..20)?.try_into().ok()?)))
                })
                .collect(),
        })
    }

    /// Changes it.
    ///
    /// # Errors
    /// [`NftError`]; nothing has changed then.
    pub fn commit(&mut self, batch: Batch) -> Result<(), NftError> {
        self.nft.commit(batch)
    }

    /// Has the connections forgotten that `which` names.
    ///
    /// # Errors
    /// [`NftError`].
    pub fn forget(&mut self, which: impl Fn(&Flow) -> bool) -> Result<(), NftError> {
        for flow in self.nft.flows(self.family)?.iter().filter(|flow| which(flow)) {
            self.nft.forget(flow)?;
        }
        Ok(())
    }
}
