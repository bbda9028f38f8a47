//! Whether a server can be asked, as the condition `Available` of its APIService says it. Source: `kube-aggregator`
//! controllers/status.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::{Method, Request};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use trine_objects::{conditions, time};
use trine_store::Expect;

use super::learn::learn;
use super::pass::as_user;
use super::{Aggregation, GROUP, PLURAL, Remote};
use crate::changes::Changes;
use crate::http::proxy::slices;
use crate::kinds::Objects;
use crate::registry::{now_unix, text};
use crate::status::ApiError;
use crate::user::{MASTERS, User};
use crate::verbs::update::parse;

/// How often a server is asked that answers. Upstream: 30 s.
const PERIOD: Duration = Duration::from_secs(30);
/// When it is asked again that does not, at first and at most.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), PERIOD);
/// How long it may take. Upstream: 5 s.
const DEADLINE: Duration = Duration::from_secs(5);
/// How often it is asked in one go, if it does not answer. Upstream: 5 times.
const ATTEMPTS: usize = 5;
/// How often it is asked what it serves. Upstream: 60 s.
const LEARN_PERIOD: Duration = Duration::from_secs(60);

/// A reason and a message.
type Verdict = (&'static str, String);

/// What keeps everybody from a server, before it is asked.
fn obstacle(remote: &Remote, service: Option<&Value>, slices: &[Value]) -> Option<Verdict> {
    let (namespace, name) = &remote.service;
    let Some(service) = service else {
        return Some(("ServiceNotFound", format!("service/{name} in {namespace:?} is not present")));
    };
    // Only of these it is known what is behind them.
    if !matches!(text(&service["spec"]["type"]), "" | "ClusterIP") {
        return None;
    }
    let port = remote.spec["service"]["port"].as_u64().unwrap_or(443);
    let ports = service["spec"]["ports"].as_array();
    let Some(found) = ports.into_iter().flatten().find(|p| p["port"].as_u64() == Some(port)) else {
        let message = format!("service/{name} in {namespace:?} is not listening on port {port}");
        return Some(("ServicePortError", message));
    };
    if slices.is_empty() {
        let message = format!("cannot find endpointslices for service/{name} in {namespace:?}");
        return Some(("EndpointsNotFound", message));
    }
    let port_name = text(&found["name"]);
    let leads = |slice: &Value| {
        let list = |field: &str| slice[field].as_array().cloned().unwrap_or_default();
        list("endpoints").iter().any(|e| e["conditions"]["ready"] != false)
            && list("ports").iter().any(|p| text(&p["name"]) == port_name && !p["port"].is_null())
    };
    if slices.iter().any(leads) {
        return None;
    }
    let message = format!(
        "endpointslices for service/{name} in {namespace:?} have no addresses with port name {port_name:?}"
    );
    Some(("MissingEndpoints", message))
}

impl Aggregation {
    /// Asks the server for something that it must serve.
    async fn probe(&self, remote: &Remote) -> Result<(), String> {
        let place = remote.place(&self.registry).map_err(|e| e.to_string())?;
        let url = format!("https://{}{}", place.authority(), remote.root());
        let failed = |why: &dyn std::fmt::Display| format!("failing or missing response from {url}: {why}");
        let mut request = Request::builder()
            .method(Method::GET)
            .uri(remote.root())
            .body(Body::empty())
            .map_err(|e| failed(&e))?;
        as_user(
            request.headers_mut(),
            &User { groups: vec![MASTERS.to_owned()], ..User::new("system:kube-aggregator", &[]) },
        );
        let answer = timeout(DEADLINE, remote.send_apart(&place, request)).await;
        let answer = answer.map_err(|_| format!("timed out waiting for {url}"))?.map_err(|e| failed(&e))?;
        let code = answer.status();
        if code.is_success() {
            return Ok(());
        }
        Err(failed(&format!("bad status from {url}: {}", code.as_u16())))
    }

    /// The verdict about a server, and whether it can be asked.
    async fn judge(&self, remote: &Remote, service: Option<&Value>, slices: &[Value]) -> (bool, Verdict) {
        if let Some(obstacle) = obstacle(remote, service, slices) {
            return (false, obstacle);
        }
        let mut last = match self.probe(remote).await {
            Ok(()) => return (true, ("Passed", "all checks passed".to_owned())),
            Err(why) => why,
        };
        // Several servers may be behind the Service, and one of them well.
        let more = futures::future::join_all((1..ATTEMPTS).map(|_| self.probe(remote))).await;
        for result in more {
            match result {
                Ok(()) => return (true, ("Passed", "all checks passed".to_owned())),
                Err(why) => last = why,
            }
        }
        (false, ("FailedDiscoveryCheck", last))
    }

    async fn say(&self, remote: &Remote, available: bool, verdict: &Verdict) -> Result<(), ApiError> {
        let services = self.registry.resource(GROUP, "v1", PLURAL)?;
        let current = self.registry.get(&services, "", &remote.name)?;
        let mut object = parse(current.json())?;
        if object["spec"] != remote.spec {
            return Ok(());
        }
        let (reason, message) = verdict;
        if conditions::set(&mut object, "Available", available, reason, message, &time::format(now_unix())) {
            tracing::info!(name = remote.name, available, reason, message, "APIService");
            self.registry.put(&services, object, Expect::At(current.revision)).await?;
        }
        Ok(())
    }

    /// Looks after one server as long as it is named.
    async fn keep(self: Arc<Self>, remote: Arc<Remote>, mut changed: watch::Receiver<u64>) {
        let (mut seen, mut due, mut learn_due, mut pause) = (None, Instant::now(), Instant::now(), RETRY.0);
        loop {
            changed.borrow_and_update();
            let (namespace, name) = &remote.service;
            let service = Objects::get(&*self.registry, "", "services", namespace, name);
            let slices = slices(&self.registry, namespace, name);
            let mut hasher = DefaultHasher::new();
            service.as_ref().map(Value::to_string).hash(&mut hasher);
            slices.iter().for_each(|s| s.to_string().hash(&mut hasher));
            let now = Some(hasher.finish());
            if now != seen || Instant::now() >= due {
                let (available, verdict) = self.judge(&remote, service.as_ref(), &slices).await;
                match self.say(&remote, available, &verdict).await {
                    Ok(()) => seen = now,
                    Err(error) => {
                        tracing::debug!(name = remote.name, %error, "APIService's status not written")
                    }
                }
                pause = if available { RETRY.0 } else { (pause * 2).min(RETRY.1) };
                due = Instant::now() + if available { PERIOD } else { pause };
                let forgotten = remote.learned().discovery.is_none();
                if available && (forgotten || Instant::now() >= learn_due) {
                    remote.learn(Arc::new(learn(&self, &remote).await));
                    learn_due = Instant::now() + LEARN_PERIOD;
                } else if !available {
                    remote.learn(Arc::new(remote.learned().stale()));
                    learn_due = Instant::now();
                }
            }
            tokio::select! {
                gone = changed.changed() => if gone.is_err() { return },
                () = sleep_until(due) => {}
            }
        }
    }
}

/// Looks after all servers until `stop`.
///
/// # Errors
/// [`ApiError`] if a kind is not served that this is about.
pub async fn follow(aggregation: Arc<Aggregation>, stop: CancellationToken) -> Result<(), ApiError> {
    let registry = Arc::clone(&aggregation.registry);
    let kinds = [(GROUP, PLURAL), ("", "services"), ("discovery.k8s.io", "endpointslices")];
    let watched = kinds.map(|(group, plural)| registry.resource(group, "v1", plural));
    let mut changes = Changes::of(&registry, watched.into_iter().collect::<Result<Vec<_>, _>>()?);
    let (bump, changed) = watch::channel(0_u64);
    let mut keepers: BTreeMap<String, (Arc<Remote>, Keeper)> = BTreeMap::new();
    loop {
        let all = aggregation.all();
        keepers.retain(|_, (kept, _)| all.iter().any(|remote| Arc::ptr_eq(kept, remote)));
        for remote in all {
            keepers.entry(remote.name.clone()).or_insert_with(|| {
                let keep = Arc::clone(&aggregation).keep(Arc::clone(&remote), changed.clone());
                (remote, Keeper(tokio::spawn(keep)))
            });
        }
        bump.send_modify(|n| *n += 1);
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = changes.next() => {}
        }
    }
}

