//! Version, Status, RuntimeConfig.

use std::collections::HashMap;

use tonic::Status;
use trine_contracts::cri::{
    CgroupDriver, LinuxRuntimeConfiguration, RuntimeCondition, RuntimeConfigResponse, RuntimeFeatures,
    RuntimeHandler, RuntimeHandlerFeatures, RuntimeStatus, StatusResponse, VersionResponse,
};

use trine_kernel::mountpoint::can_map_owners;
use trine_kernel::netlink::Cidrs;

use super::Service;
use crate::error::chain;

pub(super) fn version() -> VersionResponse {
    VersionResponse {
        version: "0.1.0".to_owned(),
        runtime_name: "trine".to_owned(),
        runtime_version: env!("CARGO_PKG_VERSION").to_owned(),
        runtime_api_version: "v1".to_owned(),
    }
}

pub(super) fn runtime_config() -> RuntimeConfigResponse {
    let linux = LinuxRuntimeConfiguration { cgroup_driver: CgroupDriver::Cgroupfs as i32 };
    RuntimeConfigResponse { linux: Some(linux) }
}

impl Service {
    /// Passes on which ranges the node's Pods have, one for each family: the network's configuration is written by whoever started the runtime.
    pub(super) fn set_pod_range(&self, ranges: &str) -> Result<(), Status> {
        if ranges.is_empty() {
            return Ok(());
        }
        let told: Result<Cidrs, _> = ranges.parse();
        let ranges = told.map_err(|e| Status::invalid_argument(format!("UpdateRuntimeConfig: {e}")))?;
        if let Some(told) = &self.0.inner.config.pod_range {
            told.send_if_modified(|old| old.replace(ranges.clone()) != Some(ranges));
        }
        Ok(())
    }

    pub(super) async fn node_status(&self, verbose: bool) -> StatusResponse {
        let condition = |kind: &str, trouble: Option<(&str, String)>| RuntimeCondition {
            r#type: kind.to_owned(),
            status: trouble.is_none(),
            reason: trouble.as_ref().map_or("", |(reason, _)| reason).to_owned(),
            message: trouble.map(|(_, message)| message).unwrap_or_default(),
        };
        let network = self.0.inner.network.status().await;
        let mut info = HashMap::new();
        if verbose && let Ok(network) = &network {
            let described = serde_json::json!({
                "network": network.network, "plugins": network.plugins, "file": network.file,
            });
            info.insert("cni".to_owned(), described.to_string());
        }
        let network = network.err().map(|e| ("NetworkPluginNotReady", chain(&e)));
        StatusResponse {
            status: Some(RuntimeStatus {
                conditions: vec![condition("RuntimeReady", None), condition("NetworkReady", network)],
            }),
            info,
            runtime_handlers: vec![RuntimeHandler {
                name: String::new(),
                features: Some(RuntimeHandlerFeatures {
                    recursive_read_only_mounts: true,
                    user_namespaces: can_map_owners(&self.0.config().images_dir),
                }),
            }],
            features: Some(RuntimeFeatures {
                supplemental_groups_policy: true,
                user_namespaces_host_network: false,
            }),
        }
    }
}
