//! The loop that all controllers share: woken by change and by timer it runs the same path. A reconcile takes no
//! event, only the state that it reads; what fails is retried at the next turn.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use trine_typed::k8s_openapi::api::apps::v1::ReplicaSet;
use trine_typed::k8s_openapi::api::core::v1::ReplicationController;
use trine_typed::kube::{self, Client};
use trine_typed::mirror::{Kind, Mirror, Mirrors};
use trine_typed::supervise;
use trine_typed::work_queue::Next;

/// Settings that controllers need.
#[derive(Debug, Clone)]
pub struct Config {
    /// The cluster's CA certificate, for `kube-root-ca.crt`.
    pub ca_pem: String,
    /// The range that nodes' Pod ranges are cut from, `10.244.0.0/16`; of each family one, with a comma between them.
    pub pod_cidr: String,
    /// Prefix length of one node's range of IPv4, and of IPv6. Default 24 and 64.
    pub node_prefix: (u8, u8),
    /// The cluster's CA key, to sign certificates; without it nobody signs them.
    pub signer: Option<SigningKey>,
}

/// The key of an authority, PEM. Not shown in logs.
#[derive(Clone)]
pub struct SigningKey {
    /// The key.
    pub key_pem: String,
}

impl Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SigningKey")
    }
}

/// A write that the API server refused.
#[derive(Debug, thiserror::Error)]
#[error("controllers: {call} {object} failed")]
pub struct ControllerError {
    /// What was tried.
    pub call: &'static str,
    /// On what.
    pub object: String,
    /// What the API server said.
    pub source: Box<kube::Error>,
}

impl ControllerError {
    /// Names the call and the object of a refused write.
    pub fn of(call: &'static str, object: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let object = object.into();
        move |source| Self { call, object, source: Box::new(source) }
    }

    /// True if the object was changed, made or removed by somebody else meanwhile: the next turn sees it.
    #[must_use]
    pub fn is_race(&self) -> bool {
        matches!(&*self.source, kube::Error::Api(status) if status.code == 409 || status.code == 404)
    }
}

/// The ways to the API server: the copies that all controllers read, and a way for each ServiceAccount of `kube-system` as which
/// a controller writes, so that each may do its own work and no more.
#[derive(Clone)]
pub struct Clients {
    read: Mirrors,
    account: Arc<dyn Fn(&str) -> Client + Send + Sync>,
}

impl Clients {
    /// `read` is read, by others too if they have it; `account` gives the way of a ServiceAccount.
    pub fn new(read: impl Into<Mirrors>, account: impl Fn(&str) -> Client + Send + Sync + 'static) -> Self {
        Self { read: read.into(), account: Arc::new(account) }
    }
}

/// One way for everything.
impl From<Client> for Clients {
    fn from(client: Client) -> Self {
        let every = client.clone();
        Self::new(client, move |_| every.clone())
    }
}

/// What every controller is given.
#[derive(Clone)]
pub struct Cx {
    /// The way to the API server as the controller's own ServiceAccount.
    pub client: Client,
    /// What is read, and the ways of others.
    clients: Clients,
    /// Settings.
    pub config: Arc<Config>,
    /// Ends the controller.
    pub stop: CancellationToken,
}

impl Cx {
    /// The way of another ServiceAccount.
    #[must_use]
    pub fn client_of(&self, account: &str) -> Client {
        (self.clients.account)(account)
    }

    /// A live copy of all objects of a kind, shared with the other controllers.
    pub fn shared<K: Kind>(&self) -> Mirror<K> {
        self.clients.read.of()
    }

    /// The same, with a wake-up at every change.
    pub fn mirror<K: Kind>(&self, changed: &Arc<Notify>) -> Mirror<K> {
        let mirror = self.shared();
        mirror.wake(changed);
        mirror
    }

    /// Waits for a change or `period`; false when the controller has to end.
    pub async fn turn(&self, changed: &Notify, period: Duration) -> bool {
        tokio::select! {
            () = self.stop.cancelled() => false,
            () = changed.notified() => true,
            () = tokio::time::sleep(period) => true,
        }
    }
}

