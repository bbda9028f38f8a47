//! Files as a machine leaves them that stops in the middle of a write: some sectors are new, some old, some garbage.

use crate::{Dice, everything, examine, folder};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trine_store::redb::RedbStore;
use trine_store::{Expect, Op, Store, StoreError, Write};

const SECTOR: usize = 512;
const JOURNAL_CUTS: usize = 80;
const CHECKPOINT_CUTS: usize = 40;

type Files = BTreeMap<PathBuf, Vec<u8>>;

/// All files below a folder, by their path in it.
fn files(dir: &Path) -> Files {
    let mut found = Files::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.insert(path.strip_prefix(dir).unwrap().to_owned(), std::fs::read(&path).unwrap());
            }
        }
    }
    found
}

fn lay(dir: &Path, files: &Files) {
    for (path, bytes) in files {
        std::fs::create_dir_all(dir.join(path).parent().unwrap()).unwrap();
        std::fs::write(dir.join(path), bytes).unwrap();
    }
}

async fn write(store: &Arc<RedbStore>, dice: &mut Dice, round: usize, count: usize) {
    let writes = (0..count).map(|i| {
        let value = Bytes::from(vec![b'x'; 1 + dice.roll(3000)]);
        let op = Op::Put { value, ttl: None };
        store.write(Write { key: format!("/g/r/{round}-{i}").into(), expect: Expect::Absent, op })
    });
    futures::future::try_join_all(writes.collect::<Vec<_>>()).await.unwrap();
}

fn sector(bytes: &[u8], at: usize) -> &[u8] {
    let start = (at * SECTOR).min(bytes.len());
    &bytes[start..(start + SECTOR).min(bytes.len())]
}

/// Where two states of a file differ: the sectors that the write between them touched.
fn touched(before: &[u8], after: &[u8]) -> Vec<usize> {
    let sectors = 0..after.len().div_ceil(SECTOR);
    sectors.filter(|s| sector(before, *s) != sector(after, *s)).collect()
}

/// `before` with some of the touched sectors from `after`, and some garbage if `garbage`.
fn mix(before: &[u8], after: &[u8], touched: &[usize], dice: &mut Dice, garbage: bool) -> Vec<u8> {
    let mut mixed = before.to_vec();
    mixed.resize(before.len().max(after.len()), 0);
    let share = dice.roll(5);
    for sector in touched {
        let range = sector * SECTOR..((sector + 1) * SECTOR).min(after.len());
        if dice.roll(4) < share {
            mixed[range.clone()].copy_from_slice(&after[range]);
        } else if garbage && dice.roll(3) == 0 {
            mixed[range].fill_with(|| dice.roll(256) as u8);
        }
    }
    mixed
}

