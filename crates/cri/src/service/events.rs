//! GetContainerEvents.

use futures::Stream;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::BroadcastStream;
use tonic::Status;
use trine_contracts::cri::ContainerEventResponse;

use super::{Service, containers, sandboxes};

impl Service {
    /// Changes from now on. A reader that lags loses events; it lists again, as after any reconnect.
    pub(super) fn container_events(
        &self,
    ) -> impl Stream<Item = Result<ContainerEventResponse, Status>> + Send + 'static {
        let runtime = self.0.clone();
        BroadcastStream::new(self.0.inner.events.subscribe()).map(move |changed| {
            let changed = changed.map_err(|lagged| Status::data_loss(lagged.to_string()))?;
            let statuses = runtime.containers_of(&changed.sandbox);
            Ok(ContainerEventResponse {
                container_id: changed.container,
                container_event_type: changed.kind as i32,
                created_at: changed.at,
                pod_sandbox_status: runtime.sandbox(&changed.sandbox).ok().map(|s| sandboxes::status(&s)),
                containers_statuses: statuses.iter().map(|c| containers::status(&c.record())).collect(),
            })
        })
    }
}
