//! The journal: every commit, durable, in files of one size.
//!
//! A file is written from its beginning and used again under a new name when its commits are forgotten, so that a commit
//! overwrites blocks that the file system has already given: one sequential write and one `fdatasync`. What a file held
//! before follows what it holds now; its revisions are lower, which tells them apart.

use super::frame::{self, ALIGN};
use super::record::Batch;
use crate::store::Change;
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// Bytes of a file.
pub const SEGMENT: usize = 4 << 20;
/// Files that are kept for later use.
const SPARES: usize = 2;
const SUFFIX: &str = "journal";
const SPARE: &str = "spare";

/// Why the journal cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The files cannot be read or written.
    #[error("the journal {path} cannot be used")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Acknowledged changes are missing. What is there is left untouched.
    #[error("the journal in {dir} lacks revision {missing}: restore a snapshot")]
    Hole {
        /// The folder.
        dir: PathBuf,
        /// The first revision that is not there.
        missing: u64,
    },
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> JournalError {
    move |source| JournalError::Io { path: path.to_owned(), source }
}

struct Segment {
    path: PathBuf,
    /// Its first revision.
    first: u64,
}

/// The open journal.
pub struct Journal {
    dir: PathBuf,
    segments: VecDeque<Segment>,
    spares: Vec<PathBuf>,
    /// The last segment and where its next frame goes; none before the first commit.
    file: Option<(File, usize)>,
    named: u64,
    bytes: Vec<u8>,
}

impl Journal {
    /// Reads the journal. `covered` is the revision of the checkpoint: what is newer must be complete. Gives the batches
    /// that form an unbroken row up to the newest revision; of those that the checkpoint covers some may be missing.
    pub fn open(dir: &Path, covered: u64) -> Result<(Self, Vec<Batch>), JournalError> {
        std::fs::create_dir_all(dir).map_err(io_error(dir))?;
        let mut found = Vec::new();
        let mut spares = Vec::new();
        for entry in std::fs::read_dir(dir).map_err(io_error(dir))? {
            let path = entry.map_err(io_error(dir))?.path();
            let stem = path.file_stem().and_then(|s| s.to_str()).unwrap_or_default();
            match path.extension().and_then(|e| e.to_str()) {
                Some(SUFFIX) => found.extend(stem.parse().ok().map(|first| Segment { path, first })),
                // One that was being made when the process ended may be short.
                Some(SPARE) if path.metadata().is_ok_and(|m| m.len() == SEGMENT as u64) => spares.push(path),
                Some(SPARE) => drop(std::fs::remove_file(&path)),
                _ => {}
            }
        }
        found.sort_by_key(|s: &Segment| s.first);
        let mut journal = Self {
            dir: dir.to_owned(),
            segments: VecDeque::new(),
            named: spares.len() as u64,
            spares,
            file: None,
            bytes: Vec::new(),
        };
        let batches = journal.replay(found, covered)?;
        Ok((journal, batches))
    }

    fn replay(&mut self, found: Vec<Segment>, covered: u64) -> Result<Vec<Batch>, JournalError> {
        let hole = |missing| Err(JournalError::Hole { dir: self.dir.clone(), missing });
        let mut batches: Vec<Batch> = Vec::new();
        let mut next = found.first().map_or(covered + 1, |s| s.first);
        if next > covered + 1 {
            return hole(covered + 1);
        }
        let mut end = 0;
        for segment in &found {
            if segment.first != next {
                // What the checkpoint covers is only missed as history.
                if next > covered || segment.first > covered + 1 {
                    return hole(next.max(covered + 1));
                }
                batches.clear();
                next = segment.first;
            }
            let bytes = std::fs::read(&segment.path).map_err(io_error(&segment.path))?;
            end = scan(&bytes, &mut next, |batch| batches.push(batch));
            if newest(&bytes[end..], next).is_some_and(|newest| newest > covered) {
                return hole(next.max(covered + 1));
            }
        }
        if next <= covered {
            // The newest commits are in the checkpoint alone: nothing can be told of the past.
            for segment in found {
                std::fs::remove_file(&segment.path).map_err(io_error(&segment.path))?;
            }
            return Ok(Vec::new());
        }
        if let Some(last) = found.last() {
            let file = OpenOptions::new().read(true).write(true).open(&last.path);
            self.file = Some((file.map_err(io_error(&last.path))?, end));
        }
        self.segments = found.into();
        Ok(batches)
    }