/// A task that ends when nobody wants it any more.
struct Keeper(JoinHandle<()>);

impl Drop for Keeper {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::Authority;
    use crate::rotation::{LIFETIME, Newest, Rotation};
    use serde_json::json;

    #[test]
    fn what_is_in_the_way_has_upstreams_reasons() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Arc::new(Authority::load_or_make(dir.path()).unwrap());
        let identity = Rotation::new(authority, LIFETIME).keep("front-proxy-client", &[], &[]).unwrap();
        let identity = Newest::of(identity, Arc::new(rustls::crypto::ring::default_provider())).unwrap();
        let object = json!({"metadata": {"name": "v1.a.io"}, "spec": {"group": "a.io", "version": "v1",
            "service": {"namespace": "n", "name": "s", "port": 443}}});
        let remote = Remote::read(&object, &identity).unwrap();
        let service =
            |port: u16| json!({"spec": {"type": "ClusterIP", "ports": [{"name": "https", "port": port}]}});
        let slice = |name: &str, ready: bool| {
            json!({"ports": [{"name": name, "port": 8443}],
            "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": ready}}]})
        };
        let external = json!({"spec": {"type": "ExternalName"}});
        for (service, slices, wanted) in [
            (None, vec![], Some(("ServiceNotFound", "service/s in \"n\" is not present"))),
            (
                Some(service(80)),
                vec![],
                Some(("ServicePortError", "service/s in \"n\" is not listening on port 443")),
            ),
            (
                Some(service(443)),
                vec![],
                Some(("EndpointsNotFound", "cannot find endpointslices for service/s in \"n\"")),
            ),
            (
                Some(service(443)),
                vec![slice("https", false), slice("http", true)],
                Some((
                    "MissingEndpoints",
                    "endpointslices for service/s in \"n\" have no addresses with port name \"https\"",
                )),
            ),
            (Some(service(443)), vec![slice("https", true)], None),
            (Some(external), vec![], None),
        ] {
            let found = obstacle(&remote, service.as_ref(), &slices);
            assert_eq!(found, wanted.map(|(reason, message)| (reason, message.to_owned())));
        }
    }
}
