//! The handle.

use super::client::{Client, compacted, failed};
use super::lease::Leases;
use super::watch::Follower;
use super::wire::{
    CompactionRequest, Compare, DeleteRangeRequest, PutRequest, RangeRequest, Request, RequestOp, TxnRequest,
    revision, signed,
};
use crate::store::{Entry, Feed, Op, Snapshot, Store, StoreError, Write};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

/// Keys of one page of a snapshot.
const PAGE: i64 = 1000;

/// Where the etcd is.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `http://` or `https://` URLs of its members.
    pub endpoints: Vec<String>,
    /// Put before all keys. Default `/trine`.
    pub prefix: String,
    /// The authority of the members' certificates, PEM.
    pub ca_pem: Option<Vec<u8>>,
    /// Our certificate and its key, PEM.
    pub identity_pem: Option<(Vec<u8>, Vec<u8>)>,
    /// How long the past is kept for watchers. Default 5 minutes, upstream's; zero leaves compaction to others.
    pub keep: Duration,
}

impl Settings {
    /// The defaults, for a list of URLs with commas in between.
    #[must_use]
    pub fn new(endpoints: &str) -> Self {
        let endpoints = endpoints.split(',').map(str::trim).filter(|e| !e.is_empty());
        Self {
            endpoints: endpoints.map(str::to_owned).collect(),
            prefix: "/trine".to_owned(),
            ca_pem: None,
            identity_pem: None,
            keep: Duration::from_secs(300),
        }
    }
}

/// An etcd as the store.
pub struct EtcdStore {
    client: Client,
    prefix: String,
    leases: Leases,
    /// The newest revision that somebody waits for; feeds ask etcd for it.
    wanted: watch::Sender<u64>,
    compactor: Option<JoinHandle<()>>,
}

impl EtcdStore {
    /// Connects, and asks once whether the etcd answers.
    ///
    /// # Errors
    /// [`StoreError::Engine`] if a URL or certificate is none, or if there is no answer.
    pub async fn connect(settings: Settings) -> Result<Self, StoreError> {
        let wrong = |e: tonic::transport::Error| StoreError::Engine {
            call: "read the URL of etcd",
            source: Arc::new(e),
        };
        let mut endpoints = Vec::new();
        for url in &settings.endpoints {
            let mut endpoint = Endpoint::from_shared(url.clone()).map_err(wrong)?;
            if url.starts_with("https://") {
                endpoint = endpoint.tls_config(tls(&settings)).map_err(wrong)?;
            }
            endpoints.push(endpoint);
        }
        if endpoints.is_empty() {
            let source = Arc::new(std::io::Error::from(std::io::ErrorKind::InvalidInput));
            return Err(StoreError::Engine { call: "read the URL of etcd: there is none", source });
        }
        let client = Client::new(endpoints.into_iter());
        let mut store = Self {
            client,
            prefix: settings.prefix,
            leases: Leases::default(),
            wanted: watch::Sender::new(0),
            compactor: None,
        };
        store.newest().await?;
        if !settings.keep.is_zero() {
            store.compactor = Some(tokio::spawn(compact_by_time(
                store.client.clone(),
                store.prefix.clone(),
                settings.keep,
            )));
        }
        Ok(store)
    }

    fn key(&self, key: &str) -> Vec<u8> {
        format!("{}{key}", self.prefix).into_bytes()
    }

    async fn newest(&self) -> Result<u64, StoreError> {
        current(&self.client, &self.prefix).await.map_err(failed("read etcd's revision"))
    }

    async fn put_or_delete(&self, write: Write) -> Result<u64, StoreError> {
        let key = self.key(&write.key);
        let expected = write.expect.revision();
        let absent = expected == 0;
        let (call, change) = match write.op {
            Op::Put { value, ttl } => {
                let lease = match ttl {
                    Some(ttl) => self.leases.get(&self.client, ttl).await?,
                    None => 0,
                };
                ("write to etcd", Request::Put(PutRequest { key: key.clone(), value, lease }))
            }
            Op::Delete { .. } if absent => {
                let newest = self.newest().await?;
                return Err(StoreError::Conflict { key: write.key, expected: 1, actual: 0, newest });
            }
            Op::Delete { .. } => {
                ("delete from etcd", Request::Delete(DeleteRangeRequest { key: key.clone() }))
            }
        };
        let compare =
            Compare { result: 0, target: 2, key: key.clone(), mod_revision: Some(signed(expected)) };
        let look = Request::Range(RangeRequest { key, ..RangeRequest::default() });
        let op = |request| vec![RequestOp { request: Some(request) }];
        let request = TxnRequest { compare: vec![compare], success: op(change), failure: op(look) };
        let answer = self.client.txn(request).await.map_err(failed(call))?;
        let newest = revision(answer.header.as_ref());
        if answer.succeeded {
            return Ok(newest);
        }
        let found = answer.responses.into_iter().next().and_then(|r| r.range);
        let actual = found.and_then(|r| r.kvs.into_iter().next()).map_or(0, |kv| kv.mod_revision);
        let actual = u64::try_from(actual).unwrap_or(0);
        Err(StoreError::Conflict { key: write.key, expected, actual, newest })
    }

