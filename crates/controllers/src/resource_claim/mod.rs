//! Claims of devices: those that Pods' templates ask for are made, and who uses none any more is no user. `plan` decides.

mod plan;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;
use trine_typed::event::Level;
use trine_typed::k8s_openapi::api::core::v1::Pod;
use trine_typed::k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use trine_typed::kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use trine_typed::kube::{self, Api, Client, ResourceExt};
use trine_typed::mirror::{Key, Mirror, controller_of};
use trine_typed::work_queue::{Next, WorkQueue};

use crate::events::Events;
use crate::frame::{ControllerError, Cx, retried};
use plan::{FINALIZER, User, known, name_of, of_claim, of_pod, user};

/// Pods, or claims, that are looked at at a time. Upstream: 10.
const WORKERS: usize = 4;
/// The name of what the controller writes into Pods' status. Upstream's.
const MANAGER: &str = "ResourceClaimController";

struct Controller {
    client: Client,
    pods: Mirror<Pod>,
    claims: Mirror<ResourceClaim>,
    templates: Mirror<ResourceClaimTemplate>,
    events: Events,
}

/// Runs until the context ends.
pub async fn run(cx: Cx) {
    let controller = Arc::new(Controller {
        client: cx.client.clone(),
        pods: cx.shared(),
        claims: cx.shared(),
        templates: cx.shared(),
        events: Events::start(cx.client.clone(), "resource_claim", cx.stop.clone()),
    });
    let Controller { pods, claims, templates, .. } = &*controller;
    tokio::join!(pods.ready(), claims.ready(), templates.ready());
    let (by_pod, by_claim) = (Arc::new(WorkQueue::default()), Arc::new(WorkQueue::default()));
    let _woken = (
        pods.subscribe(wake_by_pod(&by_pod, &by_claim)),
        claims.subscribe(wake_by_claim(pods, &by_pod, &by_claim)),
        templates.subscribe(wake_by_template(pods, &by_pod)),
    );
    let one_pod = |key: Key| {
        let this = Arc::clone(&controller);
        async move { this.pod(&key).await.unwrap_or_else(|error| retried("resource-claim", &error)) }
    };
    let one_claim = |key: Key| {
        let this = Arc::clone(&controller);
        async move { this.claim(&key).await.unwrap_or_else(|error| retried("resource-claim", &error)) }
    };
    tokio::join!(by_pod.work(WORKERS, &cx.stop, one_pod), by_claim.work(WORKERS, &cx.stop, one_claim));
}

type Queue = Arc<WorkQueue<Key>>;

/// A Pod with claims is looked at when it changes; the claims of one that is done or gone, too.
fn wake_by_pod(by_pod: &Queue, by_claim: &Queue) -> impl Fn(Option<&Arc<Pod>>, Option<&Arc<Pod>>) + use<> {
    let (by_pod, by_claim) = (Arc::clone(by_pod), Arc::clone(by_claim));
    move |old, new| {
        let Some(pod) = new.or(old) else { return };
        let wanted = pod.spec.as_ref().and_then(|spec| spec.resource_claims.as_deref()).unwrap_or_default();
        let extended = pod.status.as_ref().and_then(|status| status.extended_resource_claim_status.as_ref());
        let extended = extended.map(|claim| claim.resource_claim_name.as_str());
        if wanted.is_empty() && extended.is_none() {
            return;
        }
        if new.is_none_or(|pod| plan::is_done(pod)) {
            let namespace = pod.namespace().unwrap_or_default();
            for name in wanted.iter().filter_map(|claim| name_of(pod, claim)).chain(extended) {
                by_claim.add(Key { namespace: namespace.clone(), name: name.to_owned() });
            }
        } else {
            by_pod.add(Key::of(&pod.metadata));
        }
    }
}

