//! The metrics of sandboxes and containers that a kubelet shows as cAdvisor's.
//!
//! - `table` which there are, and what each is of the facts: pure
//! - `facts` the facts, from groups, `/proc` and the network namespace

mod facts;
mod table;

use trine_contracts::cri::{ContainerMetrics, PodSandboxMetrics};

use super::Service;
use crate::container::State;
use crate::error::CriError;
use crate::sandbox::SandboxState;

pub(super) use facts::interfaces_in;
pub(super) use table::descriptors;

impl Service {
    /// Of all sandboxes that are ready. It walks over what containers wrote.
    pub(super) async fn all_sandbox_metrics(&self) -> Result<Vec<PodSandboxMetrics>, CriError> {
        let service = self.clone();
        let all = tokio::task::spawn_blocking(move || service.read_sandbox_metrics()).await;
        all.map_err(CriError::joined("ListPodSandboxMetrics"))
    }

    fn read_sandbox_metrics(&self) -> Vec<PodSandboxMetrics> {
        let sandboxes: Vec<_> = self.0.sandboxes().values().cloned().collect();
        let space = facts::space(&self.0);
        let ready = sandboxes.into_iter().filter(|s| s.record().state == SandboxState::Ready);
        ready
            .map(|sandbox| {
                let pod = facts::of_pod(&sandbox);
                let containers = self.0.containers_of(&sandbox.id);
                let running = containers.into_iter().filter(|c| c.state() == State::Running);
                PodSandboxMetrics {
                    metrics: table::of_pod(&pod),
                    container_metrics: running
                        .map(|container| ContainerMetrics {
                            metrics: table::of_container(&facts::of_container(
                                &self.0, &pod.whose, space, &container,
                            )),
                            container_id: container.id.clone(),
                        })
                        .collect(),
                    pod_sandbox_id: sandbox.id.clone(),
                }
            })
            .collect()
    }
}
