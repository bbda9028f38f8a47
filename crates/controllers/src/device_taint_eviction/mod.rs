//! Pods leave devices whose taints drive them off: those that drivers tell of in their slices, and those of `DeviceTaintRule`s, whose
//! status tells how far it is. `plan` decides.

mod plan;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::json;
use trine_typed::disruption::disrupt;
use trine_typed::event::Level;
use trine_typed::k8s_openapi::api::core::v1::Pod;
use trine_typed::k8s_openapi::api::resource::v1::{DeviceTaintRule, ResourceClaim, ResourceSlice};
use trine_typed::kube::api::{Patch, PatchParams};
use trine_typed::kube::{Api, Client, ResourceExt};
use trine_typed::mirror::{Key, Mirror, Subscription};
use trine_typed::pods::is_finished;
use trine_typed::work_queue::{Next, WorkQueue};

use crate::events::Events;
use crate::frame::{ControllerError, Cx, retried};
use plan::{DRIVES_OFF, Eviction, Known, Progress, condition, results};

/// Pods, or rules, that are worked on at a time.
const WORKERS: usize = 4;
/// How often a rule's status is written while Pods go. Upstream: `ruleStatusPeriod`.
const PERIOD: Duration = Duration::from_secs(10);
/// The controller's name, under which it writes statuses. Upstream's.
const NAME: &str = "device-taint-eviction";
const REASON: &str = "DeviceTaintManagerEviction";
/// The condition of a rule.
const CONDITION: &str = "EvictionInProgress";

type Queue = Arc<WorkQueue<Key>>;

struct Controller {
    client: Client,
    pods: Mirror<Pod>,
    claims: Mirror<ResourceClaim>,
    slices: Mirror<ResourceSlice>,
    rules: Mirror<DeviceTaintRule>,
    events: Events,
    by_pod: Queue,
    by_rule: Queue,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Pods that will have to go, by UID.
    waiting: HashSet<String>,
    /// How many Pods each rule has driven off, by its UID.
    evicted: HashMap<String, u64>,
}

/// Runs until the context ends.
pub async fn run(cx: Cx) {
    let controller = Arc::new(Controller {
        client: cx.client.clone(),
        pods: cx.shared(),
        claims: cx.shared(),
        slices: cx.shared(),
        rules: cx.shared(),
        events: Events::start(cx.client.clone(), NAME, cx.stop.clone()),
        by_pod: Arc::default(),
        by_rule: Arc::default(),
        state: Mutex::default(),
    });
    let this = &*controller;
    tokio::join!(this.pods.ready(), this.claims.ready(), this.slices.ready(), this.rules.ready());
    let _woken = controller.wake();
    let pod = |key: Key| {
        let this = Arc::clone(&controller);
        async move { this.pod(&key).await.unwrap_or_else(|error| retried(NAME, &error)) }
    };
    let rule = |key: Key| {
        let this = Arc::clone(&controller);
        async move { this.rule(&key).await.unwrap_or_else(|error| retried(NAME, &error)) }
    };
    tokio::join!(
        controller.by_pod.work(WORKERS, &cx.stop, pod),
        controller.by_rule.work(WORKERS, &cx.stop, rule)
    );
}

/// The taints of a slice that drive off.
fn driving(slice: Option<&Arc<ResourceSlice>>) -> Vec<(String, String)> {
    let devices = slice.into_iter().flat_map(|slice| slice.spec.devices.iter().flatten());
    let taints = devices.flat_map(|device| {
        let taints = device.taints.iter().flatten().filter(|taint| taint.effect == DRIVES_OFF);
        taints.map(|taint| (device.name.clone(), format!("{taint:?}")))
    });
    taints.collect()
}

impl Controller {
    /// A Pod is looked at when it is placed or told of its claims, and when one of these, a slice or a rule changes.
    fn wake(self: &Arc<Self>) -> [Subscription; 4] {
        let pods = {
            let queue = Arc::clone(&self.by_pod);
            self.pods.subscribe(move |old, new| {
                let Some(pod) = new.or(old) else { return };
                let status = pod.status.as_ref();
                let extended = status.is_some_and(|status| status.extended_resource_claim_status.is_some());
                if extended || pod.spec.as_ref().is_some_and(|spec| spec.resource_claims.is_some()) {
                    queue.add(Key::of(&pod.metadata));
                }
            })
        };
        let this = Arc::clone(self);
        let claims = self.claims.subscribe(move |old, new| {
            [old, new].into_iter().flatten().for_each(|claim| this.wake_users(claim));
        });
        let this = Arc::clone(self);
        let slices = self.slices.subscribe(move |old, new| {
            let Some(slice) = new.or(old).filter(|_| driving(old) != driving(new)) else { return };
            let spec = &slice.spec;
            for claim in this.claims.all() {
                if results(&claim).any(|of| of.driver == spec.driver && of.pool == spec.pool.name) {
                    this.wake_users(&claim);
                }
            }
        });
        let this = Arc::clone(self);
        let rules = self.rules.subscribe(move |old, new| {
            if old.map(|rule| &rule.spec) == new.map(|rule| &rule.spec) {
                return;
            }
            match (old, new) {
                (_, Some(rule)) => this.by_rule.add(Key::of(&rule.metadata)),
                (Some(rule), None) => drop(this.state().evicted.remove(&rule.uid().unwrap_or_default())),
                (None, None) => {}
            }
            this.claims.all().iter().for_each(|claim| this.wake_users(claim));
        });
        [pods, claims, slices, rules]
    }