/// A claim is looked at when it changes, and the Pods that use it or that it was made for.
fn wake_by_claim(
    pods: &Mirror<Pod>,
    by_pod: &Queue,
    by_claim: &Queue,
) -> impl Fn(Option<&Arc<ResourceClaim>>, Option<&Arc<ResourceClaim>>) + use<> {
    let (pods, by_pod, by_claim) = (pods.clone(), Arc::clone(by_pod), Arc::clone(by_claim));
    move |old, new| {
        let Some(claim) = new.or(old) else { return };
        if let Some(claim) = new {
            by_claim.add(Key::of(&claim.metadata));
        }
        let namespace = claim.namespace().unwrap_or_default();
        let users = claim.status.iter().flat_map(|status| status.reserved_for.iter().flatten());
        let users = users.filter(|user| user.resource == "pods").map(|user| user.name.clone());
        let owner = controller_of(&claim.metadata).filter(|owner| owner.kind == "Pod");
        let names = users.chain(owner.map(|owner| owner.name.clone()));
        for name in names.filter(|name| pods.get(&namespace, name).is_some()).collect::<Vec<_>>() {
            by_pod.add(Key { namespace: namespace.clone(), name });
        }
    }
}

/// Pods wait for templates that are not there.
fn wake_by_template(
    pods: &Mirror<Pod>,
    by_pod: &Queue,
) -> impl Fn(Option<&Arc<ResourceClaimTemplate>>, Option<&Arc<ResourceClaimTemplate>>) + use<> {
    let (pods, by_pod) = (pods.clone(), Arc::clone(by_pod));
    move |_, new| {
        let Some(template) = new else { return };
        let name = template.name_any();
        for pod in pods.in_namespace(&template.namespace().unwrap_or_default()) {
            let wanted = pod.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten());
            if wanted.filter_map(|claim| claim.resource_claim_template_name.as_ref()).any(|of| *of == name) {
                by_pod.add(Key::of(&pod.metadata));
            }
        }
    }
}

impl Controller {
    fn claims_of(&self, namespace: &str) -> Api<ResourceClaim> {
        Api::namespaced(self.client.clone(), namespace)
    }

