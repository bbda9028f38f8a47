//! The drivers of devices that are registered on this node.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinHandle;
use tonic::transport::Channel;
use trine_contracts::dra::dra_plugin_client::DraPluginClient;
use trine_contracts::dra_v1beta1::dra_plugin_client::DraPluginClient as OlderClient;
use trine_contracts::{dra, socket};

use super::health::{Health, Service};
use crate::error::{KubeletError, answered};

/// Deadline of each call. Upstream: `DefaultClientCallTimeout`.
const TIMEOUT: Duration = Duration::from_secs(45);
/// Under these names a driver says which calls it knows; the first that it names is used.
const VERSIONS: [(&str, Version); 2] =
    [("v1.DRAPlugin", Version::V1), ("v1beta1.DRAPlugin", Version::V1Beta1)];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    V1,
    V1Beta1,
}

/// A registered driver.
#[derive(Debug, Clone)]
pub struct DeviceDriver {
    name: String,
    /// The registration socket that named it.
    registration: PathBuf,
    version: Version,
    channel: Channel,
    /// Listens to what it says of its devices, until it is dropped.
    _listening: Option<Arc<Listening>>,
}

/// A task that ends with it.
#[derive(Debug)]
struct Listening(JoinHandle<()>);

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// All of them; of one name there may be several while it is being replaced.
#[derive(Debug, Clone, Default)]
pub struct DeviceDrivers {
    drivers: Arc<Mutex<BTreeMap<String, Vec<DeviceDriver>>>>,
    /// How their devices are.
    pub health: Health,
}

impl DeviceDrivers {
    /// Adds a driver, which is used from now on.
    ///
    /// # Errors
    /// [`KubeletError::Invalid`] if it knows none of the calls.
    pub fn insert(
        &self,
        name: &str,
        endpoint: &Path,
        registration: &Path,
        versions: &[String],
    ) -> Result<(), KubeletError> {
        let known = VERSIONS.iter().find(|(version, _)| versions.iter().any(|said| said == version));
        let Some((_, version)) = known else {
            let versions = versions.join(", ");
            return Err(KubeletError::Invalid(format!("none of the versions {versions} is supported")));
        };
        let channel = socket::connect(endpoint);
        let listen = |service| {
            let (name, registration) = (name.to_owned(), registration.to_owned());
            let listening = self.health.clone().listen(name, registration, service, channel.clone());
            Arc::new(Listening(tokio::spawn(listening)))
        };
        let driver = DeviceDriver {
            name: name.to_owned(),
            registration: registration.to_owned(),
            version: *version,
            _listening: Service::of(versions).map(listen),
            channel,
        };
        let mut drivers = self.lock();
        let of_name = drivers.entry(name.to_owned()).or_default();
        of_name.retain(|other| other.registration != registration);
        of_name.push(driver);
        Ok(())
    }

    /// Drops the driver that the socket `registration` named; returns its name if there is no other of it.
    pub fn remove(&self, registration: &Path) -> Option<String> {
        let mut drivers = self.lock();
        let has =
            |of_name: &Vec<DeviceDriver>| of_name.iter().any(|driver| driver.registration == registration);
        let name = drivers.iter().find(|(_, of_name)| has(of_name)).map(|(name, _)| name.clone())?;
        let of_name = drivers.get_mut(&name)?;
        of_name.retain(|driver| driver.registration != registration);
        if !of_name.is_empty() {
            return None;
        }
        drivers.remove(&name);
        Some(name)
    }

    /// Whether there is one of this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.lock().contains_key(name)
    }

    /// The driver `name`: of several the one that came last.
    ///
    /// # Errors
    /// [`KubeletError::NotYet`] if it is not registered.
    pub fn get(&self, name: &str) -> Result<DeviceDriver, KubeletError> {
        let last = self.lock().get(name).and_then(|of_name| of_name.last().cloned());
        last.ok_or_else(|| KubeletError::NotYet(format!("DRA driver {name} is not registered")))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Vec<DeviceDriver>>> {
        self.drivers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DeviceDriver {
    /// Makes devices of claims ready.
    ///
    /// # Errors
    /// The driver does not, or does not answer.
    pub async fn prepare(
        &self,
        claims: Vec<dra::Claim>,
    ) -> Result<dra::NodePrepareResourcesResponse, KubeletError> {
        let request = dra::NodePrepareResourcesRequest { claims };
        let call = async {
            match self.version {
                Version::V1 => {
                    DraPluginClient::new(self.channel.clone()).node_prepare_resources(request).await
                }
                Version::V1Beta1 => {
                    OlderClient::new(self.channel.clone()).node_prepare_resources(request).await
                }
            }
        };
        self.call("NodePrepareResources", call).await
    }

    /// Takes devices of claims back.
    ///
    /// # Errors
    /// The driver does not, or does not answer.
    pub async fn unprepare(
        &self,
        claims: Vec<dra::Claim>,
    ) -> Result<dra::NodeUnprepareResourcesResponse, KubeletError> {
        let request = dra::NodeUnprepareResourcesRequest { claims };
        let call = async {
            match self.version {
                Version::V1 => {
                    DraPluginClient::new(self.channel.clone()).node_unprepare_resources(request).await
                }
                Version::V1Beta1 => {
                    OlderClient::new(self.channel.clone()).node_unprepare_resources(request).await
                }
            }
        };
        self.call("NodeUnprepareResources", call).await
    }

    async fn call<T>(
        &self,
        call: &'static str,
        future: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
    ) -> Result<T, KubeletError> {
        let of = |source| KubeletError::Devices { call, driver: self.name.clone(), source };
        answered(TIMEOUT, future).await.map_err(of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_one_that_came_last_is_used_and_the_name_goes_with_the_last_one() {
        let drivers = DeviceDrivers::default();
        let insert = |socket: &str, versions: &[&str]| {
            let versions: Vec<String> = versions.iter().map(|v| (*v).to_owned()).collect();
            drivers.insert("gpu", Path::new("/none"), Path::new(socket), &versions)
        };
        assert!(insert("/a", &["v2.DRAPlugin"]).is_err());
        assert!(drivers.get("gpu").is_err());
        insert("/a", &["v1beta1.DRAPlugin"]).unwrap();
        insert("/b", &["v1beta1.DRAPlugin", "v1.DRAPlugin"]).unwrap();
        assert_eq!(drivers.get("gpu").unwrap().version, Version::V1);
        assert_eq!(drivers.remove(Path::new("/b")), None, "there is the other one");
        assert_eq!(drivers.get("gpu").unwrap().version, Version::V1Beta1);
        assert_eq!(drivers.remove(Path::new("/c")), None);
        assert_eq!(drivers.remove(Path::new("/a")).as_deref(), Some("gpu"));
        assert!(!drivers.has("gpu"));
    }
}