    /// Makes a batch durable. What was refused has its place taken by the next batch.
    pub fn append(&mut self, batch: &Batch) -> Result<(), AppendError> {
        self.bytes.clear();
        frame::encode(&mut self.bytes, batch);
        if self.file.as_ref().is_none_or(|(_, at)| at + self.bytes.len() > SEGMENT) {
            let first = batch.changes.first().map_or(0, |c| c.revision);
            self.begin(first).map_err(AppendError::Refused)?;
        }
        let Some((file, at)) = &mut self.file else { return Ok(()) };
        file.write_all_at(&self.bytes, *at as u64).map_err(AppendError::Refused)?;
        file.sync_data().map_err(AppendError::Lost)?;
        *at += self.bytes.len();
        if self.bytes.capacity() > SEGMENT / 4 {
            self.bytes = Vec::new();
        }
        Ok(())
    }

    /// Begins a new file for commits from `first` on.
    fn begin(&mut self, first: u64) -> io::Result<()> {
        let spare = match self.spares.pop() {
            Some(spare) => spare,
            None => self.make_spare()?,
        };
        let path = self.dir.join(format!("{first:020}.{SUFFIX}"));
        std::fs::rename(&spare, &path)?;
        File::open(&self.dir)?.sync_all()?;
        self.file = Some((OpenOptions::new().read(true).write(true).open(&path)?, 0));
        // A file of that name had no commit in it when the process ended.
        self.segments.retain(|s| s.path != path);
        self.segments.push_back(Segment { path, first });
        Ok(())
    }

    fn make_spare(&mut self) -> io::Result<PathBuf> {
        self.named += 1;
        let path = self.dir.join(format!("{}.{SPARE}", self.named));
        let file = File::create(&path)?;
        file.write_all_at(&vec![0; SEGMENT], 0)?;
        file.sync_all()?;
        Ok(path)
    }

    /// The changes after a revision.
    pub fn since(&self, after: u64) -> Result<Vec<Change>, JournalError> {
        let mut changes = Vec::new();
        for (i, segment) in self.segments.iter().enumerate() {
            if self.segments.get(i + 1).is_some_and(|next| next.first <= after + 1) {
                continue;
            }
            let bytes = std::fs::read(&segment.path).map_err(io_error(&segment.path))?;
            let mut next = segment.first;
            scan(&bytes, &mut next, |batch| {
                changes.extend(batch.changes.iter().filter(|c| c.revision > after).cloned());
            });
        }
        Ok(changes)
    }

    /// Gives up files whose commits are all in the checkpoint and no longer wanted as history.
    pub fn forget(&mut self, compacted: u64, covered: u64) {
        let through = compacted.min(covered);
        let spent = |segments: &VecDeque<Segment>| segments.get(1).is_some_and(|s| s.first <= through + 1);
        while spent(&self.segments) {
            let Some(segment) = self.segments.pop_front() else { return };
            self.named += 1;
            let spare = self.dir.join(format!("{}.{SPARE}", self.named));
            if self.spares.len() < SPARES && std::fs::rename(&segment.path, &spare).is_ok() {
                self.spares.push(spare);
            } else if let Err(error) = std::fs::remove_file(&segment.path) {
                tracing::warn!(%error, path = %segment.path.display(), "a spent part of the journal stays");
            }
        }
    }

    /// The first revision that is kept; `None` if none is.
    pub fn first(&self) -> Option<u64> {
        self.segments.front().map(|s| s.first)
    }
}

/// Why a commit is not durable.
#[derive(Debug)]
pub enum AppendError {
    /// It could not be written; another can be tried.
    Refused(io::Error),
    /// It was written, and the disk does not say where it is.
    Lost(io::Error),
}

/// Reads frames while they continue `next`; gives where they end.
fn scan(bytes: &[u8], next: &mut u64, mut found: impl FnMut(Batch)) -> usize {
    let mut at = 0;
    while let Some((batch, length)) = bytes.get(at..).and_then(frame::decode) {
        if batch.changes.first().is_none_or(|c| c.revision != *next) {
            break;
        }
        *next = batch.last() + 1;
        found(batch);
        at += length;
    }
    at.min(bytes.len())
}

/// The newest commit from `next` on that is there though the one before it is not: a last write that was interrupted
/// leaves none.
fn newest(bytes: &[u8], next: u64) -> Option<u64> {
    let begins = bytes.chunks(ALIGN).enumerate().filter(|(_, chunk)| chunk.starts_with(&frame::MAGIC));
    let frames = begins.filter_map(|(i, _)| frame::decode(&bytes[i * ALIGN..]));
    frames.filter(|(batch, _)| batch.changes[0].revision >= next).map(|(batch, _)| batch.last()).max()
}
