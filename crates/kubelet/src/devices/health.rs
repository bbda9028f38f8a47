//! What drivers say of how their devices are (KEP-4680): it is shown in the status of the containers that have them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};
use trine_contracts::dra_health::dra_resource_health_client::DraResourceHealthClient;
use trine_contracts::dra_health::{
    DeviceHealth, HealthStatus, NodeWatchResourcesRequest, NodeWatchResourcesResponse,
};
use trine_contracts::dra_health_v1alpha1::dra_resource_health_client::DraResourceHealthClient as OlderClient;

/// How long what was said holds if the driver does not say. Upstream: `DefaultHealthTimeout`.
pub const HOLDS: Duration = Duration::from_secs(30);
/// The pause before a driver is asked again. Upstream: 5 s.
const PAUSE: Duration = Duration::from_secs(5);
/// Devices of a driver of which it is kept. Upstream: `maxDevicesPerDriver`.
const MOST: usize = 16_384;
/// Longest message, bytes. Upstream: `ResourceHealthMessageMaxLength`.
const MESSAGE: usize = 1024;

/// Which call a driver knows; the first that it names is used.
const SERVICES: [(&str, Service); 2] =
    [("v1.DRAResourceHealth", Service::V1), ("v1alpha1.DRAResourceHealth", Service::V1Alpha1)];

/// A call by which a driver says how its devices are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// Of `v1`.
    V1,
    /// Of `v1alpha1`.
    V1Alpha1,
}

impl Service {
    /// The one to use of a driver; none if it says nothing of devices.
    #[must_use]
    pub fn of(versions: &[String]) -> Option<Self> {
        SERVICES
            .iter()
            .find(|(name, _)| versions.iter().any(|said| said == name))
            .map(|(_, service)| *service)
    }
}

/// What was said of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Said {
    health: HealthStatus,
    message: Option<String>,
    holds: Duration,
    at: Instant,
}

/// What one instance of a driver has said, by pool and device.
type Devices = BTreeMap<(String, String), Said>;

/// What all have said, by driver and the socket by which it registered.
#[derive(Debug, Clone, Default)]
pub struct Health {
    said: Arc<Mutex<BTreeMap<String, BTreeMap<PathBuf, Devices>>>>,
    news: Arc<Notify>,
}

impl Health {
    /// How a device is, in the API's words, and what its driver adds.
    #[must_use]
    pub fn of(&self, driver: &str, pool: &str, device: &str) -> (&'static str, Option<String>) {
        let key = (pool.to_owned(), device.to_owned());
        let said = self.lock();
        let all =
            said.get(driver).into_iter().flat_map(BTreeMap::values).filter_map(|devices| devices.get(&key));
        match all.filter(|said| said.at.elapsed() <= said.holds).max_by_key(|said| said.at) {
            Some(Said { health: HealthStatus::Healthy, message, .. }) => ("Healthy", message.clone()),
            Some(Said { health: HealthStatus::Unhealthy, message, .. }) => ("Unhealthy", message.clone()),
            Some(Said { message, .. }) => ("Unknown", message.clone()),
            None => ("Unknown", None),
        }
    }

    /// Ends when something else may be true of a device than before.
    pub async fn changed(&self) {
        // What was said and does not hold any more is not told by anybody.
        let known = !self.lock().is_empty();
        if known {
            let _ = tokio::time::timeout(HOLDS, self.news.notified()).await;
        } else {
            self.news.notified().await;
        }
    }

