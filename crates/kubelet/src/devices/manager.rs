//! Makes devices ready before a Pod's containers are made, and takes them back when it has ended.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;
use tracing::field::Empty;
use trine_contracts::dra;
use trine_typed::k8s_openapi::api::core::v1::{Container, Pod, PodStatus};
use trine_typed::k8s_openapi::api::resource::v1::ResourceClaim;
use trine_typed::kube::{Api, Client};

use super::drivers::DeviceDrivers;
use super::plan;
use super::record::{Device, Record};
use crate::error::{KubeletError, api};
use crate::pod::spec;
use crate::step::traced;
use crate::wake::Wakers;

/// The devices of this node's Pods.
pub struct Devices {
    client: Client,
    drivers: DeviceDrivers,
    root: PathBuf,
    record: Mutex<Record>,
    /// One change at a time: a claim may be several Pods'.
    turn: tokio::sync::Mutex<()>,
}

impl Devices {
    /// With what was written down before.
    ///
    /// # Errors
    /// [`KubeletError`] if that cannot be read.
    pub fn new(client: Client, drivers: DeviceDrivers, root: &Path) -> Result<Self, KubeletError> {
        let record = Mutex::new(Record::read(root)?);
        Ok(Self { client, drivers, root: root.to_owned(), record, turn: tokio::sync::Mutex::default() })
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the devices of a Pod's claims made ready, unless they are.
    ///
    /// # Errors
    /// Something is missing, or a driver fails.
    pub async fn prepare(&self, pod: &Pod) -> Result<(), KubeletError> {
        if plan::asks_none(pod) || plan::is_ready(pod, &self.record()) {
            return Ok(());
        }
        let _turn = self.turn.lock().await;
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let claims: Api<ResourceClaim> = Api::namespaced(self.client.clone(), namespace);
        let mut record = self.record().clone();
        for wanted in plan::wanted(pod).map_err(KubeletError::NotYet)? {
            let claim = api("get ResourceClaim", &wanted.name, claims.get(&wanted.name)).await?;
            plan::note(pod, &wanted, &claim, &mut record).map_err(KubeletError::NotYet)?;
        }
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let missing =
            record.of_pod(uid).flat_map(|claim| &claim.drivers).filter(|(_, ready)| ready.is_none());
        for (driver, _) in missing {
            // What nobody was asked for need not be taken back.
            self.drivers.get(driver)?;
        }
        self.write(&record)?;
        let mut by_driver: BTreeMap<String, Vec<dra::Claim>> = BTreeMap::new();
        for claim in record.of_pod(uid) {
            for (driver, ready) in &claim.drivers {
                if ready.is_none() {
                    by_driver.entry(driver.clone()).or_default().push(dra::Claim {
                        namespace: claim.namespace.clone(),
                        uid: claim.uid.clone(),
                        name: claim.name.clone(),
                    });
                }
            }
        }
        for (driver, claims) in by_driver {
            let span = tracing::info_span!(target: "trine::step", "NodePrepareResources", plane = "kubelet",
                pod_uid = uid, detail = %driver, error = Empty);
            let ready = traced(span, self.prepare_by(&driver, claims)).await?;
            for (claim, devices) in ready {
                if let Some(claim) = record.claims.get_mut(&claim) {
                    claim.drivers.insert(driver.clone(), Some(devices));
                }
            }
            self.write(&record)?;
        }
        Ok(())
    }

    /// What a driver made ready, by the claims' UIDs.
    async fn prepare_by(
        &self,
        driver: &str,
        claims: Vec<dra::Claim>,
    ) -> Result<Vec<(String, Vec<Device>)>, KubeletError> {
        let mut answers = self.drivers.get(driver)?.prepare(claims.clone()).await?.claims;
        let mut ready = Vec::new();
        for claim in claims {
            let name = format!("{}/{}", claim.namespace, claim.name);
            let failed = |why: &str| {
                KubeletError::Invalid(format!("NodePrepareResources failed for ResourceClaim {name}: {why}"))
            };
            let answer =
                answers.remove(&claim.uid).ok_or_else(|| failed("the driver does not tell of it"))?;
            if !answer.error.is_empty() {
                return Err(failed(&answer.error));
            }
            let device = |device: dra::Device| Device {
                pool: device.pool_name,
                name: device.device_name,
                requests: device.request_names,
                cdi_devices: device.cdi_device_ids,
            };
            ready.push((claim.uid, answer.devices.into_iter().map(device).collect()));
        }
        Ok(ready)
    }

    /// What the runtime is told for a container.
    #[must_use]
    pub fn cdi_devices(&self, pod: &Pod, container: &Container) -> Vec<String> {
        if plan::asks_none(pod) { Vec::new() } else { plan::cdi_devices(pod, container, &self.record()) }
    }

    /// Writes into a Pod's status how the devices of its containers are.
    pub fn show_health(&self, pod: &Pod, status: &mut PodStatus) {
        if plan::asked(pod).is_empty() {
            return;
        }
        let record = self.record();
        for shown in status.container_statuses.iter_mut().flatten() {
            let Some(container) = spec::containers(pod).iter().find(|c| c.name == shown.name) else {
                continue;
            };
            let told = |driver: &str, pool: &str, device: &str| self.drivers.health.of(driver, pool, device);
            let all = plan::health(pod, container, &record, told);
            shown.allocated_resources_status = (!all.is_empty()).then_some(all);
        }
    }

    /// Wakes the Pods with devices whenever these may be otherwise than before.
    pub async fn watch_health(self: Arc<Self>, wakers: Wakers, stop: CancellationToken) {
        while stop.run_until_cancelled(self.drivers.health.changed()).await.is_some() {
            self.pods().iter().for_each(|pod| wakers.wake(pod));
        }
    }

    /// A Pod has ended: devices that no other uses are taken back.
    ///
    /// # Errors
    /// A driver fails; it has to be tried again.
    pub async fn unprepare(&self, pod: &str) -> Result<(), KubeletError> {
        if self.record().of_pod(pod).next().is_none() {
            return Ok(());
        }
        let _turn = self.turn.lock().await;
        let mut record = self.record().clone();
        let mut last: BTreeMap<String, Vec<dra::Claim>> = BTreeMap::new();
        for claim in record.of_pod(pod).filter(|claim| claim.pods.len() == 1) {
            for driver in claim.drivers.keys() {
                last.entry(driver.clone()).or_default().push(dra::Claim {
                    namespace: claim.namespace.clone(),
                    uid: claim.uid.clone(),
                    name: claim.name.clone(),
                });
            }
        }
        let mut result = Ok(());
        for (driver, claims) in last {
            let span = tracing::info_span!(target: "trine::step", "NodeUnprepareResources", plane = "kubelet",
                pod_uid = pod, detail = %driver, error = Empty);
            match traced(span, self.unprepare_by(&driver, claims)).await {
                Ok(done) => {
                    for uid in done {
                        if let Some(claim) = record.claims.get_mut(&uid) {
                            claim.drivers.remove(&driver);
                        }
                    }
                    self.write(&record)?;
                }
                Err(error) => result = Err(error),
            }
        }
        for claim in record.claims.values_mut() {
            // Who is the only one stays until all drivers have taken everything back.
            if claim.pods.len() > 1 || claim.drivers.is_empty() {
                claim.pods.remove(pod);
            }
        }
        record.claims.retain(|_, claim| !claim.pods.is_empty());
        self.write(&record)?;
        result
    }

    /// The UIDs of the claims of which a driver took everything back.
    async fn unprepare_by(&self, driver: &str, claims: Vec<dra::Claim>) -> Result<Vec<String>, KubeletError> {
        let answers = self.drivers.get(driver)?.unprepare(claims.clone()).await?.claims;
        let mut done = Vec::new();
        for claim in claims {
            let name = format!("{}/{}", claim.namespace, claim.name);
            let why = match answers.get(&claim.uid) {
                Some(answer) if answer.error.is_empty() => {
                    done.push(claim.uid);
                    continue;
                }
                Some(answer) => answer.error.as_str(),
                None => "the driver does not tell of it",
            };
            let text = format!("NodeUnprepareResources failed for ResourceClaim {name}: {why}");
            return Err(KubeletError::Invalid(text));
        }
        Ok(done)
    }

    /// The Pods that use devices.
    #[must_use]
    pub fn pods(&self) -> Vec<String> {
        self.record().claims.values().flat_map(|claim| claim.pods.iter().cloned()).collect()
    }

    fn write(&self, record: &Record) -> Result<(), KubeletError> {
        record.write(&self.root)?;
        *self.record() = record.clone();
        Ok(())
    }
}
