//! Watches NetworkPolicies, and Pods and namespaces while there are any; keeps the engine going.

use std::collections::HashMap;
use std::time::Duration;

use tokio::net::UnixDatagram;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use trine_kernel::netns::Netns;
use trine_kernel::nft::held::{self, Held};
use trine_typed::event::{Level, Recorder};
use trine_typed::feed::{Change, Feed};
use trine_typed::k8s_openapi::api::core::v1::{Namespace, ObjectReference, Pod};
use trine_typed::k8s_openapi::api::networking::v1::NetworkPolicy;
use trine_typed::kube::{Client, ResourceExt};

use crate::config::Config;
use crate::engine::{Engine, Turn};
use crate::error::PolicyError;
use crate::model::{Key, Model, PodFacts};
use crate::policy::Policy;

/// How long changes are gathered before they are done.
const GATHER: Duration = Duration::from_millis(5);
/// How often the kernel is asked whether the tables are still there: others flush whole rulesets.
const VERIFY: Duration = Duration::from_secs(10);
/// How long to wait after a failure; doubled each time.
const RETRY: Duration = Duration::from_millis(200);
/// The longest wait after a failure.
const RETRY_MAX: Duration = Duration::from_secs(10);
/// How long a Pod may be held before that is an event.
const HELD: Duration = Duration::from_secs(10);
/// The event's reason.
const REASON: &str = "NetworkPolicyNotInForce";
/// That of the event which says that it is over.
const OVER: &str = "NetworkPolicyInForce";

/// Pods and namespaces, watched while there are policies.
struct Others {
    pods: Feed<Pod>,
    namespaces: Feed<Namespace>,
}

impl Others {
    fn start(client: &Client) -> Self {
        Self { pods: Feed::all(client.clone()), namespaces: Feed::all(client.clone()) }
    }

    async fn next(&mut self, model: &mut Model) -> Result<(), PolicyError> {
        tokio::select! {
            change = self.pods.next() => pod(change.ok_or(PolicyError::WatchEnded { kind: "Pods" })?, model),
            change = self.namespaces.next() => {
                namespace(change.ok_or(PolicyError::WatchEnded { kind: "Namespaces" })?, model);
            }
        }
        Ok(())
    }
}

/// What is known of held Pods over time.
struct Late {
    recorder: Recorder,
    /// Since when a link is held, and whether that was told.
    since: HashMap<String, (Instant, bool)>,
}

/// Watches and acts until told to stop. The rules stay: see [`crate::cleanup`].
///
/// # Errors
/// [`PolicyError`] if the kernel's side cannot be opened, or a watch ends by itself.
pub async fn run(client: Client, config: Config, stop: CancellationToken) -> Result<(), PolicyError> {
    let recorder = Recorder::new(client.clone(), "trine-policy", Some(&config.node_name));
    let mut late = Late { recorder, since: HashMap::new() };
    // Heard before anything can be held.
    let bell = listen(&config)?;
    let mut engine = blocking(move || Engine::open(config)).await??;
    let mut policies = Feed::<NetworkPolicy>::all(client.clone());
    let mut others: Option<Others> = None;
    let mut next_verify = Instant::now() + VERIFY;
    let mut work: Option<Instant> = None;
    let mut wait = RETRY;
    loop {
        let mut rings = [0; 8];
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            rung = bell.recv(&mut rings) => {
                rung.map_err(PolicyError::Bell)?;
                work = Some(Instant::now());
            }
            () = tokio::time::sleep_until(next_verify) => {
                next_verify = Instant::now() + VERIFY;
                let (back, verified) = on_thread(engine, Engine::verify).await?;
                engine = back;
                match verified {
                    Ok(true) => tracing::warn!("tables had been removed by somebody; they are made anew"),
                    Ok(false) => {}
                    Err(error) => report(&error),
                }
                if !listed(&policies, others.as_ref(), &engine.model) {
                    tracing::warn!("NetworkPolicies, or the Pods that they judge, cannot be listed: new Pods are held");
                }
                work = work.or(Some(Instant::now()));
            }
            () = until(work), if work.is_some() => {
                work = None;
                if !listed(&policies, others.as_ref(), &engine.model) {
                    // The end of the list wakes.
                    continue;
                }
                let (back, turn) = on_thread(engine, Engine::turn).await?;
                engine = back;
                wait = match &turn.failed {
                    None => RETRY,
                    Some(error) => {
                        report(error);
                        work = Some(Instant::now() + wait);
                        (wait * 2).min(RETRY_MAX)
                    }
                };
                late.note(&engine.model, &turn).await;
            }
            change = policies.next() => {
                policy(change.ok_or(PolicyError::WatchEnded { kind: "NetworkPolicies" })?, &mut engine.model);
                match (engine.model.has_policies(), &others) {
                    (true, None) => others = Some(Others::start(&client)),
                    (false, Some(_)) if policies.listed() => {
                        others = None;
                        engine.model.forget_pods();
                    }
                    _ => {}
                }
                work = work.or(Some(Instant::now() + GATHER));
            }
            changed = next(&mut others, &mut engine.model) => {
                changed?;
                work = work.or(Some(Instant::now() + GATHER));
            }
        }
    }
}