    fn wake_users(&self, claim: &ResourceClaim) {
        let namespace = claim.namespace().unwrap_or_default();
        let users = claim.status.iter().flat_map(|status| status.reserved_for.iter().flatten());
        for user in users.filter(|user| user.resource == "pods") {
            self.by_pod.add(Key { namespace: namespace.clone(), name: user.name.clone() });
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn pod(&self, key: &Key) -> Result<Next, ControllerError> {
        let Some(pod) = self.pods.get(&key.namespace, &key.name) else { return Ok(Next::Wait) };
        let uid = pod.uid().unwrap_or_default();
        let here = pod.metadata.deletion_timestamp.is_none() && !is_finished(&pod);
        let (slices, rules) = (self.slices.all(), self.rules.all());
        let known = Known { slices: &slices, rules: &rules, as_if: None };
        let find = |name: &str| self.claims.get(&key.namespace, name);
        let Some(eviction) = here.then(|| known.of_pod(&pod, find)).flatten() else {
            if self.state().waiting.remove(&uid) && here {
                self.events.post(&*pod, Level::Normal, REASON, REASON, "Cancelling deletion");
            }
            return Ok(Next::Wait);
        };
        self.state().waiting.insert(uid.clone());
        self.tell_later(&eviction);
        let wait = eviction.at.duration_since(trine_clock::now());
        if let Some(wait) = Duration::try_from(wait).ok().filter(|wait| !wait.is_zero()) {
            return Ok(Next::After(wait));
        }
        self.events.post(&*pod, Level::Normal, REASON, REASON, "Marking for deletion");
        let message = "Device Taint manager: deleting due to NoExecute taint";
        match disrupt(&self.client, &pod, "DeletionByDeviceTaintManager", message).await {
            Ok(()) => {}
            Err(trine_typed::kube::Error::Api(status)) if status.code == 404 => return Ok(Next::Wait),
            Err(error) => return Err(ControllerError::of("evict Pod", &key.name)(error)),
        }
        {
            let mut state = self.state();
            state.waiting.remove(&uid);
            for rule in eviction.rules {
                *state.evicted.entry(rule).or_default() += 1;
            }
        }
        Ok(Next::Wait)
    }

    /// The rules that drive a Pod off tell of it, but not of every Pod by itself.
    fn tell_later(&self, eviction: &Eviction) {
        for rule in self.rules.all() {
            if rule.metadata.uid.as_ref().is_some_and(|uid| eviction.rules.contains(uid)) {
                self.by_rule.add_after(Key::of(&rule.metadata), PERIOD);
            }
        }
    }

    async fn rule(&self, key: &Key) -> Result<Next, ControllerError> {
        let Some(rule) = self.rules.get("", &key.name) else { return Ok(Next::Wait) };
        let now = trine_clock::now();
        let conditions = rule.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let known = conditions.into_iter().find(|condition| condition.type_ == CONDITION);
        if let Some(known) = known.filter(|known| known.observed_generation == rule.metadata.generation) {
            let since =
                Duration::try_from(now.duration_since(known.last_transition_time.0)).unwrap_or_default();
            if since < PERIOD {
                return Ok(Next::After(PERIOD - since));
            }
        }
        let (status, reason, message) = condition(&rule.spec.taint.effect, self.progress(&rule));
        let status = if status { "True" } else { "False" };
        let same = known.is_some_and(|known| {
            known.observed_generation == rule.metadata.generation
                && (known.status.as_str(), known.reason.as_str(), known.message.as_str())
                    == (status, reason, message.as_str())
        });
        if same {
            return Ok(Next::Wait);
        }
        let condition = json!({"type": CONDITION, "status": status, "reason": reason, "message": message,
            "observedGeneration": rule.metadata.generation, "lastTransitionTime": now});
        let api: Api<DeviceTaintRule> = Api::all(self.client.clone());
        let patch = json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule",
            "metadata": {"name": key.name, "uid": rule.uid()}, "status": {"conditions": [condition]}});
        let params = PatchParams::apply(NAME).force();
        let written = api.patch_status(&key.name, &params, &Patch::Apply(patch)).await;
        let written = written.map_err(ControllerError::of("write status of DeviceTaintRule", &key.name))?;
        self.rules.learn(&written);
        Ok(Next::Wait)
    }

    /// How far a rule is; of one without an effect, how far it would come.
    fn progress(&self, rule: &DeviceTaintRule) -> Progress {
        let uid = rule.uid().unwrap_or_default();
        let mut progress = Progress {
            evicted: self.state().evicted.get(&uid).copied().unwrap_or_default(),
            ..Progress::default()
        };
        let effect = rule.spec.taint.effect.as_str();
        if ![DRIVES_OFF, "None"].contains(&effect) {
            return progress;
        }
        let (slices, rules) = (self.slices.all(), self.rules.all());
        let known = Known { slices: &slices, rules: &rules, as_if: (effect == "None").then_some(&*uid) };
        let mut namespaces = BTreeSet::new();
        for pod in self.pods.all() {
            let namespace = pod.namespace().unwrap_or_default();
            let goes = || known.of_pod(&pod, |name| self.claims.get(&namespace, name));
            if pod.metadata.deletion_timestamp.is_none()
                && goes().is_some_and(|eviction| eviction.rules.contains(&uid))
            {
                progress.pods += 1;
                namespaces.insert(namespace);
            }
        }
        progress.namespaces = namespaces.len();
        if effect == "None" {
            progress.devices = known.devices_of(rule, &self.claims.all());
        }
        progress
    }
}
