//! Where the notes go: lines of JSON at the end of a file, written by one thread. The queue is bounded: a disk that hangs
//! holds up no request, and how many notes are lost then is said.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;

/// Notes that wait to be written.
const QUEUE: usize = 10_000;
/// After this long without a note, what was written is given to the system.
const IDLE: Duration = Duration::from_millis(100);

/// Takes notes.
pub struct Sink {
    sender: Option<SyncSender<Value>>,
    lost: AtomicU64,
    writer: Option<JoinHandle<()>>,
}

impl Sink {
    /// Opens the file, for its owner alone.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(path: &Path) -> std::io::Result<Self> {
        if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir)?;
        }
        let file = std::fs::OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
        let (sender, receiver) = sync_channel(QUEUE);
        let writer =
            std::thread::Builder::new().name("audit".to_owned()).spawn(move || write(file, &receiver))?;
        Ok(Self { sender: Some(sender), lost: AtomicU64::new(0), writer: Some(writer) })
    }

    /// Queues a note; loses it if the queue is full.
    pub fn note(&self, event: Value) {
        let Some(sender) = &self.sender else { return };
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) = sender.try_send(event) {
            let lost = self.lost.fetch_add(1, Ordering::Relaxed) + 1;
            if lost.is_power_of_two() {
                tracing::error!(lost, "the audit log does not keep up; notes are lost");
            }
        }
    }

    /// How many notes were lost.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        drop(self.sender.take());
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

fn write(file: File, receiver: &Receiver<Value>) {
    let mut out = BufWriter::new(file);
    loop {
        let written = match receiver.recv_timeout(IDLE) {
            Ok(event) => serde_json::to_writer(&mut out, &event)
                .map_err(Into::into)
                .and_then(|()| out.write_all(b"\n")),
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {
                let flushed = out.flush();
                // Nothing to do until there is something: no wake-ups while nobody asks.
                match receiver.recv() {
                    Ok(event) => flushed
                        .and_then(|()| serde_json::to_writer(&mut out, &event).map_err(Into::into))
                        .and_then(|()| out.write_all(b"\n")),
                    Err(_) => return,
                }
            }
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => {
                let _ = out.flush();
                return;
            }
        };
        if let Err(error) = written {
            tracing::error!(%error, "the audit log cannot be written");
        }
    }
}
