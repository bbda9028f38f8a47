//! `pluginregistration.v1.Registration`: how a kubelet finds the driver.

use tonic::{Request, Response, Status, async_trait};
use trine_contracts::registration::registration_server::Registration;
use trine_contracts::registration::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};

use crate::config::DRIVER_NAME;

/// Answers who listens at `endpoint`.
pub struct Registrar {
    /// The CSI socket's path.
    pub endpoint: String,
}

#[async_trait]
impl Registration for Registrar {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            r#type: "CSIPlugin".to_owned(),
            name: DRIVER_NAME.to_owned(),
            endpoint: self.endpoint.clone(),
            supported_versions: vec!["1.0.0".to_owned()],
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let status = request.into_inner();
        if status.plugin_registered {
            tracing::info!(driver = DRIVER_NAME, "registered with the kubelet");
        } else {
            tracing::warn!(driver = DRIVER_NAME, error = status.error, "the kubelet refused the driver");
        }
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