    /// Listens to a driver for as long as it is registered.
    pub async fn listen(self, driver: String, registration: PathBuf, service: Service, channel: Channel) {
        loop {
            let ended = self.once(&driver, &registration, service, channel.clone()).await;
            self.forget(&driver, &registration);
            match ended {
                // It names the service and does not have it.
                Err(status) if status.code() == Code::Unimplemented => return,
                Err(error) => tracing::debug!(driver, %error, "the driver says nothing of its devices"),
                Ok(()) => {}
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn once(
        &self,
        driver: &str,
        registration: &Path,
        service: Service,
        channel: Channel,
    ) -> Result<(), Status> {
        let request = NodeWatchResourcesRequest {};
        let mut stream: Streaming<NodeWatchResourcesResponse> = match service {
            Service::V1 => DraResourceHealthClient::new(channel).node_watch_resources(request).await?,
            Service::V1Alpha1 => OlderClient::new(channel).node_watch_resources(request).await?,
        }
        .into_inner();
        while let Some(report) = stream.message().await? {
            self.take(driver, registration, report.devices);
        }
        Ok(())
    }

    /// Takes a report, which tells of all devices of a driver.
    fn take(&self, driver: &str, registration: &Path, report: Vec<DeviceHealth>) {
        let mut said = self.lock();
        let devices = said.entry(driver.to_owned()).or_default().entry(registration.to_owned()).or_default();
        let before = devices.len();
        devices.retain(|_, said| said.at.elapsed() <= said.holds);
        let mut news = devices.len() != before;
        let now = Instant::now();
        for one in report {
            let fresh = said_of(&one, now);
            let device = one.device.unwrap_or_default();
            let key = (device.pool_name, device.device_name);
            let room = devices.len() < MOST;
            match devices.get_mut(&key) {
                Some(known) => {
                    news |= (known.health, &known.message, known.holds)
                        != (fresh.health, &fresh.message, fresh.holds);
                    *known = fresh;
                }
                None if room => {
                    devices.insert(key, fresh);
                    news = true;
                }
                None => tracing::warn!(driver, "the driver tells of more devices than are kept"),
            }
        }
        drop(said);
        if news {
            self.news.notify_one();
        }
    }

    /// An instance of a driver does not speak any more.
    fn forget(&self, driver: &str, registration: &Path) {
        let mut said = self.lock();
        let Some(instances) = said.get_mut(driver) else { return };
        let known = instances.remove(registration).is_some();
        if instances.is_empty() {
            said.remove(driver);
        }
        drop(said);
        if known {
            self.news.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, BTreeMap<PathBuf, Devices>>> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn said_of(one: &DeviceHealth, at: Instant) -> Said {
    let seconds = u64::try_from(one.health_check_timeout_seconds).ok().filter(|seconds| *seconds > 0);
    let mut message = one.message.clone();
    if message.len() > MESSAGE {
        let cut = (0..=MESSAGE - 3).rev().find(|at| message.is_char_boundary(*at)).unwrap_or_default();
        message.truncate(cut);
        message.push_str("...");
    }
    Said {
        health: one.health(),
        message: (!message.is_empty()).then_some(message),
        holds: seconds.map_or(HOLDS, Duration::from_secs),
        at,
    }
}

#[cfg(test)]
mod tests {
    use trine_contracts::dra_health::DeviceIdentifier;

    use super::*;

    fn told(device: &str, health: HealthStatus, message: &str, seconds: i64) -> DeviceHealth {
        DeviceHealth {
            device: Some(DeviceIdentifier { pool_name: "p".to_owned(), device_name: device.to_owned() }),
            health: health.into(),
            message: message.to_owned(),
            health_check_timeout_seconds: seconds,
            ..DeviceHealth::default()
        }
    }

    /// Whether there were news.
    async fn news(health: &Health) -> bool {
        tokio::time::timeout(Duration::from_millis(1), health.news.notified()).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_said_holds_for_its_time_and_news_are_what_differs() {
        let health = Health::default();
        let of = |device: &str| health.of("gpu", "p", device);
        let here = Path::new("/a");
        assert_eq!(of("0"), ("Unknown", None));
        let report =
            vec![told("0", HealthStatus::Healthy, "cool", 0), told("1", HealthStatus::Unhealthy, "", 100)];
        health.take("gpu", here, report.clone());
        assert!(news(&health).await);
        assert_eq!((of("0"), of("1")), (("Healthy", Some("cool".to_owned())), ("Unhealthy", None)));
        assert_eq!(health.of("other", "p", "0"), ("Unknown", None));
        health.take("gpu", here, report);
        assert!(!news(&health).await, "the same again");
        tokio::time::advance(HOLDS + Duration::from_secs(1)).await;
        assert_eq!((of("0"), of("1").0), (("Unknown", None), "Unhealthy"), "each for its time");
        health.take("gpu", here, vec![told("1", HealthStatus::Unhealthy, "", 100)]);
        assert!(news(&health).await, "of the first nothing is known any more");
        health.forget("gpu", here);
        assert!(news(&health).await);
        assert_eq!(of("1"), ("Unknown", None));
    }

    #[tokio::test(start_paused = true)]
    async fn who_goes_takes_nothing_with_it_that_its_successor_said() {
        let health = Health::default();
        health.take("gpu", Path::new("/old"), vec![told("0", HealthStatus::Unhealthy, "", 0)]);
        tokio::time::advance(Duration::from_secs(1)).await;
        health.take("gpu", Path::new("/new"), vec![told("0", HealthStatus::Healthy, "", 0)]);
        assert_eq!(health.of("gpu", "p", "0").0, "Healthy", "the later word counts");
        health.forget("gpu", Path::new("/old"));
        assert_eq!(health.of("gpu", "p", "0").0, "Healthy");
    }

    #[test]
    fn a_message_that_is_too_long_is_cut_between_letters() {
        let now = Instant::now();
        let long = "°".repeat(600);
        let said = said_of(&told("0", HealthStatus::Healthy, &long, -1), now);
        let message = said.message.unwrap();
        assert!(message.len() <= MESSAGE && message.ends_with("°..."), "{}", message.len());
        assert_eq!(said.holds, HOLDS);
        assert_eq!(
            Service::of(&["v1.DRAPlugin".to_owned(), "v1alpha1.DRAResourceHealth".to_owned()]),
            Some(Service::V1Alpha1)
        );
        assert_eq!(Service::of(&["v1.DRAPlugin".to_owned()]), None);
    }
}
