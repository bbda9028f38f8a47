//! Asking a driver who it is, and telling the cluster and the driver that it is known.

use std::path::{Path, PathBuf};
use std::time::Duration;

use trine_contracts::csi::node_client::NodeClient;
use trine_contracts::registration::registration_client::RegistrationClient;
use trine_contracts::registration::{InfoRequest, RegistrationStatus};
use trine_contracts::{csi, socket};

use super::csinode::{self, NodeEntry};
use super::drivers::{Capabilities, Driver, Drivers};
use super::watcher::Known;
use crate::error::{KubeletError, answered};
use crate::step::traced;

/// Deadline of each call to a driver that registers.
const TIMEOUT: Duration = Duration::from_secs(10);

async fn call<T>(
    call: &'static str,
    driver: &str,
    future: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
) -> Result<T, KubeletError> {
    answered(TIMEOUT, future).await.map_err(|source| {
        let (driver, object) = (driver.to_owned(), "registration".to_owned());
        KubeletError::Csi { call, driver, object, source }
    })
}

/// Registers what answers on the socket `path`; returns the driver's name. The driver is told either way.
///
/// # Errors
/// [`KubeletError`].
pub async fn register(path: &Path, known: &Known) -> Result<String, KubeletError> {
    let mut registration = RegistrationClient::new(socket::connect(path));
    let file = path.display().to_string();
    let info = call("GetInfo", &file, registration.get_info(InfoRequest {})).await?;
    let span = tracing::info_span!(target: "trine::step", "register driver", plane = "csi",
        detail = %info.name, error = tracing::field::Empty);
    let result = traced(span, async {
        let endpoint = if info.endpoint.is_empty() { path.to_owned() } else { PathBuf::from(&info.endpoint) };
        if info.r#type == "DRAPlugin" {
            return known.devices.insert(&info.name, &endpoint, path, &info.supported_versions);
        }
        if info.r#type != "CSIPlugin" {
            return Err(KubeletError::Invalid(format!("plugins of type {} are not supported", info.r#type)));
        }
        if !info.supported_versions.iter().any(|v| v.trim_start_matches('v').starts_with("1.")) {
            let versions = info.supported_versions.join(", ");
            return Err(KubeletError::Invalid(format!("none of the versions {versions} is supported")));
        }
        node_service(&info.name, endpoint, path, &known.drivers, &known.cluster).await
    })
    .await;
    let status = RegistrationStatus {
        plugin_registered: result.is_ok(),
        error: result.as_ref().err().map(KubeletError::chain).unwrap_or_default(),
    };
    let told =
        call("NotifyRegistrationStatus", &info.name, registration.notify_registration_status(status)).await;
    if let Err(error) = told {
        tracing::debug!(error = error.chain(), "the driver did not hear of its registration");
    }
    result.map(|()| info.name)
}

async fn node_service(
    name: &str,
    endpoint: PathBuf,
    registration: &Path,
    drivers: &Drivers,
    cluster: &csinode::Cluster,
) -> Result<(), KubeletError> {
    let channel = socket::connect(&endpoint);
    let mut node = NodeClient::new(channel.clone());
    let info = call("NodeGetInfo", name, node.node_get_info(csi::NodeGetInfoRequest {})).await?;
    let request = csi::NodeGetCapabilitiesRequest {};
    let capabilities = call("NodeGetCapabilities", name, node.node_get_capabilities(request)).await?;
    let entry = NodeEntry {
        driver: name.to_owned(),
        node_id: info.node_id,
        topology: info.accessible_topology.map(|t| t.segments.into_iter().collect()).unwrap_or_default(),
        max_volumes: info.max_volumes_per_node,
    };
    drivers.insert(Driver {
        name: name.to_owned(),
        endpoint,
        registration: registration.to_owned(),
        capabilities: Capabilities::of(&capabilities),
        channel,
    });
    cluster.add(&entry).await
}