/// Until all kinds are listed nothing is done: half a picture would let pass what must not, or cut what works.
fn listed(policies: &Feed<NetworkPolicy>, others: Option<&Others>, model: &Model) -> bool {
    let others = others.is_some_and(|others| others.pods.listed() && others.namespaces.listed());
    policies.listed() && (others || !model.has_policies())
}

async fn next(others: &mut Option<Others>, model: &mut Model) -> Result<(), PolicyError> {
    match others {
        Some(others) => others.next(model).await,
        None => std::future::pending().await,
    }
}

async fn until(work: Option<Instant>) {
    match work {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

fn listen(config: &Config) -> Result<UnixDatagram, PolicyError> {
    let bell = match &config.netns {
        Some(path) => {
            let netns = Netns::open(path).map_err(PolicyError::Netns)?;
            netns.run(|| held::listen(&config.instance)).map_err(PolicyError::Netns)?
        }
        None => held::listen(&config.instance),
    };
    bell.and_then(UnixDatagram::from_std).map_err(PolicyError::Bell)
}

impl Late {
    /// Remembers who is held, and tells of those that are for too long, once.
    async fn note(&mut self, model: &Model, turn: &Turn) {
        for held in &turn.freed {
            let Some((key, pod)) = model.pod_of(&held.pod_uid) else { continue };
            drop(in_force(&format!("{}/{}", key.0, key.1), &held.pod_uid));
            if let Some((since, true)) = self.since.get(&held.link) {
                let message = format!("its policies are in force after {:.0?}", since.elapsed());
                self.recorder.post_about(reference(key, pod), Level::Normal, OVER, &message).await;
            }
        }
        self.since.retain(|link, _| turn.waiting.iter().any(|held| held.link == *link));
        for held in &turn.waiting {
            let (since, told) =
                *self.since.entry(held.link.clone()).or_insert_with(|| (Instant::now(), false));
            if since.elapsed() >= HELD && !told {
                let told = self.tell(model, held, turn.failed.as_ref()).await;
                self.since.insert(held.link.clone(), (since, told));
            }
        }
    }

    /// False if the Pod is not known: there is nothing yet that an event could be of.
    async fn tell(&self, model: &Model, held: &Held, failed: Option<&PolicyError>) -> bool {
        let why = failed.map_or_else(
            || "the API server has told of no Pod with its uid".to_owned(),
            |error| trine_typed::chain::display(error),
        );
        let message =
            format!("{} passes nothing: its policies are not in force after {HELD:?}: {why}", held.link);
        tracing::warn!(pod_uid = held.pod_uid, message);
        let Some((key, pod)) = model.pod_of(&held.pod_uid) else { return false };
        self.recorder.post_about(reference(key, pod), Level::Warning, REASON, &message).await;
        true
    }
}

fn reference((namespace, name): &Key, pod: &PodFacts) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        namespace: Some(namespace.clone()),
        name: Some(name.clone()),
        uid: Some(pod.uid.clone()),
        ..ObjectReference::default()
    }
}

fn in_force(pod: &str, uid: &str) -> tracing::Span {
    tracing::info_span!(target: "trine::step", "NetworkPolicy", plane = "policy", pod, pod_uid = uid, detail = "in force")
}

fn report(error: &PolicyError) {
    let cause = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    tracing::warn!(%error, cause, "the node's policies are not in force");
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, PolicyError> {
    tokio::task::spawn_blocking(work).await.map_err(|e| PolicyError::Executor { message: e.to_string() })
}

async fn on_thread<T: Send + 'static>(
    mut engine: Engine,
    work: impl FnOnce(&mut Engine) -> T + Send + 'static,
) -> Result<(Engine, T), PolicyError> {
    blocking(move || {
        let result = work(&mut engine);
        (engine, result)
    })
    .await
}

fn key_of(object: &impl ResourceExt) -> Key {
    (object.namespace().unwrap_or_default(), object.name_any())
}

fn policy(change: Change<NetworkPolicy>, model: &mut Model) {
    match change {
        Change::Is(policy) => model.set_policy(&key_of(&*policy), Policy::from_api(&policy)),
        Change::Gone(gone) => model.set_policy(&gone, None),
        Change::Only(listed) => model.keep_policies(&listed),
    }
}

fn pod(change: Change<Pod>, model: &mut Model) {
    match change {
        Change::Is(pod) => model.set_pod(&key_of(&*pod), Some(PodFacts::from_api(&pod))),
        Change::Gone(gone) => model.set_pod(&gone, None),
        Change::Only(listed) => model.keep_pods(&listed),
    }
}

fn namespace(change: Change<Namespace>, model: &mut Model) {
    match change {
        Change::Is(namespace) => {
            model.set_namespace(&namespace.name_any(), Some(namespace.metadata.labels.unwrap_or_default()));
        }
        Change::Gone(gone) => model.set_namespace(&gone.1, None),
        Change::Only(listed) => model.keep_namespaces(&listed),
    }
}
