//! What a volume's file system gives beside the host's, past the page cache.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::rig::{MIB, Rig, mounted};

/// The file that is written and read, bytes.
const FILE: u64 = 256 * MIB;
/// How long single blocks are written or read.
const SPAN: Duration = Duration::from_secs(2);
/// Turns, each on all of them.
const TURNS: usize = 3;
const BLOCK: u64 = 4096;

/// What one place gave in each turn: MiB/s, and blocks in a second.
#[derive(Debug, Default)]
pub struct Gave {
    pub name: &'static str,
    pub write: Vec<f64>,
    pub read: Vec<f64>,
    pub random_write: Vec<f64>,
    pub random_read: Vec<f64>,
    pub synced_write: Vec<f64>,
}

/// Bytes at an address that direct I/O takes.
struct Aligned(Vec<u8>, usize);

impl Aligned {
    fn of(bytes: u64) -> Self {
        let whole = vec![0x5a; (bytes + BLOCK) as usize];
        let at = whole.as_ptr().align_offset(BLOCK as usize);
        Self(whole, at)
    }

    fn slice(&mut self, bytes: u64) -> &mut [u8] {
        &mut self.0[self.1..self.1 + bytes as usize]
    }
}

/// A folder on the host, one in a volume that is a file there, one in a volume on a disk of its own.
pub async fn measure() -> Vec<Gave> {
    let host = tempfile::tempdir().unwrap();
    let mut rigs = Vec::new();
    for disk in [false, true] {
        crate::DISK.store(disk, Ordering::SeqCst);
        let rig = Rig::start().await;
        let cap = mounted("xfs");
        rig.create("v", 1 << 30, &cap).await.unwrap();
        rig.attach("v", &cap).await.unwrap();
        rig.stage("v", &cap).await.unwrap();
        rigs.push(rig);
    }
    let places = [
        ("a file of the host", host.path().to_owned()),
        ("a volume that is a file (one loop)", rigs[0].root.join("staging")),
        ("a volume on the disk (two loops)", rigs[1].root.join("staging")),
    ];
    let mut gave: Vec<Gave> = places.iter().map(|(name, _)| Gave { name, ..Gave::default() }).collect();
    for _ in 0..TURNS {
        for ((_, dir), gave) in places.iter().zip(&mut gave) {
            turn(&dir.join("file"), gave);
        }
    }
    // Each rig takes its own pool down.
    for (disk, rig) in [true, false].into_iter().zip(rigs.into_iter().rev()) {
        crate::DISK.store(disk, Ordering::SeqCst);
        drop(rig);
    }
    gave
}

fn turn(path: &Path, gave: &mut Gave) {
    let mut buffer = Aligned::of(MIB);
    let direct = rustix::fs::OFlags::DIRECT.bits().cast_signed();
    let mut options = OpenOptions::new();
    let file =
        options.create(true).truncate(true).read(true).write(true).custom_flags(direct).open(path).unwrap();
    let since = Instant::now();
    for at in 0..FILE / MIB {
        file.write_all_at(buffer.slice(MIB), at * MIB).unwrap();
    }
    file.sync_all().unwrap();
    gave.write.push(rate(since));
    let since = Instant::now();
    for at in 0..FILE / MIB {
        file.read_exact_at(buffer.slice(MIB), at * MIB).unwrap();
    }
    gave.read.push(rate(since));
    gave.random_write.push(blocks(|at| file.write_all_at(buffer.slice(BLOCK), at).unwrap()));
    gave.random_read.push(blocks(|at| file.read_exact_at(buffer.slice(BLOCK), at).unwrap()));
    gave.synced_write.push(blocks(|at| synced(&file, buffer.slice(BLOCK), at)));
    drop(file);
    std::fs::remove_file(path).unwrap();
}

fn synced(file: &File, block: &[u8], at: u64) {
    file.write_all_at(block, at).unwrap();
    file.sync_data().unwrap();
}

/// MiB in a second.
fn rate(since: Instant) -> f64 {
    (FILE / MIB) as f64 / since.elapsed().as_secs_f64()
}

/// Blocks in a second, one after the other, in an order that is random and always the same.
fn blocks(mut act: impl FnMut(u64)) -> f64 {
    let (mut state, mut done) = (1_u64, 0_u64);
    let since = Instant::now();
    while since.elapsed() < SPAN {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        act((state >> 33) % (FILE / BLOCK) * BLOCK);
        done += 1;
    }
    done as f64 / since.elapsed().as_secs_f64()
}
