//! Who writes while the driver dies: numbered records, each with its checksum and each synced.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

const RECORD: usize = 16;

/// A writer.
pub struct Writer {
    file: PathBuf,
    synced: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// FNV-1a over the number.
fn checksum(number: u64) -> u64 {
    number
        .to_le_bytes()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum: u64, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

impl Writer {
    /// Writes to the file `log` in `dir`.
    pub fn at(dir: &Path) -> Self {
        let file = dir.join("log");
        let (synced, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let thread = std::thread::spawn({
            let (log, synced, stop) = (std::fs::File::create(&file).unwrap(), synced.clone(), stop.clone());
            move || {
                for number in 1_u64.. {
                    if stop.load(Ordering::SeqCst) {
                        return;
                    }
                    let mut record = [0; RECORD];
                    record[..8].copy_from_slice(&number.to_le_bytes());
                    record[8..].copy_from_slice(&checksum(number).to_le_bytes());
                    log.write_all_at(&record, (number - 1) * RECORD as u64).unwrap();
                    log.sync_data().unwrap();
                    synced.store(number, Ordering::SeqCst);
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
            }
        });
        Self { file, synced, stop, thread: Some(thread) }
    }

    /// How many records are synced by now.
    pub fn synced(&self) -> u64 {
        self.synced.load(Ordering::SeqCst)
    }

    /// Waits until it goes on writing.
    pub async fn goes_on(&self, here: &str) {
        let before = self.synced();
        let begun = std::time::Instant::now();
        while self.synced() <= before {
            assert!(begun.elapsed().as_secs() < 20, "{here}: the writer is held up");
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    }

    /// All that was synced is in its file.
    pub fn check(&self, here: &str) {
        let synced = self.synced();
        let whole = whole(&self.file);
        assert!(whole >= synced, "{here}: {whole} of {synced} synced records");
    }

    /// Ends it; gives how many records it has synced.
    pub fn end(mut self) -> u64 {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.take().unwrap().join().unwrap();
        self.synced()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            // Held up for good where a test has failed.
            if !std::thread::panicking() {
                let _ = thread.join();
            }
        }
    }
}

/// How many records from the first on are whole.
pub fn whole(file: &Path) -> u64 {
    let bytes = std::fs::read(file).unwrap_or_default();
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
    let records = bytes.chunks_exact(RECORD).zip(1_u64..);
    let good = records.take_while(|(r, n)| word(&r[..8]) == *n && word(&r[8..]) == checksum(*n));
    good.count() as u64
}
