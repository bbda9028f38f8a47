//! `cargo xtask bench api`, first part: durable writes per second at the Store trait, beside what the disk's fdatasync takes,
//! and beside etcd on the same disk in the same run; then the start after an unclean stop.
//!
//! `writes [SECONDS]`; a row per number of writers. A writer waits for its write before it makes the next.

#![allow(clippy::unwrap_used, missing_docs, dead_code)]

#[path = "../tests/contract/backends.rs"]
mod backends;

use bytes::Bytes;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use trine_store::redb::{Limits, RedbStore};
use trine_store::{Expect, Op, Store, Write};

/// Bytes of a value: a Pod with its status.
const VALUE: usize = 2048;
const WRITERS: [usize; 3] = [1, 16, 64];
const PROBES: usize = 300;

fn main() {
    let seconds = std::env::args().skip(1).find_map(|a| a.parse().ok()).unwrap_or(3.0);
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let time = Duration::from_secs_f64(seconds);
    let path = dir.path().join("store.redb");
    let store = Arc::new(RedbStore::open(&path, Limits::default()).unwrap());
    fdatasync(dir.path());
    for writers in WRITERS {
        runtime.block_on(measure("redb", store.clone(), writers, time));
    }
    if let Some(etcd) = backends::Etcd::start_in("writes", dir.path()) {
        let peer = runtime.block_on(etcd.store());
        for writers in WRITERS {
            runtime.block_on(measure("etcd", peer.clone(), writers, time));
        }
    }
    fdatasync(dir.path());
    unclean(&runtime, dir.path());
}

const KEYS: usize = 30_000;

/// Opens copies of a live store, as `kill -9` leaves it: once with a full journal in front of the checkpoint.
fn unclean(runtime: &tokio::runtime::Runtime, dir: &Path) {
    let live = dir.join("live");
    std::fs::create_dir(&live).unwrap();
    let store = RedbStore::open(&live.join("store.redb"), Limits::default()).unwrap();
    let value = Bytes::from(vec![b'x'; VALUE]);
    let writes = (0..KEYS).map(|i| {
        let op = Op::Put { value: value.clone(), ttl: None };
        store.write(Write { key: format!("/core/pods/bench/{i}").into(), expect: Expect::Absent, op })
    });
    runtime.block_on(futures::future::try_join_all(writes.collect::<Vec<_>>())).unwrap();
    let mut times = Vec::new();
    for round in 0..5 {
        let copy = dir.join(format!("copy-{round}"));
        std::fs::create_dir_all(copy.join("store.redb.journal")).unwrap();
        for folder in ["", "store.redb.journal"] {
            for entry in std::fs::read_dir(live.join(folder)).unwrap().map(Result::unwrap) {
                if entry.path().is_file() {
                    let to = copy.join(folder).join(entry.file_name());
                    std::fs::copy(entry.path(), &to).unwrap();
                    // Or the first sync of the start would carry the copy to the disk.
                    std::fs::File::open(to).unwrap().sync_all().unwrap();
                }
            }
        }
        let since = Instant::now();
        let opened = RedbStore::open(&copy.join("store.redb"), Limits::default()).unwrap();
        times.push(since.elapsed());
        assert_eq!(runtime.block_on(opened.snapshot("")).unwrap().entries.len(), KEYS);
    }
    println!("start after an unclean stop, {KEYS} keys of {VALUE} B: {}", spread(&mut times));
}

/// What a durable write of one block costs at least.
fn fdatasync(dir: &Path) {
    let file = std::fs::File::create(dir.join("probe")).unwrap();
    file.write_all_at(&vec![1; 1 << 20], 0).unwrap();
    file.sync_all().unwrap();
    let mut times: Vec<Duration> = (0..PROBES)
        .map(|i| {
            file.write_all_at(&[i as u8; 4096], (i as u64 % 256) * 4096).unwrap();
            let since = Instant::now();
            file.sync_data().unwrap();
            since.elapsed()
        })
        .collect();
    println!("fdatasync of a 4 KiB block: {}", spread(&mut times));
}

async fn measure(name: &str, store: Arc<dyn Store>, writers: usize, time: Duration) {
    let value = Bytes::from(vec![b'x'; VALUE]);
    let begin = Instant::now();
    let tasks: Vec<_> = (0..writers)
        .map(|w| {
            let (store, value) = (store.clone(), value.clone());
            tokio::spawn(async move {
                let mut times = Vec::new();
                while begin.elapsed() < time {
                    let key = format!("/core/pods/bench/{writers}-{w}-{}", times.len());
                    let op = Op::Put { value: value.clone(), ttl: None };
                    let since = Instant::now();
                    store.write(Write { key: key.into(), expect: Expect::Absent, op }).await.unwrap();
                    times.push(since.elapsed());
                }
                times
            })
        })
        .collect();
    let mut times = Vec::new();
    for task in tasks {
        times.extend(task.await.unwrap());
    }
    let rate = times.len() as f64 / begin.elapsed().as_secs_f64();
    println!("{name}: {writers:>2} writers, {VALUE} B: {rate:>6.0} durable writes/s; {}", spread(&mut times));
}

fn spread(times: &mut [Duration]) -> String {
    times.sort();
    let at = |share: usize| times[(times.len() - 1) * share / 100].as_secs_f64() * 1000.0;
    format!("p50 {:.2} ms, p99 {:.2} ms, n={}", at(50), at(99), times.len())
}
