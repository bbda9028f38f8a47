//! `cargo xtask bench csi`: what each call of the driver takes, and what a volume's file system gives, with volumes as files on the
//! host's file system and on a disk of their own.
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on ends")]

mod calls;
mod io;
mod page;
#[path = "../../tests/volume/rig.rs"]
#[allow(dead_code, reason = "its other calls are for tests")]
mod rig;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use trine_csi_driver::PoolKind;

/// Whether the pool that is opened next is on a disk of its own.
static DISK: AtomicBool = AtomicBool::new(false);

fn pool() -> PoolKind {
    if DISK.load(Ordering::SeqCst) { PoolKind::Disk } else { PoolKind::Files }
}

/// Words of the command line.
struct Words {
    rounds: usize,
    out: Option<PathBuf>,
}

fn words() -> Words {
    let mut words = Words { rounds: 15, out: None };
    let mut given = std::env::args().skip(1);
    while let Some(word) = given.next() {
        match word.as_str() {
            "--rounds" => words.rounds = given.next().and_then(|n| n.parse().ok()).expect("--rounds N"),
            "--out" => words.out = given.next().map(PathBuf::from),
            // What cargo adds.
            "--bench" => {}
            other => panic!("{other:?} is no word of this benchmark"),
        }
    }
    words
}

#[tokio::main]
async fn main() {
    if !trine_kernel::testing::root("bench csi") || !trine_kernel::testing::program("bench csi", "mkfs.xfs") {
        std::process::exit(1);
    }
    let words = words();
    let before = page::load();
    let mut kinds = Vec::new();
    for disk in [false, true] {
        DISK.store(disk, Ordering::SeqCst);
        kinds.push(calls::measure(words.rounds).await);
    }
    let io = io::measure().await;
    let text = page::write(&before, &kinds, &io);
    print!("{text}");
    if let Some(out) = words.out {
        std::fs::write(out, text).unwrap();
    }
}
