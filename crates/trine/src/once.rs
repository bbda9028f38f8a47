//! Planes of which a cluster has one, though several servers run.

use tokio_util::sync::CancellationToken;
use trine_typed::kube::Client;
use trine_typed::leader::{self, LeadError};

/// Runs the work of a plane that may run once only: at once where this process has the store alone, under a lease as
/// `leader` where others share it.
///
/// # Errors
/// [`LeadError`]
pub async fn once<E, Fut>(
    client: Client,
    lease: &str,
    leader: Option<String>,
    stop: CancellationToken,
    work: impl FnOnce(CancellationToken) -> Fut,
) -> Result<(), LeadError<E>>
where
    E: std::error::Error + 'static,
    Fut: Future<Output = Result<(), E>>,
{
    match leader {
        Some(me) => leader::lead(client, lease, &me, stop, work).await,
        None => work(stop).await.map_err(LeadError::Work),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use trine_store::redb::{Limits, RedbStore};

    use super::*;

    async fn until(what: &str, done: impl Fn() -> bool) {
        for _ in 0..1000 {
            if done() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("not within 10 s: {what}");
    }

    #[tokio::test]
    async fn one_of_two_works_and_the_other_when_it_has_ended() {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(RedbStore::open(&dir.path().join("store.redb"), Limits::default()).unwrap());
        let config = trine_apiserver::Config {
            data_dir: dir.path().to_owned(),
            bind: "127.0.0.1:0".parse().unwrap(),
            advertise: "127.0.0.1".parse().unwrap(),
            service_cidr: "10.96.0.0/16".to_owned(),
            audit: trine_apiserver::AuditConfig::default(),
            runtime_config: trine_apiserver::RuntimeConfig::default(),
        };
        let api = trine_apiserver::start(config, store).await.unwrap();
        let working: [Arc<AtomicUsize>; 2] = Default::default();
        let start = |who: usize| {
            let client = Client::new(api.service("admin", &["system:masters"]), "default");
            let (stop, working) = (CancellationToken::new(), working[who].clone());
            let told = stop.clone();
            let task = tokio::spawn(async move {
                let work = |stop: CancellationToken| async move {
                    working.store(1, Ordering::SeqCst);
                    stop.cancelled().await;
                    working.store(2, Ordering::SeqCst);
                    Ok::<(), Infallible>(())
                };
                once(client, "test", Some(format!("server-{who}")), told, work).await
            });
            (stop, task)
        };
        let state = |who: usize| working[who].load(Ordering::SeqCst);
        let (stop_first, first) = start(0);
        until("the first leads", || state(0) == 1).await;
        let (stop_second, second) = start(1);
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!((state(0), state(1)), (1, 0), "one leads");
        stop_first.cancel();
        first.await.unwrap().unwrap();
        assert_eq!(state(0), 2, "its work has ended before it gives the lease back");
        until("the second leads", || state(1) == 1).await;
        stop_second.cancel();
        second.await.unwrap().unwrap();
        api.stop().await;
    }
}
