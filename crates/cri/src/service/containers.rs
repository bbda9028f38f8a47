//! ContainerStatus and ListContainers.

use std::collections::HashMap;

use trine_contracts::cri::{
    self, ContainerFilter, ContainerResources, ContainerState, ContainerStatus, ContainerStatusRequest,
    ContainerStatusResponse, ContainerUser, ImageSpec, LinuxContainerUser,
};

use super::Service;
use super::sandboxes::matches;
use crate::container::{ContainerRecord, State};
use crate::error::CriError;

impl Service {
    pub(super) fn list_of_containers(&self, filter: Option<&ContainerFilter>) -> Vec<cri::Container> {
        let none = ContainerFilter::default();
        let filter = filter.unwrap_or(&none);
        let records: Vec<_> = self.0.containers().values().map(|container| container.record()).collect();
        records
            .into_iter()
            .filter(|record| record.state != State::Making)
            .filter(|record| record.id.starts_with(&filter.id))
            .filter(|record| record.sandbox.starts_with(&filter.pod_sandbox_id))
            .map(|record| item(&record))
            .filter(|item| filter.state.as_ref().is_none_or(|s| s.state == item.state))
            .filter(|item| matches(&filter.label_selector, &item.labels))
            .collect()
    }

    pub(super) fn status_of_container(
        &self,
        request: &ContainerStatusRequest,
    ) -> Result<ContainerStatusResponse, CriError> {
        let container = self.0.container(&request.container_id)?;
        let mut info = HashMap::new();
        if request.verbose {
            let record = container.record();
            let described = serde_json::json!({"folder": container.folder, "cgroup": record.cgroup});
            info.insert("info".to_owned(), described.to_string());
        }
        Ok(ContainerStatusResponse { status: Some(status(&container.record())), info })
    }
}

fn state(record: &ContainerRecord) -> ContainerState {
    match record.state {
        State::Making | State::Created => ContainerState::ContainerCreated,
        State::Running => ContainerState::ContainerRunning,
        State::Exited => ContainerState::ContainerExited,
    }
}

fn item(record: &ContainerRecord) -> cri::Container {
    let config = &record.config;
    cri::Container {
        id: record.id.clone(),
        pod_sandbox_id: record.sandbox.clone(),
        metadata: config.metadata.clone(),
        image: config.image.clone(),
        image_ref: record.image_ref.clone(),
        state: state(record) as i32,
        created_at: record.created_at,
        labels: config.labels.clone(),
        annotations: config.annotations.clone(),
        image_id: record.image_id.clone(),
    }
}

/// A container as the contract shows it.
pub(super) fn status(record: &ContainerRecord) -> ContainerStatus {
    let config = &record.config;
    let exit = record.exit.clone().unwrap_or_default();
    let image = config.image.clone().map(|asked| match record.image_name.as_str() {
        "" => asked,
        name => ImageSpec { image: name.to_owned(), ..asked },
    });
    let resources = config.linux.as_ref().and_then(|linux| linux.resources.clone());
    let user = LinuxContainerUser {
        uid: record.user.uid.into(),
        gid: record.user.gid.into(),
        supplemental_groups: record.user.additional_gids.iter().map(|gid| i64::from(*gid)).collect(),
    };
    ContainerStatus {
        id: record.id.clone(),
        metadata: config.metadata.clone(),
        state: state(record) as i32,
        created_at: record.created_at,
        started_at: record.started_at,
        finished_at: exit.finished_at,
        exit_code: exit.code,
        image,
        image_ref: record.image_ref.clone(),
        reason: record.reason().to_owned(),
        message: exit.error.unwrap_or_default(),
        labels: config.labels.clone(),
        annotations: config.annotations.clone(),
        mounts: config.mounts.clone(),
        log_path: record.log_path.clone(),
        resources: resources.map(|linux| ContainerResources { linux: Some(linux), windows: None }),
        image_id: record.image_id.clone(),
        user: Some(ContainerUser { linux: Some(user) }),
        stop_signal: config.stop_signal,
    }
}
