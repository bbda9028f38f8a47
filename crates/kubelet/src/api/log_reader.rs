//! Reading a log file to its end, and on: over rotations, until the container has ended.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use inotify::{EventStream, Inotify, WatchMask};
use tokio::sync::mpsc;

use super::log_line::{self, Options};

/// Block size of reads.
const BLOCK: usize = 64 * 1024;
/// How often a silent file is looked at although no notification came.
const LOOK: Duration = Duration::from_millis(500);
/// Longest line that is kept together; the runtime cuts at 16 KiB.
const MAX_LINE: usize = 1024 * 1024;

/// Where in the last `lines` lines of the file start.
///
/// # Errors
/// What the file system says.
pub fn tail_offset(file: &mut File, lines: usize) -> io::Result<u64> {
    let length = file.metadata()?.len();
    if lines == 0 {
        return Ok(length);
    }
    let mut end = length;
    let mut found = 0;
    let mut block = vec![0; BLOCK];
    while end > 0 {
        let start = end.saturating_sub(BLOCK as u64);
        let size = usize::try_from(end - start).unwrap_or(BLOCK);
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(&mut block[..size])?;
        for index in (0..size).rev() {
            let at = start + index as u64;
            // The line feed at the very end closes the last line, it does not begin another.
            if block[index] == b'\n' && at + 1 < length {
                found += 1;
                if found == lines {
                    return Ok(at + 1);
                }
            }
        }
        end = start;
    }
    Ok(0)
}

/// A log being read.
pub struct Reader {
    path: PathBuf,
    file: File,
    options: Options,
    pending: Vec<u8>,
    continued: bool,
    left: Option<usize>,
}

/// What a read gave.
enum Step {
    Data,
    End,
    /// The reader has had enough.
    Full,
}

impl Reader {
    /// Opens the log where the reader wants to begin.
    ///
    /// # Errors
    /// What the file system says.
    pub fn open(path: &Path, options: Options) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let start = options.tail.map_or(Ok(0), |lines| tail_offset(&mut file, lines))?;
        file.seek(SeekFrom::Start(start))?;
        let left = options.limit;
        Ok(Self { path: path.to_owned(), file, options, pending: Vec::new(), continued: false, left })
    }

    /// Sends the log to `out`. When following, `ended` is asked at the end of the file whether more can come.
    pub async fn send<F>(mut self, out: mpsc::Sender<io::Result<Bytes>>, ended: impl Fn() -> F)
    where
        F: Future<Output = bool>,
    {
        let mut events = if self.options.follow { self.watch() } else { None };
        let mut last_round = false;
        loop {
            let mut chunk = Vec::new();
            let step = self.read(&mut chunk);
            if !chunk.is_empty() && out.send(Ok(Bytes::from(chunk))).await.is_err() {
                return;
            }
            match step {
                Ok(Step::Data) => continue,
                Ok(Step::Full) => return,
                Ok(Step::End) if self.options.follow => {}
                Ok(Step::End) => return self.flush(&out).await,
                Err(error) => return drop(out.send(Err(error)).await),
            }
            if self.reopen_if_rotated() {
                continue;
            }
            if last_round {
                return self.flush(&out).await;
            }
            tokio::select! {
                () = notified(&mut events) => {}
                () = out.closed() => return,
                () = tokio::time::sleep(LOOK) => last_round = ended().await,
            }
        }
    }

    fn watch(&self) -> Option<EventStream<[u8; 4096]>> {
        let inotify = Inotify::init().ok()?;
        let dir = self.path.parent()?;
        inotify
            .watches()
            .add(dir, WatchMask::MODIFY | WatchMask::CREATE | WatchMask::MOVED_TO | WatchMask::MOVED_FROM)
            .ok()?;
        inotify.into_event_stream([0; 4096]).ok()
    }

    /// Reads a block and renders the whole lines in it.
    fn read(&mut self, chunk: &mut Vec<u8>) -> io::Result<Step> {
        let mut block = vec![0; BLOCK];
        let size = self.file.read(&mut block)?;
        if size == 0 {
            return Ok(Step::End);
        }
        self.pending.extend_from_slice(&block[..size]);
        let mut start = 0;
        while let Some(length) = self.pending[start..].iter().position(|b| *b == b'\n') {
            let line = self.pending[start..start + length].to_vec();
            start += length + 1;
            if !self.render(&line, chunk) {
                return Ok(Step::Full);
            }
        }
        self.pending.drain(..start);
        if self.pending.len() > MAX_LINE {
            self.pending.clear();
        }
        Ok(Step::Data)
    }

    /// False once the limit is reached.
    fn render(&mut self, line: &[u8], chunk: &mut Vec<u8>) -> bool {
        let Some(mut text) = log_line::render(line, &self.options, self.continued) else { return true };
        self.continued = log_line::is_partial(line);
        if let Some(left) = &mut self.left {
            text.truncate(*left);
            *left -= text.len();
        }
        chunk.extend_from_slice(&text);
        self.left != Some(0)
    }

    /// A last line without a line feed: the container's writer was cut off.
    async fn flush(&mut self, out: &mpsc::Sender<io::Result<Bytes>>) {
        let line = std::mem::take(&mut self.pending);
        let mut chunk = Vec::new();
        self.render(&line, &mut chunk);
        if !chunk.is_empty() {
            let _ = out.send(Ok(Bytes::from(chunk))).await;
        }
    }

    /// After a rotation another file has the name. The old one was read to its end.
    fn reopen_if_rotated(&mut self) -> bool {
        let inode = |meta: io::Result<std::fs::Metadata>| meta.map(|m| (m.dev(), m.ino())).ok();
        let (ours, named) = (inode(self.file.metadata()), inode(std::fs::metadata(&self.path)));
        if named.is_none() || named == ours {
            return false;
        }
        match File::open(&self.path) {
            Ok(file) => {
                self.file = file;
                self.pending.clear();
                true
            }
            Err(_) => false,
        }
    }
}

