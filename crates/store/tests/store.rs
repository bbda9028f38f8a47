//! The store's contract, held by the embedded backend and its cache.

#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use std::sync::Arc;
use std::time::{Duration, Instant};
use trine_store::cache::{Decoded, Past};
use trine_store::redb::{Limits, RedbStore};
use trine_store::*;

fn put(key: &str, expect: Expect, value: &str) -> Write {
    Write {
        key: key.into(),
        expect,
        op: Op::Put { value: Bytes::copy_from_slice(value.as_bytes()), ttl: None },
    }
}

fn decode(_: &str, _: u64, value: &Bytes) -> Option<Decoded> {
    Some(Decoded { json: value.clone(), ..Default::default() })
}

fn open(dir: &tempfile::TempDir) -> Arc<RedbStore> {
    Arc::new(RedbStore::open(&dir.path().join("store.redb"), Limits::default()).unwrap())
}

#[tokio::test]
async fn writes_succeed_only_at_the_expected_revision() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    let first = store.write(put("/g/r/a", Expect::Absent, "1")).await.unwrap();
    assert!(matches!(
        store.write(put("/g/r/a", Expect::Absent, "2")).await,
        Err(StoreError::Conflict { expected: 0, actual, .. }) if actual == first
    ));
    let second = store.write(put("/g/r/a", Expect::At(first), "2")).await.unwrap();
    assert_eq!(second, first + 1);
    assert!(store.write(put("/g/r/a", Expect::At(first), "3")).await.is_err());
    let gone = Write { key: "/g/r/a".into(), expect: Expect::At(second), op: Op::Delete { last: None } };
    assert_eq!(store.write(gone.clone()).await.unwrap(), second + 1);
    assert!(matches!(store.write(gone).await, Err(StoreError::Conflict { actual: 0, .. })));
}

#[tokio::test]
async fn a_feed_gives_the_kept_past_and_then_the_present() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    let one = store.write(put("/g/r/a", Expect::Absent, "1")).await.unwrap();
    let two = store.write(put("/g/r/b", Expect::Absent, "2")).await.unwrap();
    let mut feed = store.feed(one).await.unwrap();
    assert_eq!(feed.recv().await.unwrap()[0].revision, two);
    let three = store.write(put("/g/r/a", Expect::At(one), "3")).await.unwrap();
    let batch = feed.recv().await.unwrap();
    assert_eq!((batch[0].revision, batch[0].previous, &*batch[0].key), (three, one, "/g/r/a"));
    store.compact(two).await.unwrap();
    assert!(matches!(store.feed(one).await, Err(StoreError::Compacted { .. })));
    assert!(store.feed(two).await.is_ok());
}

#[tokio::test]
async fn data_revisions_and_events_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = {
        let store = open(&dir);
        let one = store.write(put("/g/r/a", Expect::Absent, "1")).await.unwrap();
        (one, store.write(put("/g/r/a", Expect::At(one), "2")).await.unwrap())
    };
    let store = open(&dir);
    let cache = Cache::start(&*store, Box::new(decode)).await.unwrap();
    let prefix = cache.prefix("/g/r/");
    assert_eq!(cache.revision(), two);
    assert_eq!(prefix.get("/g/r/a").unwrap().json(), "2");
    assert_eq!(prefix.list_at("/g/r/", one).unwrap().objects[0].json(), "1");
    let mut watch = prefix.watch("/g/r/", one, Box::new(|_| true)).unwrap();
    let event = watch.next().await.unwrap();
    assert_eq!(event.revision, two);
    assert!(matches!(&event.past, Past::Was(o) if o.revision == one));
    let three = store.write(put("/g/r/b", Expect::Absent, "3")).await.unwrap();
    assert_eq!(three, two + 1);
    assert_eq!(watch.next().await.unwrap().revision, three);
}

