//! What only a store that others write to must do.

use crate::backends::Etcd;
use crate::cases::{DEADLINE, decode, next, put};
use std::time::Duration;
use trine_store::cache::Cache;
use trine_store::{Expect, StoreError};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_on_one_etcd_see_what_the_others_were_told() {
    let Some(etcd) = Etcd::start("shared::servers_on_one_etcd_see_what_the_others_were_told") else { return };
    let (one, two) = (etcd.store().await, etcd.store().await);
    let here = Cache::start(&*one, Box::new(decode)).await.unwrap();
    let there = Cache::start(&*two, Box::new(decode)).await.unwrap();
    for i in 0..10 {
        let key = format!("/g/r/{i}");
        let revision = one.write(put(&key, Expect::Absent, "1")).await.unwrap();
        // A consistent read at the other server.
        assert!(there.shown(two.revision().await.unwrap(), DEADLINE).await);
        assert_eq!(there.prefix("/g/r/").get(&key).unwrap().revision, revision);
        assert!(matches!(two.write(put(&key, Expect::Absent, "2")).await, Err(StoreError::Conflict { .. })));
        two.write(put(&key, Expect::At(revision), "2")).await.unwrap();
        assert!(here.shown(one.revision().await.unwrap(), DEADLINE).await);
        assert_eq!(here.prefix("/g/r/").get(&key).unwrap().json(), "2");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revision_that_others_moved_on_is_shown_too() {
    let Some(etcd) = Etcd::start("shared::a_revision_that_others_moved_on_is_shown_too") else { return };
    let (ours, foreign) = (etcd.store().await, etcd.under("/trine2").await);
    let cache = Cache::start(&*ours, Box::new(decode)).await.unwrap();
    for i in 0..5 {
        let moved = foreign.write(put(&format!("/g/r/{i}"), Expect::Absent, "x")).await.unwrap();
        let newest = ours.revision().await.unwrap();
        assert!(newest >= moved);
        let since = std::time::Instant::now();
        assert!(cache.shown(newest, Duration::from_secs(3)).await, "round {i}");
        println!("shown after {:?}", since.elapsed());
    }
    assert!(cache.counts().is_empty() && ours.snapshot("").await.unwrap().entries.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_feed_goes_on_where_it_was_when_etcd_comes_back() {
    let Some(mut etcd) = Etcd::start("shared::a_feed_goes_on_where_it_was_when_etcd_comes_back") else {
        return;
    };
    let store = etcd.store().await;
    let mut feed = store.feed(store.revision().await.unwrap()).await.unwrap();
    let one = store.write(put("/g/r/a", Expect::Absent, "1")).await.unwrap();
    assert_eq!(next(&mut feed).await[0].revision, one);
    etcd.restart();
    let other = etcd.store().await;
    let two = other.write(put("/g/r/b", Expect::Absent, "2")).await.unwrap();
    assert_eq!(next(&mut feed).await[0].revision, two);
    // The first server's writes work again, too; what it tried meanwhile may have failed.
    let mut tried = store.write(put("/g/r/a", Expect::At(one), "3")).await;
    for _ in 0..50 {
        if tried.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        tried = store.write(put("/g/r/a", Expect::At(one), "3")).await;
    }
    assert_eq!(next(&mut feed).await[0].revision, tried.unwrap());
}
