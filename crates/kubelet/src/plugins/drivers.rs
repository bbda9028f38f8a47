//! The drivers that are registered on this node.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use tonic::transport::Channel;
use trine_contracts::csi;

use crate::error::KubeletError;

/// What a driver's node service can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Capabilities {
    /// Volumes are staged before they are published.
    pub stage: bool,
    /// It tells "one Pod" from "one node".
    pub single_writer: bool,
    /// It applies the fsGroup itself.
    pub mount_group: bool,
    /// It is told when a volume has become larger.
    pub expand: bool,
}

impl Capabilities {
    /// From what the driver says.
    #[must_use]
    pub fn of(response: &csi::NodeGetCapabilitiesResponse) -> Self {
        use csi::node_service_capability::{Type, rpc};
        let has = |kind: rpc::Type| {
            response
                .capabilities
                .iter()
                .any(|c| matches!(&c.r#type, Some(Type::Rpc(rpc)) if rpc.r#type == kind as i32))
        };
        Self {
            stage: has(rpc::Type::StageUnstageVolume),
            single_writer: has(rpc::Type::SingleNodeMultiWriter),
            mount_group: has(rpc::Type::VolumeMountGroup),
            expand: has(rpc::Type::ExpandVolume),
        }
    }
}

/// A registered driver.
#[derive(Debug, Clone)]
pub struct Driver {
    /// Its name.
    pub name: String,
    /// Its CSI socket.
    pub endpoint: PathBuf,
    /// The registration socket that named it.
    pub registration: PathBuf,
    /// What it can do.
    pub capabilities: Capabilities,
    /// The connection.
    pub channel: Channel,
}

/// All of them.
#[derive(Debug, Clone, Default)]
pub struct Drivers(Arc<Mutex<BTreeMap<String, Driver>>>);

impl Drivers {
    /// The driver `name`.
    ///
    /// # Errors
    /// [`KubeletError::Invalid`] if it is not registered.
    pub fn get(&self, name: &str) -> Result<Driver, KubeletError> {
        self.lock().get(name).cloned().ok_or_else(|| {
            KubeletError::Invalid(format!(
                "driver name {name} not found in the list of registered CSI drivers"
            ))
        })
    }

    /// Adds or replaces a driver.
    pub fn insert(&self, driver: Driver) {
        self.lock().insert(driver.name.clone(), driver);
    }

    /// Drops the driver that the socket `registration` named; returns its name.
    pub fn remove(&self, registration: &std::path::Path) -> Option<String> {
        let mut drivers = self.lock();
        let name = drivers.values().find(|d| d.registration == registration).map(|d| d.name.clone())?;
        drivers.remove(&name);
        Some(name)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Driver>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
