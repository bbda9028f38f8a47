//! All controllers for one driver.

use std::path::PathBuf;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use trine_typed::event::Recorder;
use trine_typed::kube::api::PostParams;
use trine_typed::kube::{self, Api, Client};
use trine_typed::supervise::supervised;

use crate::driver::{Driver, Offers};
use crate::objects::objects;
use crate::{attach, group, provision, resize, snapshot};

/// The pause between two attempts to reach the driver.
const PROBE_PAUSE: Duration = Duration::from_millis(100);

/// Which driver, and for whom.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// The driver's CSI socket.
    pub socket: PathBuf,
    /// Only this node's volumes and attachments: each node has a driver and controllers of its own. None: all.
    pub node_name: Option<String>,
    /// Tell the driver the claim's name with `CreateVolume` (upstream's `--extra-create-metadata`). Drivers that know
    /// no such parameters may refuse them.
    pub tell_claims: bool,
    /// Make the CSIDriver object of the driver if there is none.
    pub create_driver_object: bool,
}

/// Why the controllers do not run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The CSIDriver object could not be made.
    #[error("csi-controllers: create CSIDriver {name}")]
    Object {
        /// Its name.
        name: String,
        /// What the API server said.
        source: Box<kube::Error>,
    },
}

/// What every act is given.
#[derive(Clone)]
pub(crate) struct Cx {
    pub client: Client,
    pub config: Config,
    pub driver: Driver,
    pub offers: Offers,
    pub recorder: std::sync::Arc<Recorder>,
    pub stop: CancellationToken,
}

/// Waits for the driver to be ready, for as long as it takes, then provisions, attaches, grows, takes snapshots and undoes it all
/// until `stop`. A restart carries on where it was: what is half done is known from the API and the driver.
///
/// # Errors
/// [`RunError`].
pub async fn run(client: Client, config: Config, stop: CancellationToken) -> Result<(), RunError> {
    let driver = Driver::at(&config.socket);
    let Some(offers) = ready(&driver, &config, &stop).await else { return Ok(()) };
    if config.create_driver_object {
        create_driver_object(&client, &offers.name).await?;
    }
    let component = match &config.node_name {
        Some(node) => format!("{}_{node}", offers.name),
        None => offers.name.clone(),
    };
    let recorder = std::sync::Arc::new(Recorder::new(client.clone(), &component, None));
    let cx = Cx { client, config, driver, offers, recorder, stop };
    tokio::join!(
        supervised("provision", &cx.stop, || provision::run(cx.clone())),
        supervised("attach", &cx.stop, || attach::run(cx.clone())),
        supervised("resize", &cx.stop, || resize::run(cx.clone())),
        supervised("snapshot", &cx.stop, || snapshot::run(cx.clone())),
        supervised("group", &cx.stop, || group::run(cx.clone()))
    );
    Ok(())
}

async fn ready(driver: &Driver, config: &Config, stop: &CancellationToken) -> Option<Offers> {
    let mut attempts = 0_u32;
    loop {
        let answer = async {
            match driver.ready().await? {
                true => driver.offers().await.map(Some),
                false => Ok(None),
            }
        };
        match answer.await {
            Ok(Some(offers)) => return Some(offers),
            Ok(None) => {}
            Err(error) if attempts % 100 == 99 => {
                tracing::warn!(socket = %config.socket.display(), %error, "still waiting for the driver");
            }
            Err(_) => {}
        }
        attempts += 1;
        tokio::select! {
            () = stop.cancelled() => return None,
            () = tokio::time::sleep(PROBE_PAUSE) => {}
        }
    }
}

async fn create_driver_object(client: &Client, name: &str) -> Result<(), RunError> {
    let created = Api::all(client.clone()).create(&PostParams::default(), &objects(name).driver).await;
    match created {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        Err(source) => Err(RunError::Object { name: name.to_owned(), source: Box::new(source) }),
        Ok(_) => Ok(()),
    }
}
