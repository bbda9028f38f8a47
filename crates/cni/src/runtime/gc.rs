//! GC: whatever is not named goes.

use std::collections::{BTreeMap, BTreeSet};

use super::cache::Entry;
use super::engine::Engine;
use crate::spec::{AttachmentId, CniError, NetworkList};

impl Engine {
    /// Detaches every recorded attachment that is not in `valid`, then lets the plugins of each network find what no
    /// record knows of. Nothing else may run meanwhile.
    ///
    /// # Errors
    /// All errors; it goes on after each.
    pub fn gc(&self, valid: &[AttachmentId]) -> Result<(), CniError> {
        let wanted: BTreeSet<&AttachmentId> = valid.iter().collect();
        let mut networks: BTreeMap<String, NetworkList> = BTreeMap::new();
        let mut errors = Vec::new();
        for entry in self.cache.all() {
            let network = entry.network().ok();
            if !wanted.contains(&entry.id()) && network.as_ref().is_none_or(|network| !network.disable_gc) {
                errors.extend(self.detach_stale(&entry).err());
            }
            networks.extend(network.map(|network| (network.name.clone(), network)));
        }
        // The configuration of now comes last: it is the one that the next ADD uses.
        if let Ok(network) = self.network() {
            networks.insert(network.name.clone(), (*network).clone());
        }
        errors.extend(networks.values().filter_map(|network| self.chain(network).gc(valid).err()));
        CniError::all(errors)
    }

    fn detach_stale(&self, entry: &Entry) -> Result<(), CniError> {
        tracing::info!(
            container = entry.container_id,
            link = entry.if_name,
            network = entry.network_name,
            "stale attachment is removed"
        );
        self.detach(entry)
    }
}
