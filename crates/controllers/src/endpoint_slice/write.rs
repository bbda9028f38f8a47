//! Writes slices.

use std::sync::Arc;

use trine_typed::k8s_openapi::api::discovery::v1::EndpointSlice;
use trine_typed::kube::api::{DeleteParams, PostParams};
use trine_typed::kube::{Api, Client, ResourceExt};
use trine_typed::mirror::{Key, Mirror, Subscription};
use trine_typed::work_queue::{Next, WorkQueue};

use super::place::{Action, Group, MANAGED_BY, Owner, place};
use super::service_of;
use crate::frame::{ControllerError, log};

/// The slices of one controller.
#[derive(Clone)]
pub struct Slices {
    /// As whom they are written.
    pub client: Client,
    /// All slices.
    pub mirror: Mirror<EndpointSlice>,
    /// Who writes them, for the log.
    pub controller: &'static str,
}

impl Slices {
    /// Makes the slices of an owner hold these groups.
    pub async fn keep(&self, owner: &Owner, groups: Vec<Group>) -> Next {
        let key = Key::new(&owner.namespace, &owner.name);
        let mut slices = self.mirror.in_namespace(&owner.namespace);
        slices.retain(|slice| is_kept_by(slice, owner.manager) && service_of(slice).as_ref() == Some(&key));
        let mut next = Next::Wait;
        for action in place(owner, groups, &slices) {
            if let Err(error) = self.act(action).await {
                log(self.controller, &error);
                next = Next::Retry;
            }
        }
        next
    }

    async fn act(&self, action: Action) -> Result<(), ControllerError> {
        let api = |namespace: &str| Api::<EndpointSlice>::namespaced(self.client.clone(), namespace);
        let params = PostParams::default();
        match action {
            Action::Create(slice) => {
                let (namespace, name) = (slice.namespace().unwrap_or_default(), slice.name_any());
                let made = api(&namespace).create(&params, &slice).await;
                self.mirror.learn(&made.map_err(ControllerError::of("create EndpointSlice", name))?);
            }
            Action::Replace(slice) => {
                let (namespace, name) = (slice.namespace().unwrap_or_default(), slice.name_any());
                let written = api(&namespace).replace(&name, &params, &slice).await;
                self.mirror.learn(&written.map_err(ControllerError::of("replace EndpointSlice", name))?);
            }
            Action::Delete { namespace, name } => {
                let deleted = api(&namespace).delete(&name, &DeleteParams::default()).await;
                match deleted.map_err(ControllerError::of("delete EndpointSlice", name)) {
                    // It went with its owner.
                    Err(error) if error.is_race() => {}
                    other => drop(other?),
                }
            }
        }
        Ok(())
    }
}

fn is_kept_by(slice: &EndpointSlice, manager: &str) -> bool {
    slice.labels().get(MANAGED_BY).map(String::as_str) == Some(manager)
}

/// Adds the Service of every slice of this manager that changes: somebody may have edited it.
pub fn by_slices(
    slices: &Mirror<EndpointSlice>,
    queue: &Arc<WorkQueue<Key>>,
    manager: &'static str,
) -> Subscription {
    let queue = Arc::clone(queue);
    slices.subscribe(move |old, new| {
        for slice in [old, new].into_iter().flatten().filter(|slice| is_kept_by(slice, manager)) {
            service_of(slice).into_iter().for_each(|key| queue.add(key));
        }
    })
}
