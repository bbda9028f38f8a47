//! The embedded backend and the cache, beyond the contract that all backends hold.

#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use trine_store::cache::{Decoded, Interest, Part, Past};
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

fn all() -> Interest {
    Interest::new("/g/r/", Box::new(|_| true))
}

fn but_no() -> Interest {
    Interest::new("/g/r/", Box::new(|e| &*e.object.key != "/g/r/no"))
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
    assert_eq!(prefix.list_at(&Part::all("/g/r/"), one).unwrap().objects[0].json(), "1");
    let mut watch = prefix.watch(all(), one).unwrap();
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
    let (listed, mut watch) = prefix.list_and_watch(&Part::all("/g/r/"), but_no());
    assert!(listed.objects.is_empty());
    store.write(put("/g/r/no", Expect::Absent, "0")).await.unwrap();
    let revision = store.write(put("/g/r/a", Expect::Absent, "1")).await.unwrap();
    assert!(cache.shown(revision, Duration::from_secs(5)).await);
    assert_eq!(prefix.list(&Part::all("/g/r/")).objects.len(), 2);
    assert_eq!(prefix.list(&Part::all("/g/r/")).revision, revision);
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
    let mut slow = prefix.watch(all(), cache.revision()).unwrap();
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
async fn a_saved_snapshot_is_restored_and_overwrites_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    let one = store.write(put("/g/r/a", Expect::Absent, "1")).await.unwrap();
    store.write(put("/g/r/b", Expect::Absent, "2")).await.unwrap();
    let saved = store.snapshot("").await.unwrap();
    let file = dir.path().join("saved");
    backup::save(&saved, &file).unwrap();
    store.write(put("/g/r/a", Expect::At(one), "3")).await.unwrap();
    let loaded = backup::load(&file).unwrap();
    let live = RedbStore::restore(&dir.path().join("store.redb"), &loaded);
    assert!(matches!(live, Err(StoreError::Engine { .. })), "the store is live");
    let path = dir.path().join("again.redb");
    RedbStore::restore(&path, &loaded).unwrap();
    let again = RedbStore::open(&path, Limits::default()).unwrap();
    let restored = again.snapshot("").await.unwrap();
    assert_eq!(restored.entries, saved.entries);
    assert!(restored.revision > store.revision().await.unwrap());
    assert!(matches!(again.feed(saved.revision).await, Err(StoreError::Compacted { .. })));
    let next = again.write(put("/g/r/a", Expect::At(one), "4")).await.unwrap();
    assert_eq!(next, restored.revision + 1);
}
