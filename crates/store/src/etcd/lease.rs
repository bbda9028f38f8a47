//! Leases that keys with about the same end share: a lease per Event would be a second write for each.

use super::client::{Client, failed};
use super::wire::LeaseGrantRequest;
use crate::store::StoreError;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// For how long a lease is used for new keys; theirs end later by as much at most. Upstream: 60 s.
const SHARED: Duration = Duration::from_secs(60);
/// Keys of one lease at most: they are deleted in one transaction. Upstream: 1,000.
const KEYS: usize = 1000;

struct Lease {
    id: i64,
    until: Instant,
    keys: usize,
}

/// The leases in use, by time to live.
#[derive(Default)]
pub struct Leases(Mutex<HashMap<u32, Lease>>);

impl Leases {
    /// A lease for one key that is to live for at least `ttl` seconds.
    pub async fn get(&self, client: &Client, ttl: u32) -> Result<i64, StoreError> {
        let mut leases = self.0.lock().await;
        let now = Instant::now();
        if let Some(lease) = leases.get_mut(&ttl).filter(|l| l.until > now && l.keys < KEYS) {
            lease.keys += 1;
            return Ok(lease.id);
        }
        // Short lives are for tests: sharing a lease for a minute would be most of them.
        let shared = SHARED.min(Duration::from_secs(u64::from(ttl) / 10));
        let seconds = i64::from(ttl) + i64::try_from(shared.as_secs()).unwrap_or(0);
        let granted =
            client.grant(LeaseGrantRequest { ttl: seconds }).await.map_err(failed("grant a lease"))?;
        leases.insert(ttl, Lease { id: granted.id, until: now + shared, keys: 1 });
        Ok(granted.id)
    }
}
