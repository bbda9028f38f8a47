//! The cases. None knows which store it has; other keys may move its revisions on.

use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use trine_store::cache::{Cache, Decoded, Part};
use trine_store::{Change, Expect, Op, Store, StoreError, Write};

pub const DEADLINE: Duration = Duration::from_secs(15);

pub fn put(key: &str, expect: Expect, value: &str) -> Write {
    let op = Op::Put { value: Bytes::copy_from_slice(value.as_bytes()), ttl: None };
    Write { key: key.into(), expect, op }
}

fn delete(key: &str, at: u64) -> Write {
    Write { key: key.into(), expect: Expect::At(at), op: Op::Delete { last: None } }
}

pub async fn next(feed: &mut trine_store::store::Feed) -> Vec<Change> {
    loop {
        let news =
            tokio::time::timeout(DEADLINE, feed.recv()).await.expect("in time").expect("the feed goes on");
        if !news.is_empty() {
            return news.to_vec();
        }
    }
}

pub fn decode(_: &str, _: u64, value: &Bytes) -> Option<Decoded> {
    Some(Decoded { json: value.clone(), ..Default::default() })
}

pub async fn writes_succeed_only_at_the_expected_revision(store: Arc<dyn Store>) {
    let first = store.write(put("/g/r/a", Expect::Absent, "1")).await.unwrap();
    match store.write(put("/g/r/a", Expect::Absent, "2")).await {
        Err(StoreError::Conflict { expected: 0, actual, newest, .. }) => {
            assert!(actual == first && newest >= first);
        }
        other => panic!("{other:?}"),
    }
    let second = store.write(put("/g/r/a", Expect::At(first), "2")).await.unwrap();
    assert!(second > first);
    let late = store.write(put("/g/r/a", Expect::At(first), "3")).await;
    assert!(matches!(late, Err(StoreError::Conflict { actual, .. }) if actual == second), "{late:?}");
    assert!(matches!(store.write(delete("/g/r/a", first)).await, Err(StoreError::Conflict { .. })));
    let gone = store.write(delete("/g/r/a", second)).await.unwrap();
    assert!(gone > second);
    let again = store.write(delete("/g/r/a", second)).await;
    assert!(matches!(again, Err(StoreError::Conflict { actual: 0, .. })), "{again:?}");
    let nothing = Write { key: "/g/r/b".into(), expect: Expect::Absent, op: Op::Delete { last: None } };
    assert!(matches!(store.write(nothing).await, Err(StoreError::Conflict { actual: 0, .. })));
    assert!(store.write(put("/g/r/a", Expect::Absent, "4")).await.unwrap() > gone);
}

pub async fn of_many_who_change_a_key_each_wins_in_turn(store: Arc<dyn Store>) {
    let mut at = store.write(put("/g/r/n", Expect::Absent, "0")).await.unwrap();
    let tasks = (0..8).map(|_| {
        let store = store.clone();
        tokio::spawn(async move {
            for _ in 0..10 {
                loop {
                    let now = store.snapshot("/g/r/n").await.unwrap().entries.remove(0);
                    let n: u64 = std::str::from_utf8(&now.value).unwrap().parse().unwrap();
                    match store.write(put("/g/r/n", Expect::At(now.revision), &(n + 1).to_string())).await {
                        Ok(_) => break,
                        Err(StoreError::Conflict { .. }) => {}
                        Err(other) => panic!("{other}"),
                    }
                }
            }
        })
    });
    futures::future::try_join_all(tasks).await.unwrap();
    let mut feed = store.feed(at).await.unwrap();
    let mut told = Vec::new();
    while told.len() < 80 {
        told.extend(next(&mut feed).await);
    }
    for (change, n) in told.iter().zip(1u64..) {
        assert_eq!((change.previous, &change.value[..]), (at, n.to_string().as_bytes()));
        at = change.revision;
    }
}

pub async fn a_feed_gives_the_kept_past_and_then_the_present(store: Arc<dyn Store>) {
    let one = store.write(put("/g/r/a", Expect::Absent, "1")).await.unwrap();
    let two = store.write(put("/g/r/b", Expect::Absent, "2")).await.unwrap();
    let mut feed = store.feed(one).await.unwrap();
    let past = next(&mut feed).await;
    assert_eq!((past[0].revision, &*past[0].key, past[0].previous), (two, "/g/r/b", 0));
    let three = store.write(put("/g/r/a", Expect::At(one), "3")).await.unwrap();
    let four = store.write(delete("/g/r/a", three)).await.unwrap();
    let mut told = next(&mut feed).await;
    if told.len() < 2 {
        told.extend(next(&mut feed).await);
    }
    let put = &told[0];
    assert_eq!((put.revision, put.previous, put.deleted, &put.value[..]), (three, one, false, &b"3"[..]));
    let gone = &told[1];
    assert_eq!((gone.revision, gone.previous, gone.deleted, &gone.value[..]), (four, three, true, &b"3"[..]));
}

