//! Watches Services and EndpointSlices, and keeps the engine going.

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;
use trine_typed::feed::{Change, Feed};
use trine_typed::k8s_openapi::api::core::v1::Service;
use trine_typed::k8s_openapi::api::discovery::v1::EndpointSlice;
use trine_typed::kube::{Client, ResourceExt};

use crate::config::Config;
use crate::engine::Engine;
use crate::error::ProxyError;
use crate::model::{Model, ServiceKey, ServiceSpec, SliceSpec};

/// How long changes are gathered before they are done.
const GATHER: Duration = Duration::from_millis(5);
/// How often the kernel is asked whether the table is still there: others flush whole rulesets.
const VERIFY: Duration = Duration::from_secs(10);
/// How long to wait after a failure; doubled each time.
const RETRY: Duration = Duration::from_millis(200);
/// The longest wait after a failure.
const RETRY_MAX: Duration = Duration::from_secs(10);
/// Pods named in the trace of one change; a change of more is a bulk one.
const TRACED_PODS: usize = 16;

/// Watches and acts until told to stop. The rules stay: see [`crate::cleanup`].
///
/// # Errors
/// [`ProxyError`] if the kernel's side cannot be opened, or a watch ends by itself.
pub async fn run(client: Client, config: Config, stop: CancellationToken) -> Result<(), ProxyError> {
    let mut engine = blocking(move || Engine::new(config)).await??;
    let mut services = Feed::<Service>::all(client.clone());
    let mut slices = Feed::<EndpointSlice>::all(client);
    let mut next_verify = Instant::now();
    let mut work: Option<Instant> = None;
    let mut wait = RETRY;
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            () = tokio::time::sleep_until(next_verify) => {
                next_verify = Instant::now() + VERIFY;
                let (back, verified) = on_thread(engine, Engine::verify).await?;
                engine = back;
                match verified {
                    Ok(true) => tracing::warn!("the table had been removed by somebody; it is there again"),
                    Ok(false) => {}
                    Err(error) => report(&error),
                }
            }
            () = until(work), if work.is_some() => {
                let (back, done) = sync(engine).await?;
                engine = back;
                match done {
                    Ok(()) => (work, wait) = (None, RETRY),
                    Err(error) => {
                        report(&error);
                        work = Some(Instant::now() + wait);
                        wait = (wait * 2).min(RETRY_MAX);
                    }
                }
            }
            change = services.next() => {
                service(change.ok_or(ProxyError::WatchEnded { kind: "Services" })?, &mut engine.model);
                work = wake(work, services.listed() && slices.listed());
            }
            change = slices.next() => {
                slice(change.ok_or(ProxyError::WatchEnded { kind: "EndpointSlices" })?, &mut engine.model);
                work = wake(work, services.listed() && slices.listed());
            }
        }
    }
}

/// Until both kinds are listed nothing is done: half a picture would cut what works.
fn wake(work: Option<Instant>, listed: bool) -> Option<Instant> {
    work.or_else(|| listed.then(|| Instant::now() + GATHER))
}

async fn until(work: Option<Instant>) {
    match work {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

fn report(error: &ProxyError) {
    let cause = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    tracing::warn!(%error, cause, "the node's Services are not up to date");
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, ProxyError> {
    tokio::task::spawn_blocking(work).await.map_err(|e| ProxyError::Executor { message: e.to_string() })
}

async fn on_thread<T: Send + 'static>(
    mut engine: Engine,
    work: impl FnOnce(&mut Engine) -> T + Send + 'static,
) -> Result<(Engine, T), ProxyError> {
    blocking(move || {
        let result = work(&mut engine);
        (engine, result)
    })
    .await
}

/// One round, with a step in the trace of each Pod that it concerns.
async fn sync(engine: Engine) -> Result<(Engine, Result<(), ProxyError>), ProxyError> {
    let dirty = engine.model.dirty();
    if dirty.is_empty() && engine.is_loaded() {
        return Ok((engine, Ok(())));
    }
    let pods = engine.pods_of(dirty);
    let detail = match dirty.first() {
        Some(only) if dirty.len() == 1 => only.to_string(),
        _ => format!("{} Services", dirty.len()),
    };
    let named: Vec<_> = if pods.len() > TRACED_PODS { Vec::new() } else { pods.into_iter().collect() };
    let steps: Vec<_> = named.iter().map(|pod| step(&detail, Some(pod))).collect();
    let step = step(&detail, None);
    let (engine, done) = on_thread(engine, Engine::sync).instrument(step.clone()).await?;
    match &done {
        Ok(synced) => tracing::debug!(?synced, "Services are up to date"),
        Err(error) => steps.iter().chain([&step]).for_each(|step| {
            step.record("error", tracing::field::display(error));
        }),
    }
    Ok((engine, done.map(|_| ())))
}

fn step(detail: &str, pod: Option<&str>) -> tracing::Span {
    tracing::info_span!(
        target: "trine::step",
        "Service",
        plane = "proxy",
        pod,
        detail,
        error = tracing::field::Empty
    )
}

fn key((namespace, name): &(String, String)) -> ServiceKey {
    ServiceKey::new(namespace, name)
}

fn key_of(object: &impl ResourceExt) -> ServiceKey {
    ServiceKey::new(&object.namespace().unwrap_or_default(), &object.name_any())
}

fn service(change: Change<Service>, model: &mut Model) {
    match change {
        Change::Is(service) => model.set_service(key_of(&*service), ServiceSpec::from_api(&service)),
        Change::Gone(gone) => model.set_service(key(&gone), None),
        Change::Only(listed) => model.keep_services(&listed.iter().map(key).collect()),
    }
}

fn slice(change: Change<EndpointSlice>, model: &mut Model) {
    match change {
        Change::Is(slice) => model.set_slice(key_of(&*slice), SliceSpec::from_api(&slice)),
        Change::Gone(gone) => model.set_slice(key(&gone), None),
        Change::Only(listed) => model.keep_slices(&listed.iter().map(key).collect()),
    }
}
