//! `csi.v1.Identity`.

use tonic::{Request, Response, Status, async_trait};
use trine_contracts::csi;
use trine_contracts::csi::identity_server::Identity;
use trine_contracts::csi::plugin_capability::service::Type as ServiceType;
use trine_contracts::csi::plugin_capability::volume_expansion::Type as ExpansionType;
use trine_contracts::csi::plugin_capability::{Service as Offered, Type, VolumeExpansion};

use super::Service;
use crate::config::DRIVER_NAME;

#[async_trait]
impl Identity for Service {
    async fn get_plugin_info(
        &self,
        _: Request<csi::GetPluginInfoRequest>,
    ) -> Result<Response<csi::GetPluginInfoResponse>, Status> {
        Ok(Response::new(csi::GetPluginInfoResponse {
            name: DRIVER_NAME.to_owned(),
            vendor_version: env!("CARGO_PKG_VERSION").to_owned(),
            manifest: std::collections::HashMap::new(),
        }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<csi::GetPluginCapabilitiesRequest>,
    ) -> Result<Response<csi::GetPluginCapabilitiesResponse>, Status> {
        let offered = |t: ServiceType| Type::Service(Offered { r#type: t.into() });
        let capabilities = [
            offered(ServiceType::ControllerService),
            offered(ServiceType::VolumeAccessibilityConstraints),
            offered(ServiceType::GroupControllerService),
            Type::VolumeExpansion(VolumeExpansion { r#type: ExpansionType::Online.into() }),
        ];
        let capabilities =
            capabilities.map(|t| csi::PluginCapability { r#type: Some(t) }).into_iter().collect();
        Ok(Response::new(csi::GetPluginCapabilitiesResponse { capabilities }))
    }

    async fn probe(&self, _: Request<csi::ProbeRequest>) -> Result<Response<csi::ProbeResponse>, Status> {
        self.run(tracing::Span::none(), "Probe", "", |driver| driver.pool.space().map(drop)).await?;
        Ok(Response::new(csi::ProbeResponse { ready: Some(true) }))
    }
}