#[tokio::test]
async fn a_last_commit_that_was_cut_off_takes_nothing_else_with_it() {
    let live = folder();
    let store = Arc::new(RedbStore::open(&live.path().join("store.redb"), everything()).unwrap());
    let mut dice = Dice::new(0xd1ce);
    let mut cuts = 0;
    for round in 0..JOURNAL_CUTS / 4 {
        write(&store, &mut dice, round, 8).await;
        let durable = store.revision().await.unwrap();
        let before = files(live.path());
        // One write is one commit: of two, the second is begun when the first is durable.
        let value = Bytes::from(vec![b'0' + (round % 10) as u8; SECTOR + dice.roll(60_000)]);
        let op = Op::Put { value, ttl: None };
        let key = format!("/g/r/last-{round}").into();
        store.write(Write { key, expect: Expect::Absent, op }).await.unwrap();
        let after = files(live.path());
        let journal = before.iter().find(|(path, bytes)| after.get(*path).is_some_and(|a| a != *bytes));
        // A commit that begins a new file has not touched the old one.
        let Some((path, old)) = journal else { continue };
        let (new, sectors) = (&after[path], touched(old, &after[path]));
        for cut in 0..4 {
            let mut image = before.clone();
            let bytes = match cut {
                // The file ends in the middle.
                0 => new[..sectors[dice.roll(sectors.len())] * SECTOR + dice.roll(SECTOR)].to_vec(),
                // The write came as far as this.
                1 => {
                    let kept = dice.roll(sectors.len());
                    mix(old, new, &sectors[..kept], &mut Dice::new(u64::MAX), false)
                }
                // Sectors were written in any order.
                2 => mix(old, new, &sectors[1..], &mut dice, false),
                _ => mix(old, new, &sectors[1..], &mut dice, true),
            };
            // What was durable before the write is not part of it: its last sector holds the old bytes and new ones.
            let start = sectors[0] * SECTOR;
            let same = old[start..].iter().zip(&new[start..]).take_while(|(a, b)| a == b).count();
            let mut bytes = bytes;
            if bytes.len() < start + same {
                bytes = new[..start + same].to_vec();
            }
            image.insert(path.clone(), bytes);
            let copy = folder();
            lay(copy.path(), &image);
            let history = examine(copy.path()).await;
            let newest = *history.keys().next_back().unwrap();
            assert!(newest >= durable, "round {round}, cut {cut}: {newest} of {durable}");
            // It goes on from there, and again after that.
            let again = Arc::new(RedbStore::open(&copy.path().join("store.redb"), everything()).unwrap());
            write(&again, &mut dice, 9000, 3).await;
            drop(again);
            assert_eq!(examine(copy.path()).await.len(), history.len() + 3);
            cuts += 1;
        }
    }
    assert!(cuts >= JOURNAL_CUTS / 2, "only {cuts} cuts");
}

#[tokio::test]
async fn a_checkpoint_that_was_cut_off_is_made_again_from_the_journal() {
    let live = folder();
    let store = Arc::new(RedbStore::open(&live.path().join("store.redb"), everything()).unwrap());
    let mut dice = Dice::new(0xc4ec);
    for round in 0..CHECKPOINT_CUTS / 4 {
        write(&store, &mut dice, round, 40).await;
        let durable = store.revision().await.unwrap();
        let before = files(live.path());
        store.snapshot("/none").await.unwrap();
        let after = files(live.path());
        let path = Path::new("store.redb");
        // The header comes after everything else is durable.
        let sectors: Vec<_> = touched(&before[path], &after[path]).into_iter().filter(|s| *s > 0).collect();
        assert!(!sectors.is_empty());
        for _ in 0..4 {
            let mut image = before.clone();
            let garbage = dice.roll(2) == 0;
            image.insert(path.to_owned(), mix(&before[path], &after[path], &sectors, &mut dice, garbage));
            let copy = folder();
            lay(copy.path(), &image);
            let history = examine(copy.path()).await;
            assert_eq!(*history.keys().next_back().unwrap(), durable, "round {round}");
        }
    }
}

#[tokio::test]
async fn a_journal_that_lost_what_was_acknowledged_is_refused_and_left_alone() {
    let live = folder();
    let store = Arc::new(RedbStore::open(&live.path().join("store.redb"), everything()).unwrap());
    let mut dice = Dice::new(7);
    for round in 0..4 {
        write(&store, &mut dice, round, 4).await;
    }
    let mut image = files(live.path());
    let (path, bytes) =
        image.iter_mut().find(|(path, _)| path.to_string_lossy().contains("journal")).unwrap();
    // In the first commit's value, with others behind it.
    bytes[200] ^= 1;
    let (path, broken) = (path.clone(), bytes.clone());
    let copy = folder();
    lay(copy.path(), &image);
    let refused = RedbStore::open(&copy.path().join("store.redb"), everything()).err();
    let Some(StoreError::Engine { source, .. }) = refused else { panic!("{refused:?}") };
    assert!(source.to_string().contains("lacks revision 2"), "{source}");
    assert!(std::fs::read(copy.path().join(path)).unwrap() == broken);
}