    async fn pod(&self, key: &Key) -> Result<Next, ControllerError> {
        let Some(pod) = self.pods.get(&key.namespace, &key.name) else { return Ok(Next::Wait) };
        let wanted = pod.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten());
        let mut claims = self.claims.controlled_by(&pod.uid().unwrap_or_default());
        let named = wanted.filter_map(|claim| claim.resource_claim_name.as_deref());
        claims.extend(named.filter_map(|name| self.claims.get(&key.namespace, name)));
        let plan = of_pod(&pod, &claims, |name| self.templates.get(&key.namespace, name));
        let mut made = BTreeMap::new();
        for (of, claim) in &plan.make {
            let api = self.claims_of(&key.namespace);
            match api.create(&PostParams::default(), claim).await {
                Ok(claim) => {
                    self.claims.learn(&claim);
                    made.insert(of.clone(), claim.name_any());
                }
                Err(error) => {
                    self.failed(&pod, of, &error.to_string());
                    return Err(ControllerError::of("create ResourceClaim for", key.to_string())(error));
                }
            }
        }
        if plan.names.is_some() || !made.is_empty() {
            self.tell(&pod, plan.names, made).await?;
        }
        for claim in &plan.reserve {
            let mut claim = ResourceClaim::clone(claim);
            claim.status.get_or_insert_default().reserved_for.get_or_insert_default().push(user(&pod));
            self.write_status(&claim).await?;
        }
        if let Some((of, why)) = &plan.failed {
            // The template's coming wakes it.
            self.failed(&pod, of, why);
        }
        Ok(Next::Wait)
    }

    fn failed(&self, pod: &Pod, of: &str, why: &str) {
        let note = format!("PodResourceClaim {of}: {why}");
        self.events.post(pod, Level::Warning, "FailedResourceClaimCreation", "CreateResourceClaim", note);
    }

    /// Writes the names of the claims that were made for a Pod into its status.
    async fn tell(
        &self,
        pod: &Pod,
        names: Option<BTreeMap<String, String>>,
        made: BTreeMap<String, String>,
    ) -> Result<(), ControllerError> {
        let said = pod.status.iter().flat_map(|status| status.resource_claim_statuses.iter().flatten());
        let said = said.filter_map(|status| Some((status.name.clone(), status.resource_claim_name.clone()?)));
        let mut all = names.unwrap_or_else(|| said.collect());
        all.extend(made);
        let statuses: Vec<_> =
            all.iter().map(|(of, name)| json!({"name": of, "resourceClaimName": name})).collect();
        let patch = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"uid": pod.uid()},
            "status": {"resourceClaimStatuses": statuses}});
        let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &namespace);
        let params = PatchParams::apply(MANAGER).force();
        let told = api.patch_status(&name, &params, &Patch::Apply(&patch)).await;
        let told = told.map_err(ControllerError::of("write the claims of Pod", name))?;
        self.pods.learn(&told);
        Ok(())
    }

    async fn claim(&self, key: &Key) -> Result<Next, ControllerError> {
        let Some(claim) = self.claims.get(&key.namespace, &key.name) else { return Ok(Next::Wait) };
        // Whoever is not known may only be new: the scheduler names a Pod that it has just seen.
        let mut asked: BTreeMap<(String, String), User> = BTreeMap::new();
        for user in claim.status.iter().flat_map(|status| status.reserved_for.iter().flatten()) {
            let mut found = known(self.pods.get(&key.namespace, &user.name).as_deref(), &user.uid);
            if found == User::Unknown && user.resource == "pods" {
                let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
                let live = api.get_opt(&user.name).await;
                let live = live.map_err(ControllerError::of("get Pod", user.name.clone()))?;
                found = live.as_ref().map_or(User::Gone, |pod| known(Some(pod), &user.uid));
            }
            asked.insert((user.name.clone(), user.uid.clone()), found);
        }
        let plan = of_claim(&claim, |name, uid| {
            let asked = asked.get(&(name.to_owned(), uid.to_owned())).copied();
            asked.unwrap_or_else(|| known(self.pods.get(&key.namespace, name).as_deref(), uid))
        });
        let mut claim = ResourceClaim::clone(&claim);
        if plan.users.is_some() || plan.give_back {
            let status = claim.status.get_or_insert_default();
            if let Some(users) = plan.users {
                status.reserved_for = (!users.is_empty()).then_some(users);
            }
            if plan.give_back {
                status.allocation = None;
            }
            claim = self.write_status(&claim).await?;
        }
        if plan.let_go {
            claim.finalizers_mut().retain(|finalizer| finalizer != FINALIZER);
            let api = self.claims_of(&key.namespace);
            let written = api.replace(&key.name, &PostParams::default(), &claim).await;
            self.claims
                .learn(&written.map_err(ControllerError::of("let go of ResourceClaim", key.to_string()))?);
        }
        if plan.remove {
            let same = Preconditions { uid: claim.uid(), resource_version: None };
            let params = DeleteParams { preconditions: Some(same), ..DeleteParams::default() };
            match self.claims_of(&key.namespace).delete(&key.name, &params).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => {}
                Err(error) => {
                    return Err(ControllerError::of("delete ResourceClaim", key.to_string())(error));
                }
            }
        }
        Ok(Next::Wait)
    }

    /// Writes the status of a claim as it was read: if it is another by now, this is decided anew.
    async fn write_status(&self, claim: &ResourceClaim) -> Result<ResourceClaim, ControllerError> {
        let (namespace, name) = (claim.namespace().unwrap_or_default(), claim.name_any());
        let api = self.claims_of(&namespace);
        let written = api.replace_status(&name, &PostParams::default(), claim).await;
        let written = written.map_err(ControllerError::of("write the status of ResourceClaim", name))?;
        self.claims.learn(&written);
        Ok(written)
    }
}
