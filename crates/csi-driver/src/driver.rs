//! What every call works on.

use trine_ledger::{Durability, Ledger};

use crate::config::Config;
use crate::error::Cause;
use crate::locks::Locks;
use crate::plan::target::Target;
use crate::pool::Pool;

/// The driver without its sockets; all its calls block.
pub struct Driver {
    pub(crate) config: Config,
    pub(crate) pool: Pool,
    /// Published targets by path. Mounts die with the machine, and so do these records.
    pub(crate) targets: Ledger<Target>,
    pub(crate) locks: Locks,
}

impl Driver {
    /// Opens the pool and its records.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` if another driver has the pool; what the file system said.
    pub fn open(config: Config) -> Result<Self, Cause> {
        let pool = Pool::open(&config.pool_dir, config.pool, config.pool_bytes)?;
        let targets = Ledger::open(pool.home().join("targets.ledger"), Durability::ThisBoot)?;
        Ok(Self { config, pool, targets, locks: Locks::default() })
    }

    /// The recorded targets of volume `id`.
    pub(crate) fn targets_of(&self, id: &str) -> Vec<Target> {
        self.targets.all().into_values().filter(|t| t.volume == id).collect()
    }
}