/// Logs what failed in a turn; races are no news.
pub fn log(controller: &'static str, error: &ControllerError) {
    let message = trine_typed::chain::display(error);
    if error.is_race() {
        tracing::debug!(controller, message, "raced");
    } else {
        tracing::warn!(controller, message, "will be tried again");
    }
}

/// What becomes of a key whose reconcile failed: it is tried again.
#[must_use]
pub fn retried(controller: &'static str, error: &ControllerError) -> Next {
    log(controller, error);
    Next::Retry
}

/// Runs all controllers until `stop`. One that panics is started again; the others go on.
///
/// # Errors
/// None at present.
pub async fn run(
    clients: impl Into<Clients>,
    config: Config,
    stop: CancellationToken,
) -> Result<(), ControllerError> {
    let (clients, config): (Clients, _) = (clients.into(), Arc::new(config));
    // Upstream's names of the ServiceAccounts, which upstream's roles are bound to.
    let cx = |account: &str| Cx {
        client: (clients.account)(account),
        clients: clients.clone(),
        config: Arc::clone(&config),
        stop: stop.clone(),
    };
    tokio::join!(
        supervised("namespace", cx("namespace-controller"), crate::namespace::run),
        supervised("namespace-defaults", cx("service-account-controller"), crate::namespace_defaults::run),
        supervised("node-ipam", cx("node-controller"), crate::node_ipam::run),
        supervised("node-lifecycle", cx("node-controller"), crate::node_lifecycle::run),
        supervised("taint-eviction", cx("node-controller"), crate::taint_eviction::run),
        supervised("endpoint-slice", cx("endpointslice-controller"), crate::endpoint_slice::run),
        supervised("endpoints", cx("endpoint-controller"), crate::endpoints::run),
        supervised(
            "endpoint-slice-mirroring",
            cx("endpointslicemirroring-controller"),
            crate::endpoint_slice_mirroring::run
        ),
        supervised("volume-binder", cx("persistent-volume-binder"), crate::volume_binder::run),
        supervised("volume-protection", cx("pvc-protection-controller"), crate::volume_protection::run),
        supervised("attach-detach", cx("attachdetach-controller"), crate::attach_detach::run),
        supervised("pod-gc", cx("pod-garbage-collector"), crate::pod_gc::run),
        supervised("certificates", cx("certificate-controller"), crate::certificates::run),
        supervised("token", cx("kube-controller-manager"), crate::service_account_token::run),
        supervised(
            "role-aggregation",
            cx("clusterrole-aggregation-controller"),
            crate::role_aggregation::run
        ),
        supervised("garbage-collector", cx("generic-garbage-collector"), crate::garbage::run),
        supervised("ephemeral-volume", cx("ephemeral-volume-controller"), crate::ephemeral_volume::run),
        supervised("resource-claim", cx("resource-claim-controller"), crate::resource_claim::run),
        supervised(
            "device-taint-eviction",
            cx("device-taint-eviction-controller"),
            crate::device_taint_eviction::run
        ),
        supervised("resource-quota", cx("resourcequota-controller"), crate::resource_quota::run),
        supervised("daemon-set", cx("daemon-set-controller"), crate::daemon_set::run),
        supervised("stateful-set", cx("statefulset-controller"), crate::stateful_set::run),
        supervised("disruption", cx("disruption-controller"), crate::disruption::run),
        supervised("autoscaler", cx("horizontal-pod-autoscaler"), crate::autoscaler::run),
        supervised("deployment", cx("deployment-controller"), crate::deployment::run),
        supervised("cron-job", cx("cronjob-controller"), crate::cron_job::run),
        supervised("job", cx("job-controller"), crate::job::run),
        supervised("ttl-after-finished", cx("ttl-after-finished-controller"), crate::ttl_after_finished::run),
        supervised("replica-set", cx("replicaset-controller"), crate::replica_set::run::<ReplicaSet>),
        supervised(
            "replication-controller",
            cx("replication-controller"),
            crate::replica_set::run::<ReplicationController>
        ),
    );
    Ok(())
}

async fn supervised<F, Fut>(name: &'static str, cx: Cx, controller: F)
where
    F: Fn(Cx) -> Fut,
    Fut: Future<Output = ()> + Send + 'static,
{
    supervise::supervised(name, &cx.stop, || controller(cx.clone())).await;
}
