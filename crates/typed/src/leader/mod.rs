//! One of several takes the lead: a Lease in `kube-system`, as upstream's controllers use it.
//!
//! Where one process serves a cluster nobody has to lead. Where several share a store, the work of a plane that may run once
//! only goes through [`lead`].

pub mod plan;

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio_util::sync::CancellationToken;

use plan::{Held, Seen, Step};

/// For how long a lease counts without renewal. Upstream: 15 s.
pub const LEASE_DURATION: Duration = Duration::from_secs(15);
/// A leader that could not renew for so long stops its work. Upstream: 10 s.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// Between two looks at the lease. Upstream: 2 s.
const RETRY: Duration = Duration::from_secs(2);
const NAMESPACE: &str = "kube-system";

/// Why the work ended before it was told to.
#[derive(Debug, thiserror::Error)]
pub enum LeadError<E: std::error::Error + 'static> {
    /// Another leads now, or nobody knows.
    #[error("the lease {0} was lost")]
    Lost(String),
    /// The work failed by itself.
    #[error("the work of the leader failed")]
    Work(#[source] E),
}

/// Waits for the lease `name`, then works under it as `me` until told to stop, the work fails, or the lease is lost. The
/// work is told to stop and has ended before this returns; then the lease is given back.
///
/// # Errors
/// [`LeadError`]
pub async fn lead<E, Fut>(
    client: Client,
    name: &str,
    me: &str,
    stop: CancellationToken,
    work: impl FnOnce(CancellationToken) -> Fut,
) -> Result<(), LeadError<E>>
where
    E: std::error::Error + 'static,
    Fut: Future<Output = Result<(), E>>,
{
    let mut candidate = Candidate { leases: Api::namespaced(client, NAMESPACE), name, me, seen: None };
    while !candidate.try_hold().await {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(RETRY) => {}
        }
    }
    tracing::info!(lease = name, me, "leads");
    let ours = stop.child_token();
    let mut work = std::pin::pin!(work(ours.clone()));
    let lost = tokio::select! {
        done = &mut work => {
            candidate.give_back().await;
            return done.map_err(LeadError::Work);
        }
        () = candidate.keep() => !stop.is_cancelled(),
    };
    ours.cancel();
    let ended = work.await;
    candidate.give_back().await;
    if lost { Err(LeadError::Lost(name.to_owned())) } else { ended.map_err(LeadError::Work) }
}

struct Candidate<'a> {
    leases: Api<Lease>,
    name: &'a str,
    me: &'a str,
    /// The lease as it was last seen to change, by our own clock.
    seen: Option<Seen>,
}

impl Candidate<'_> {
    /// Renews until that fails for too long.
    async fn keep(&mut self) {
        let mut renewed = Instant::now();
        while renewed.elapsed() < RENEW_DEADLINE {
            tokio::time::sleep(RETRY).await;
            let left = RENEW_DEADLINE.saturating_sub(renewed.elapsed());
            if tokio::time::timeout(left, self.try_hold()).await == Ok(true) {
                renewed = Instant::now();
            }
        }
    }

    /// Takes or renews the lease, if that is allowed; whether it is ours now.
    async fn try_hold(&mut self) -> bool {
        match self.hold().await {
            Ok(held) => held,
            Err(error) => {
                tracing::debug!(%error, lease = self.name, "the lease is not held");
                false
            }
        }
    }

    async fn hold(&mut self) -> Result<bool, kube::Error> {
        let Some(lease) = self.leases.get_opt(self.name).await? else {
            self.leases.create(&PostParams::default(), &self.lease(None, 0)).await?;
            return Ok(true);
        };
        let spec = lease.spec.clone().unwrap_or_default();
        let held = Held {
            holder: spec.holder_identity.clone().unwrap_or_default(),
            version: lease.metadata.resource_version.clone().unwrap_or_default(),
            duration: Duration::from_secs(
                spec.lease_duration_seconds.map_or(0, |s| s.max(0).unsigned_abs().into()),
            ),
        };
        let (step, seen) = plan::step(&held, self.me, self.seen.take(), Instant::now());
        self.seen = Some(seen);
        let mut next = match step {
            Step::Wait => return Ok(false),
            Step::Renew => self.lease(spec.acquire_time, spec.lease_transitions.unwrap_or(0)),
            Step::Take => self.lease(None, spec.lease_transitions.unwrap_or(0) + 1),
        };
        next.metadata = lease.metadata;
        // Whoever else tries at this moment changes the version first, or fails.
        self.leases.replace(self.name, &PostParams::default(), &next).await?;
        Ok(true)
    }

    fn lease(&self, acquired: Option<MicroTime>, transitions: i32) -> Lease {
        let now = MicroTime(trine_clock::now());
        Lease {
            metadata: ObjectMeta {
                name: Some(self.name.to_owned()),
                namespace: Some(NAMESPACE.to_owned()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.me.to_owned()),
                lease_duration_seconds: i32::try_from(LEASE_DURATION.as_secs()).ok(),
                acquire_time: acquired.or_else(|| Some(now.clone())),
                renew_time: Some(now),
                lease_transitions: Some(transitions),
                ..LeaseSpec::default()
            }),
        }
    }

    /// Leaves the lease free, so that the next leader need not wait.
    async fn give_back(&mut self) {
        let given = async {
            let Some(mut lease) = self.leases.get_opt(self.name).await? else { return Ok(()) };
            let spec = lease.spec.get_or_insert_default();
            if spec.holder_identity.as_deref() != Some(self.me) {
                return Ok(());
            }
            spec.holder_identity = Some(String::new());
            spec.lease_duration_seconds = Some(1);
            self.leases.replace(self.name, &PostParams::default(), &lease).await.map(drop)
        };
        match tokio::time::timeout(RETRY, given).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, lease = self.name, "the lease runs out by itself"),
            Err(_) => tracing::debug!(lease = self.name, "the lease runs out by itself"),
        }
    }
}