pub async fn a_feed_tells_every_change_once_and_in_order(store: Arc<dyn Store>) {
    let mut feed = store.feed(store.revision().await.unwrap()).await.unwrap();
    let writers = (0..8).map(|w| {
        let store = store.clone();
        tokio::spawn(async move {
            let mut done = Vec::new();
            for i in 0..25 {
                let key = format!("/g/r/{w}-{i}");
                done.push((store.write(put(&key, Expect::Absent, &key)).await.unwrap(), key));
            }
            done
        })
    });
    let written = futures::future::try_join_all(writers).await.unwrap();
    let written: BTreeMap<u64, String> = written.into_iter().flatten().collect();
    let mut told = Vec::new();
    while told.len() < 200 {
        told.extend(next(&mut feed).await.into_iter().map(|c| (c.revision, c.key.to_string())));
    }
    assert_eq!(told, written.into_iter().collect::<Vec<_>>());
}

pub async fn what_is_compacted_cannot_be_told(store: Arc<dyn Store>) {
    let one = store.write(put("/g/r/a", Expect::Absent, "1")).await.unwrap();
    let two = store.write(put("/g/r/a", Expect::At(one), "2")).await.unwrap();
    let three = store.write(put("/g/r/b", Expect::Absent, "3")).await.unwrap();
    store.compact(two).await.unwrap();
    // Another server may have done so already.
    store.compact(two).await.unwrap();
    match store.feed(one).await {
        Err(StoreError::Compacted { asked, oldest }) => assert!(asked == one && oldest >= two),
        other => panic!("{other:?}"),
    }
    let mut feed = store.feed(two).await.unwrap();
    assert_eq!(next(&mut feed).await[0].revision, three);
    assert_eq!(store.snapshot("/").await.unwrap().entries.len(), 2);
}

pub async fn a_snapshot_shows_the_keys_of_a_prefix(store: Arc<dyn Store>) {
    let mut last = 0;
    for key in ["/g/r/b", "/g/r/a", "/g/other/c", "/g/rest/d"] {
        last = store.write(put(key, Expect::Absent, key)).await.unwrap();
    }
    let snapshot = store.snapshot("/g/r/").await.unwrap();
    let keys: Vec<&str> = snapshot.entries.iter().map(|e| &*e.key).collect();
    assert_eq!(keys, ["/g/r/a", "/g/r/b"]);
    assert!(snapshot.entries.iter().all(|e| e.key.as_bytes() == &e.value[..] && e.revision < last));
    assert!(snapshot.revision >= last && snapshot.compacted <= snapshot.revision);
    assert_eq!(store.snapshot("").await.unwrap().entries.len(), 4);
    // Its feed leaves nothing out.
    let mut feed = store.feed(snapshot.revision).await.unwrap();
    let next_one = store.write(put("/g/r/e", Expect::Absent, "e")).await.unwrap();
    assert_eq!(next(&mut feed).await[0].revision, next_one);
}

pub async fn a_key_with_a_time_to_live_is_deleted_by_itself(store: Arc<dyn Store>) {
    let mut feed = store.feed(store.revision().await.unwrap()).await.unwrap();
    let op = |ttl| Op::Put { value: Bytes::from_static(b"{}"), ttl };
    let write = |key: &str, ttl| Write { key: key.into(), expect: Expect::Absent, op: op(ttl) };
    store.write(write("/g/events/a", Some(1))).await.unwrap();
    let kept = store.write(write("/g/events/b", Some(1))).await.unwrap();
    // Written again without an end, it stays.
    let again = Write { key: "/g/events/b".into(), expect: Expect::At(kept), op: op(None) };
    store.write(again).await.unwrap();
    let mut told = Vec::new();
    while !told.iter().any(|c: &Change| c.deleted) {
        told.extend(next(&mut feed).await);
    }
    let gone = told.last().unwrap();
    assert_eq!((&*gone.key, gone.deleted, &gone.value[..]), ("/g/events/a", true, &b"{}"[..]));
    let left = store.snapshot("/g/events/").await.unwrap().entries;
    assert_eq!(left.iter().map(|e| &*e.key).collect::<Vec<_>>(), ["/g/events/b"]);
}

pub async fn a_shown_revision_is_read_back(store: Arc<dyn Store>) {
    store.write(put("/g/r/before", Expect::Absent, "0")).await.unwrap();
    let cache = Cache::start(&*store, Box::new(decode)).await.unwrap();
    let prefix = cache.prefix("/g/r/");
    for i in 0..20 {
        let key = format!("/g/r/{i}");
        let revision = store.write(put(&key, Expect::Absent, "1")).await.unwrap();
        assert!(cache.shown(revision, DEADLINE).await);
        assert_eq!(prefix.get(&key).unwrap().revision, revision);
        let newest = store.revision().await.unwrap();
        assert!(newest >= revision && cache.shown(newest, DEADLINE).await);
    }
    assert_eq!(prefix.list(&Part::all("/g/r/")).objects.len(), 21);
    assert!(cache.alive());
    cache.close();
}
