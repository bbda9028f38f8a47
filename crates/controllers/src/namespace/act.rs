//! Deleting what is in a namespace.

use trine_typed::chain;
use trine_typed::k8s_openapi::api::core::v1::Namespace;
use trine_typed::k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use trine_typed::kube::api::{DeleteParams, DynamicObject, ListParams, PostParams};
use trine_typed::kube::core::discovery::{ApiCapabilities, Scope};
use trine_typed::kube::discovery::{ApiResource, Discovery, verbs};
use trine_typed::kube::{Api, ResourceExt};

use super::plan::{Left, Pass};
use crate::frame::{ControllerError, Cx};

/// What there could be in a namespace, as far as that is known.
pub struct Kinds {
    /// Pods, which go first.
    pods: Vec<(ApiResource, ApiCapabilities)>,
    others: Vec<(ApiResource, ApiCapabilities)>,
    /// Why not all is known.
    undiscovered: Option<String>,
}

impl Kinds {
    /// Asks the API server. Who asks after a namespace began to end learns of all that it can hold.
    ///
    /// # Errors
    /// If the APIServices cannot be listed.
    pub async fn discover(cx: &Cx) -> Result<Self, ControllerError> {
        let undiscovered = unavailable(cx).await?;
        let discovery = match Discovery::new(cx.client.clone()).run_aggregated().await {
            Ok(discovery) => discovery,
            Err(error) => {
                let undiscovered = Some(error.to_string());
                return Ok(Self { pods: Vec::new(), others: Vec::new(), undiscovered });
            }
        };
        let (pods, others) = deletable(&discovery)
            .partition(|(resource, _)| resource.group.is_empty() && resource.plural == "pods");
        Ok(Self { pods, others, undiscovered })
    }
}

/// Deletes what is left in a namespace, and writes down what stays; true if nothing did and the namespace is released.
pub async fn empty(cx: &Cx, namespace: &Namespace, kinds: &Kinds) -> Result<bool, ControllerError> {
    let pass = pass(cx, namespace, kinds).await;
    let (api, name) = (Api::<Namespace>::all(cx.client.clone()), namespace.name_any());
    let mut changed = namespace.clone();
    let status = changed.status.get_or_insert_default();
    if let Some(conditions) =
        pass.conditions(status.conditions.as_deref().unwrap_or_default(), trine_clock::now())
    {
        status.conditions = Some(conditions);
        let done = api.replace_status(&name, &PostParams::default(), &changed).await;
        changed = done.map_err(ControllerError::of("write the status of namespace", &name))?;
    }
    if !pass.is_empty() {
        return Ok(false);
    }
    let finalizers = changed.spec.get_or_insert_default().finalizers.get_or_insert_default();
    finalizers.retain(|finalizer| finalizer != "kubernetes");
    let done = api.replace_subresource("finalize", &name, &PostParams::default(), &changed).await;
    done.map(|_| true).map_err(ControllerError::of("finalize namespace", name))
}

async fn pass(cx: &Cx, namespace: &Namespace, kinds: &Kinds) -> Pass {
    let mut pass = Pass { undiscovered: kinds.undiscovered.clone(), ..Pass::default() };
    for (resource, capabilities) in &kinds.pods {
        clear(cx, namespace, resource, capabilities, &mut pass).await;
    }
    // Pods that still run may need what else is there until their end.
    if pass.left.is_empty() && pass.failures.is_empty() {
        for (resource, capabilities) in &kinds.others {
            clear(cx, namespace, resource, capabilities, &mut pass).await;
        }
    }
    pass
}

/// Deletes all objects of a resource, and counts what stays.
async fn clear(
    cx: &Cx,
    namespace: &Namespace,
    resource: &ApiResource,
    capabilities: &ApiCapabilities,
    pass: &mut Pass,
) {
    let api = Api::namespaced_with(cx.client.clone(), &namespace.name_any(), resource);
    let collection = capabilities.supports_operation(verbs::DELETE_COLLECTION);
    match cleared(&api, collection).await {
        Ok(finalizers) => pass.left.extend(Left::of(&resource.plural, &resource.group, &finalizers)),
        Err(error) => pass.failures.push(chain::display(&error)),
    }
}

async fn cleared(
    api: &Api<DynamicObject>,
    collection: bool,
) -> Result<Vec<Vec<String>>, trine_typed::kube::Error> {
    let found = api.list_metadata(&ListParams::default()).await?;
    if found.items.is_empty() {
        return Ok(Vec::new());
    }
    if collection {
        api.delete_collection(&DeleteParams::background(), &ListParams::default()).await?;
    } else {
        for object in found.items {
            api.delete(&object.name_any(), &DeleteParams::background()).await?;
        }
    }
    let left = api.list_metadata(&ListParams::default()).await?;
    Ok(left.items.into_iter().map(|object| object.finalizers().to_vec()).collect())
}

fn deletable(discovery: &Discovery) -> impl Iterator<Item = (ApiResource, ApiCapabilities)> + '_ {
    discovery.groups().flat_map(|group| group.recommended_resources()).filter(|(resource, capabilities)| {
        // The Events of the two groups are the same objects.
        let events_twice = resource.kind == "Event" && resource.group == "events.k8s.io";
        capabilities.scope == Scope::Namespaced
            && capabilities.supports_operation(verbs::DELETE)
            && capabilities.supports_operation(verbs::LIST)
            && !events_twice
    })
}

/// The aggregated APIs that do not answer, so that nobody knows what of theirs is in the namespace; nothing if all do.
async fn unavailable(cx: &Cx) -> Result<Option<String>, ControllerError> {
    let api: Api<APIService> = Api::all(cx.client.clone());
    let all = api.list(&ListParams::default()).await.map_err(ControllerError::of("list", "APIServices"))?;
    let failing: Vec<String> =
        all.items.iter().filter(|service| !available(service)).filter_map(told).collect();
    Ok((!failing.is_empty()).then(|| {
        format!(
            "Discovery failed for some groups, {} failing: unable to retrieve the complete list of server APIs: {}",
            failing.len(),
            failing.join(", ")
        )
    }))
}

fn available(service: &APIService) -> bool {
    let conditions = service.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.filter(|condition| condition.type_ == "Available").all(|condition| condition.status != "False")
}

fn told(service: &APIService) -> Option<String> {
    let spec = service.spec.as_ref()?;
    let version = format!("{}/{}", spec.group.as_deref()?, spec.version.as_deref()?);
    Some(format!("{version}: stale GroupVersion discovery: {version}"))
}
