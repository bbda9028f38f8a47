//! `kill -9` of a process that writes, at random moments.

use crate::{Dice, everything, examine, folder};
use bytes::Bytes;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use trine_store::redb::RedbStore;
use trine_store::{Expect, Op, Store, Write};

const FOLDER: &str = "TRINE_STORE_CRASH_FOLDER";
const ROUNDS: usize = 10;
const WRITERS: usize = 16;
/// How long a process may take to make the writes of a round.
const DEADLINE: Duration = Duration::from_secs(20);

/// The process that is killed: this test program again, which does nothing without the variable.
#[test]
fn process_that_is_killed() {
    let Some(dir) = std::env::var_os(FOLDER) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let path = PathBuf::from(dir).join("store.redb");
        let store = Arc::new(RedbStore::open(&path, everything()).unwrap());
        let writers = (0..WRITERS).map(|w| tokio::spawn(write(store.clone(), w)));
        futures::future::join_all(writers).await;
    });
}

/// Makes, changes and deletes keys of its own, and says what it was told.
async fn write(store: Arc<RedbStore>, writer: usize) {
    let mut dice = Dice::new(1 + writer as u64 + store.revision().await.unwrap());
    for round in 0.. {
        let key: Arc<str> = format!("/g/r/{}-{writer}-{round}", std::process::id()).into();
        let mut at = Expect::Absent;
        for step in 0..3 {
            let value = Bytes::from(vec![b'a' + step; 1 + dice.roll(20_000)]);
            let op = if step == 2 { Op::Delete { last: None } } else { Op::Put { value, ttl: None } };
            if step == 2 && dice.roll(2) == 0 {
                break;
            }
            let revision = store.write(Write { key: key.clone(), expect: at, op }).await.unwrap();
            at = Expect::At(revision);
            let mut out = std::io::stdout().lock();
            writeln!(out, "\nacknowledged {revision} {key} {}", u8::from(step == 2)).unwrap();
        }
    }
}

#[tokio::test]
async fn nothing_that_was_acknowledged_is_lost_by_kill() {
    let dir = folder();
    let mut dice = Dice::new(0x5eed);
    let mut acknowledged = Vec::new();
    for round in 0..ROUNDS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "killed::process_that_is_killed", "--nocapture"])
            .env(FOLDER, dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let heard = Arc::new(AtomicUsize::new(0));
        let count = heard.clone();
        let reader = std::thread::spawn(move || {
            let said = |line: String| {
                let mut words = line.strip_prefix("acknowledged ")?.split(' ');
                let revision: u64 = words.next()?.parse().ok()?;
                Some((revision, words.next()?.to_owned(), words.next()? == "1"))
            };
            let said = lines.map_while(Result::ok).filter_map(said);
            said.inspect(|_| {
                count.fetch_add(1, Ordering::Relaxed);
            })
            .collect::<Vec<_>>()
        });
        // Somewhere among its writes, however slow the machine is.
        let enough = 20 + dice.roll(60);
        let since = Instant::now();
        while heard.load(Ordering::Relaxed) < enough && since.elapsed() < DEADLINE {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(Duration::from_micros(dice.roll(3000) as u64)).await;
        child.kill().unwrap();
        child.wait().unwrap();
        let mut said = reader.join().unwrap();
        // The last line may be cut off in its middle.
        said.pop();
        acknowledged.extend(said);
        let history = examine(dir.path()).await;
        for (revision, key, deleted) in &acknowledged {
            let change = history.get(revision).unwrap_or_else(|| panic!("round {round}: {revision} is lost"));
            assert_eq!((&*change.key, change.deleted), (key.as_str(), *deleted), "round {round}");
        }
    }
    assert!(acknowledged.len() > 100, "only {} writes in {ROUNDS} rounds", acknowledged.len());
    println!("{} acknowledged writes over {ROUNDS} kills, all there", acknowledged.len());
}
