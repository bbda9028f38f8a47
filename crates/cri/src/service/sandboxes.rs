//! PodSandboxStatus and ListPodSandbox.

use std::collections::HashMap;

use trine_contracts::cri::{
    LinuxPodSandboxStatus, Namespace, PodIp, PodSandbox, PodSandboxFilter, PodSandboxNetworkStatus,
    PodSandboxState, PodSandboxStatus, PodSandboxStatusRequest, PodSandboxStatusResponse,
};

use trine_contracts::networks::attachments::INFO;

use super::Service;
use crate::error::CriError;
use crate::runtime::now;
use crate::sandbox::{Sandbox, SandboxRecord, SandboxState};

impl Service {
    pub(super) fn sandbox_status(
        &self,
        request: &PodSandboxStatusRequest,
    ) -> Result<PodSandboxStatusResponse, CriError> {
        let sandbox = self.0.sandbox(&request.pod_sandbox_id)?;
        let mut info = HashMap::new();
        if request.verbose {
            let record = sandbox.record();
            let described = serde_json::json!({
                "folder": sandbox.folder, "netns": record.netns, "cgroup": record.cgroup, "attached": record.attached,
            });
            info.insert("info".to_owned(), described.to_string());
            if !record.networks.is_empty() {
                info.insert(INFO.to_owned(), serde_json::json!(record.networks).to_string());
            }
        }
        Ok(PodSandboxStatusResponse {
            status: Some(status(&sandbox)),
            info,
            containers_statuses: Vec::new(),
            timestamp: now(),
        })
    }

    pub(super) fn list_sandboxes(&self, filter: Option<&PodSandboxFilter>) -> Vec<PodSandbox> {
        let none = PodSandboxFilter::default();
        let filter = filter.unwrap_or(&none);
        let sandboxes: Vec<_> = self.0.sandboxes().values().map(|sandbox| sandbox.record()).collect();
        sandboxes
            .into_iter()
            .filter(|record| record.state != SandboxState::Making)
            .filter(|record| record.id.starts_with(&filter.id))
            .map(|record| item(&record))
            .filter(|item| filter.state.as_ref().is_none_or(|s| s.state == item.state))
            .filter(|item| matches(&filter.label_selector, &item.labels))
            .collect()
    }
}

/// True if `labels` have all that `selector` names.
pub(super) fn matches(selector: &HashMap<String, String>, labels: &HashMap<String, String>) -> bool {
    selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}

fn state(record: &SandboxRecord) -> i32 {
    match record.state {
        SandboxState::Ready => PodSandboxState::SandboxReady as i32,
        SandboxState::Making | SandboxState::NotReady => PodSandboxState::SandboxNotready as i32,
    }
}

fn item(record: &SandboxRecord) -> PodSandbox {
    let config = &record.config;
    PodSandbox {
        id: record.id.clone(),
        metadata: config.metadata.clone(),
        state: state(record),
        created_at: record.created_at,
        labels: config.labels.clone(),
        annotations: config.annotations.clone(),
        runtime_handler: record.handler.clone(),
    }
}

/// A sandbox as the contract shows it.
pub(super) fn status(sandbox: &Sandbox) -> PodSandboxStatus {
    let record = sandbox.record();
    let config = &record.config;
    let options = config
        .linux
        .as_ref()
        .and_then(|l| l.security_context.as_ref())
        .and_then(|s| s.namespace_options.clone());
    let mut ips = record.ips.iter();
    let network = PodSandboxNetworkStatus {
        ip: ips.next().cloned().unwrap_or_default(),
        additional_ips: ips.map(|ip| PodIp { ip: ip.clone() }).collect(),
    };
    PodSandboxStatus {
        id: record.id.clone(),
        metadata: config.metadata.clone(),
        state: state(&record),
        created_at: record.created_at,
        network: Some(network),
        linux: Some(LinuxPodSandboxStatus { namespaces: Some(Namespace { options }) }),
        labels: config.labels.clone(),
        annotations: config.annotations.clone(),
        runtime_handler: record.handler,
    }
}