async fn notified(events: &mut Option<EventStream<[u8; 4096]>>) {
    match events {
        Some(stream) => {
            if stream.next().await.is_none() {
                *events = None;
            }
        }
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn line(text: &str) -> String {
        format!("2026-01-01T00:00:00Z stdout F {text}\n")
    }

    async fn all(path: &Path, options: Options) -> String {
        let (sender, mut receiver) = mpsc::channel(16);
        let reader = Reader::open(path, options).unwrap();
        tokio::spawn(async move { reader.send(sender, || async { true }).await });
        let mut text = Vec::new();
        while let Some(chunk) = receiver.recv().await {
            text.extend_from_slice(&chunk.unwrap());
        }
        String::from_utf8(text).unwrap()
    }

    #[tokio::test]
    async fn tail_and_limit_cut_the_log() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.log");
        let long = "x".repeat(BLOCK);
        std::fs::write(&path, [line("one"), line(&long), line("three")].concat()).unwrap();
        let rows = [
            (None, None, format!("one\n{long}\nthree\n")),
            (Some(1), None, "three\n".to_owned()),
            (Some(2), None, format!("{long}\nthree\n")),
            (Some(9), None, format!("one\n{long}\nthree\n")),
            (Some(0), None, String::new()),
            (None, Some(5), "one\nx".to_owned()),
        ];
        for (tail, limit, expected) in rows {
            assert!(
                all(&path, Options { tail, limit, ..Default::default() }).await == expected,
                "{tail:?} {limit:?}"
            );
        }
    }

    #[tokio::test]
    async fn a_follower_survives_a_rotation_and_ends_with_the_container() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.log");
        std::fs::write(&path, line("one")).unwrap();
        let ended = Arc::new(AtomicBool::new(false));
        let (sender, mut receiver) = mpsc::channel(16);
        let reader = Reader::open(&path, Options { follow: true, ..Default::default() }).unwrap();
        let asked = ended.clone();
        tokio::spawn(async move {
            reader.send(sender, || std::future::ready(asked.load(Ordering::Relaxed))).await;
        });
        let mut next = async || String::from_utf8(receiver.recv().await.unwrap().unwrap().to_vec()).unwrap();
        assert_eq!(next().await, "one\n");
        let mut old = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        old.write_all(line("two").as_bytes()).unwrap();
        assert_eq!(next().await, "two\n");
        std::fs::rename(&path, dir.path().join("0.log.1")).unwrap();
        std::fs::write(&path, line("three")).unwrap();
        assert_eq!(next().await, "three\n");
        ended.store(true, Ordering::Relaxed);
        let closed = tokio::time::timeout(Duration::from_secs(5), receiver.recv()).await;
        assert!(closed.unwrap().is_none());
    }
}
