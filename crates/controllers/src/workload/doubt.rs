//! A write whose answer is lost may have been done. Who decides by a copy that lacks it makes a Pod too many, or removes a second
//! one in the place of the first. So what is known of the controller of such an object is doubted, and looked up at the server
//! before anything else is decided for it. Upstream's controllers go on at once; a ReplicaSet of theirs may have Pods too many
//! for a moment.

use std::collections::HashSet;

use trine_objects::selector::label::LabelSelector;
use trine_typed::k8s_openapi::NamespaceResourceScope;
use trine_typed::kube::api::ListParams;
use trine_typed::kube::{self, Api, Client, Resource, ResourceExt};
use trine_typed::mirror::{Key, Kind, Mirror};

use crate::frame::ControllerError;

/// Whether a write that failed so may have been done: there was no answer, or one of somebody who does not know.
fn may_be_done(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code >= 500,
        kube::Error::BuildRequest(_) => false,
        _ => true,
    }
}

/// Takes note of a failed write to what the controller of this UID controls.
pub fn note<D: Kind>(mirror: &Mirror<D>, controller: &str, error: &kube::Error) {
    if may_be_done(error) {
        mirror.doubt(controller);
    }
}

/// Looks up what `owner` controls, if that is doubted.
///
/// # Errors
/// If the server does not answer; it stays doubted.
pub async fn resolve<O, D>(
    client: &Client,
    mirror: &Mirror<D>,
    owner: &O,
    selector: &LabelSelector,
) -> Result<(), ControllerError>
where
    O: Resource<DynamicType = ()>,
    D: Kind + Resource<Scope = NamespaceResourceScope>,
{
    let (uid, namespace) =
        (owner.meta().uid.clone().unwrap_or_default(), owner.namespace().unwrap_or_default());
    if !mirror.is_doubted(&uid) {
        return Ok(());
    }
    let api: Api<D> = Api::namespaced(client.clone(), &namespace);
    let params = ListParams::default().labels(&selector.to_string());
    let failed = || ControllerError::of("look up what is controlled by", owner.name_any());
    let listed = api.list(&params).await.map_err(failed())?;
    let found: HashSet<String> = listed.items.iter().filter_map(|object| object.meta().uid.clone()).collect();
    listed.items.iter().for_each(|object| mirror.learn(object));
    for known in mirror.controlled_by(&uid) {
        let known_uid = known.meta().uid.clone().unwrap_or_default();
        if found.contains(&known_uid) {
            continue;
        }
        // It is gone, or has lost its labels. Upstream's roles let controllers list Pods, not get one.
        let params = ListParams::default().fields(&format!("metadata.name={}", known.name_any()));
        let live = api.list(&params).await.map_err(failed())?.items;
        match live.iter().find(|live| live.meta().uid == known.meta().uid) {
            Some(live) => mirror.learn(live),
            None => mirror.forget(&Key::of(known.meta()), &known_uid),
        }
    }
    mirror.trust(&uid);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_no_says_that_nothing_was_done() {
        let answer = |code: u16| {
            let status = kube::core::Status { code, ..Default::default() };
            may_be_done(&kube::Error::Api(Box::new(status)))
        };
        assert_eq!([403, 404, 409, 422, 429].map(answer), [false; 5]);
        assert_eq!([500, 502, 503, 504].map(answer), [true; 4]);
        assert!(may_be_done(&kube::Error::Service("connection reset".into())));
    }
}