    async fn read(&self, prefix: &str) -> Result<Snapshot, StoreError> {
        let (mut key, range_end) = range(&self.key(if prefix.is_empty() { "/" } else { prefix }));
        let mut found = Snapshot::default();
        loop {
            let request = RangeRequest {
                key: key.clone(),
                range_end: range_end.clone(),
                limit: PAGE,
                revision: signed(found.revision),
                count_only: false,
            };
            let page = self.client.range(request).await.map_err(failed("read from etcd"))?;
            if found.revision == 0 {
                found.revision = revision(page.header.as_ref());
            }
            for kv in page.kvs {
                key = [&kv.key[..], &[0]].concat();
                let Ok(name) = std::str::from_utf8(kv.key.get(self.prefix.len()..).unwrap_or_default())
                else {
                    continue;
                };
                let revision = u64::try_from(kv.mod_revision).unwrap_or(0);
                found.entries.push(Entry { key: name.into(), revision, expires: 0, value: kv.value });
            }
            if !page.more {
                // How far etcd remembers is not known here; nobody has to begin before this.
                found.compacted = found.revision;
                return Ok(found);
            }
        }
    }

    async fn follow(&self, after: u64) -> Result<Feed, StoreError> {
        // A watch says only later, and in its stream, that it begins too early; a read at the revision says it now.
        let (key, range_end) = range(&self.key("/"));
        let probe =
            RangeRequest { key: key.clone(), limit: 1, revision: signed(after), ..RangeRequest::default() };
        match self.client.range(probe).await {
            Ok(_) => {}
            Err(status) if compacted(&status) => {
                return Err(StoreError::Compacted { asked: after, oldest: self.newest().await? });
            }
            Err(status) => return Err(failed("begin a watch on etcd")(status)),
        }
        let (out, feed) = mpsc::unbounded_channel();
        let follower = Follower {
            client: self.client.clone(),
            range: (key, range_end),
            skip: self.prefix.len(),
            told: after,
            out,
            wanted: self.wanted.subscribe(),
        };
        tokio::spawn(follower.run());
        Ok(feed)
    }
}

impl Drop for EtcdStore {
    fn drop(&mut self) {
        if let Some(task) = &self.compactor {
            task.abort();
        }
    }
}

impl Store for EtcdStore {
    fn write(&self, write: Write) -> BoxFuture<'_, Result<u64, StoreError>> {
        self.put_or_delete(write).boxed()
    }

    fn snapshot(&self, prefix: &str) -> BoxFuture<'_, Result<Snapshot, StoreError>> {
        let prefix = prefix.to_owned();
        async move { self.read(&prefix).await }.boxed()
    }

    fn feed(&self, after: u64) -> BoxFuture<'_, Result<Feed, StoreError>> {
        self.follow(after).boxed()
    }

    fn compact(&self, through: u64) -> BoxFuture<'_, Result<(), StoreError>> {
        async move {
            match self.client.compact(CompactionRequest { revision: signed(through) }).await {
                Ok(_) => Ok(()),
                // Another server was quicker.
                Err(status) if compacted(&status) => Ok(()),
                Err(status) => Err(failed("compact etcd")(status)),
            }
        }
        .boxed()
    }

    fn shared(&self) -> bool {
        true
    }

    fn revision(&self) -> BoxFuture<'_, Result<u64, StoreError>> {
        async move {
            let newest = self.newest().await?;
            self.wanted.send_if_modified(|wanted| {
                newest > *wanted && {
                    *wanted = newest;
                    true
                }
            });
            Ok(newest)
        }
        .boxed()
    }
}

/// The newest revision, asked of the leader.
async fn current(client: &Client, prefix: &str) -> Result<u64, tonic::Status> {
    let request =
        RangeRequest { key: prefix.as_bytes().to_vec(), count_only: true, ..RangeRequest::default() };
    Ok(revision(client.range(request).await?.header.as_ref()))
}

/// Forgets at each interval what was there at the one before. Several servers may do so: the second finds it done.
async fn compact_by_time(client: Client, prefix: String, keep: Duration) {
    let mut before = 0;
    loop {
        if before > 0
            && let Err(status) = client.compact(CompactionRequest { revision: signed(before) }).await
            && !compacted(&status)
        {
            tracing::warn!(%status, "etcd is not compacted");
        }
        before = current(&client, &prefix).await.unwrap_or(before);
        tokio::time::sleep(keep).await;
    }
}

/// The keys that begin with a prefix, as etcd's half-open range.
fn range(prefix: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return (prefix.to_vec(), end);
        }
    }
    (prefix.to_vec(), vec![0])
}

fn tls(settings: &Settings) -> ClientTlsConfig {
    let mut config = ClientTlsConfig::new();
    if let Some(ca) = &settings.ca_pem {
        config = config.ca_certificate(Certificate::from_pem(ca));
    }
    if let Some((certificate, key)) = &settings.identity_pem {
        config = config.identity(Identity::from_pem(certificate, key));
    }
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_before_the_next_one() {
        let rows: [(&[u8], &[u8]); 3] = [(b"/trine", b"/trinf"), (b"a\xff", b"b"), (b"\xff", b"\0")];
        for (prefix, end) in rows {
            assert_eq!(range(prefix), (prefix.to_vec(), end.to_vec()));
        }
    }

    #[test]
    fn urls_are_read_from_a_list() {
        assert_eq!(
            Settings::new("http://a:2379, http://b:2379,").endpoints,
            ["http://a:2379", "http://b:2379"]
        );
    }
}
