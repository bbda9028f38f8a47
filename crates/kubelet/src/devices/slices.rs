//! What drivers offer on this node goes when they do not come back: nobody would make it ready.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use trine_typed::k8s_openapi::api::resource::v1::ResourceSlice;
use trine_typed::kube::api::{DeleteParams, ListParams};
use trine_typed::kube::{Api, Client};

use super::drivers::DeviceDrivers;

/// How long a driver may be away. Upstream: `defaultWipingDelay`.
const AWAY: Duration = Duration::from_secs(30);
/// First and longest pause between attempts.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Takes what drivers offered away.
#[derive(Clone)]
pub struct Slices {
    client: Client,
    node: String,
    drivers: DeviceDrivers,
    stop: CancellationToken,
}

impl Slices {
    /// Of a node.
    #[must_use]
    pub fn new(client: Client, node: &str, drivers: DeviceDrivers, stop: CancellationToken) -> Self {
        Self { client, node: node.to_owned(), drivers, stop }
    }

    /// A driver is gone: what it offers goes, unless it is back in time.
    pub fn driver_gone(&self, driver: String) {
        let this = self.clone();
        tokio::spawn(self.stop.clone().run_until_cancelled_owned(async move {
            tokio::time::sleep(AWAY).await;
            if !this.drivers.has(&driver) {
                this.wipe(Some(&driver)).await;
            }
        }));
    }

    /// The kubelet begins: it knows no driver, and each that registers offers anew.
    pub fn begin(&self) {
        let this = self.clone();
        tokio::spawn(self.stop.clone().run_until_cancelled_owned(async move { this.wipe(None).await }));
    }

    /// Of a driver, or of all; tried until it is done or the driver is back.
    async fn wipe(&self, driver: Option<&str>) {
        let slices: Api<ResourceSlice> = Api::all(self.client.clone());
        let fields = match driver {
            Some(driver) => format!("spec.nodeName={},spec.driver={driver}", self.node),
            None => format!("spec.nodeName={}", self.node),
        };
        let list = ListParams::default().fields(&fields);
        let mut pause = PAUSE.0;
        loop {
            match slices.delete_collection(&DeleteParams::default(), &list).await {
                Ok(_) => return,
                Err(error) => tracing::debug!(%error, fields, "slices of devices not removed"),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE.1);
            if driver.is_some_and(|driver| self.drivers.has(driver)) {
                return;
            }
        }
    }
}