#[tokio::test]
async fn a_shown_revision_is_read_back_and_lists_do_not_miss_events() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    let cache = Cache::start(&*store, Box::new(decode)).await.unwrap();
    let prefix = cache.prefix("/g/r/");
    let (listed, mut watch) = prefix.list_and_watch("/g/r/", Box::new(|e| &*e.object.key != "/g/r/no"));
    assert!(listed.objects.is_empty());
    store.write(put("/g/r/no", Expect::Absent, "0")).await.unwrap();
    let revision = store.write(put("/g/r/a", Expect::Absent, "1")).await.unwrap();
    assert!(cache.shown(revision, Duration::from_secs(5)).await);
    assert_eq!(prefix.list("/g/r/").objects.len(), 2);
    assert_eq!(prefix.list("/g/r/").revision, revision);
    assert_eq!(watch.next().await.unwrap().revision, revision);
    assert!(!cache.shown(revision + 1, Duration::from_millis(20)).await);
    cache.close();
    assert!(watch.next().await.is_none());
}

#[tokio::test]
async fn a_watcher_that_does_not_read_is_closed_and_harms_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    let cache = Cache::start(&*store, Box::new(decode)).await.unwrap();
    let prefix = cache.prefix("/g/r/");
    let mut slow = prefix.watch("/g/r/", cache.revision(), Box::new(|_| true)).unwrap();
    let writes: Vec<_> =
        (0..1100).map(|i| store.write(put(&format!("/g/r/{i}"), Expect::Absent, "x"))).collect();
    let revisions = futures::future::try_join_all(writes).await.unwrap();
    assert!(cache.shown(*revisions.last().unwrap(), Duration::from_secs(10)).await);
    assert_eq!(prefix.watchers(), 0);
    let mut seen = 0;
    while slow.next().await.is_some() {
        seen += 1;
    }
    assert_eq!(seen, 1024);
}

#[tokio::test]
async fn a_second_opener_of_the_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let _store = open(&dir);
    let second = RedbStore::open(&dir.path().join("store.redb"), Limits::default());
    assert!(matches!(second, Err(StoreError::Engine { .. })));
}

#[tokio::test]
async fn the_log_is_bounded_by_count() {
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits { changes: 300, ..Limits::default() };
    let store = RedbStore::open(&dir.path().join("store.redb"), limits).unwrap();
    for round in 0..4 {
        let writes = (0..256).map(|i| store.write(put(&format!("/g/r/{round}-{i}"), Expect::Absent, "x")));
        futures::future::try_join_all(writes.collect::<Vec<_>>()).await.unwrap();
    }
    let snapshot = store.snapshot("/").await.unwrap();
    assert_eq!(snapshot.entries.len(), 1024);
    assert!(snapshot.compacted > 0 && snapshot.revision - snapshot.compacted <= 300 + 512);
}

#[tokio::test]
async fn keys_with_a_time_to_live_are_deleted_by_themselves() {
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits { expiry_step: Duration::from_secs(1), ..Limits::default() };
    let store = RedbStore::open(&dir.path().join("store.redb"), limits).unwrap();
    let mut feed = store.feed(1).await.unwrap();
    let write = Write {
        key: "/g/events/a".into(),
        expect: Expect::Absent,
        op: Op::Put { value: Bytes::from_static(b"{}"), ttl: Some(1) },
    };
    store.write(write).await.unwrap();
    assert!(!feed.recv().await.unwrap()[0].deleted);
    let batch = tokio::time::timeout(Duration::from_secs(10), feed.recv()).await.unwrap().unwrap();
    assert!(batch[0].deleted);
    assert!(store.snapshot("/").await.unwrap().entries.is_empty());
}

/// Prints a figure; run with `--nocapture`. Asserts nothing about the machine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_writers_share_commits() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    let begin = Instant::now();
    let value = "x".repeat(2048);
    let writers = (0..64).map(|w| {
        let (store, value) = (store.clone(), value.clone());
        tokio::spawn(async move {
            for i in 0..50 {
                store.write(put(&format!("/g/r/{w}-{i}"), Expect::Absent, &value)).await.unwrap();
            }
        })
    });
    futures::future::try_join_all(writers).await.unwrap();
    let rate = 3200.0 / begin.elapsed().as_secs_f64();
    println!("64 writers, 2 KiB: {rate:.0} durable writes/s");
}
