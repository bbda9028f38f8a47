//! A container's log file in the format of the CRI: `time stream F|P text`, one line each.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Longest text of one line, bytes; a longer one is cut into parts marked `P` (containerd's and the kubelet's number).
const MAX_LINE: usize = 16 * 1024;

/// Which stream a line is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Stdout,
    Stderr,
}

impl Source {
    fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// An open log file, with the unfinished line of each stream.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    file: File,
    unfinished: [Vec<u8>; 2],
}

impl Log {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        Ok(Self { path: path.to_owned(), file: open(path)?, unfinished: Default::default() })
    }

    /// Goes on in a new file at the same path, after the old one was renamed. On an error the old one stays.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        self.file = open(&self.path)?;
        Ok(())
    }

    /// Takes bytes of a stream at `time`.
    pub(super) fn write(&mut self, source: Source, bytes: &[u8], time: &str) {
        let unfinished = &mut self.unfinished[source as usize];
        let lines = cut(unfinished, bytes, source, time);
        // A full disk must not end the container; the kubelet rotates, and the next line may fit.
        let _ = self.file.write_all(&lines);
    }

    /// The stream has ended: what is left of it becomes a line, marked as one without an end of its own.
    pub(super) fn end(&mut self, source: Source, time: &str) {
        let rest = std::mem::take(&mut self.unfinished[source as usize]);
        if !rest.is_empty() {
            let mut line = Vec::new();
            put(&mut line, source, time, b'P', &rest);
            let _ = self.file.write_all(&line);
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

/// Turns bytes into finished lines; the rest stays in `unfinished`.
fn cut(unfinished: &mut Vec<u8>, bytes: &[u8], source: Source, time: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + 64);
    let mut rest = bytes;
    while !rest.is_empty() {
        let room = MAX_LINE - unfinished.len();
        let end = rest.iter().take(room + 1).position(|byte| *byte == b'\n');
        if let Some(end) = end {
            unfinished.extend(&rest[..end]);
            put(&mut out, source, time, b'F', unfinished);
            unfinished.clear();
            rest = &rest[end + 1..];
        } else if rest.len() > room {
            unfinished.extend(&rest[..room]);
            put(&mut out, source, time, b'P', unfinished);
            unfinished.clear();
            rest = &rest[room..];
        } else {
            unfinished.extend(rest);
            rest = &[];
        }
    }
    out
}

fn put(out: &mut Vec<u8>, source: Source, time: &str, tag: u8, text: &[u8]) {
    out.extend(time.as_bytes());
    out.push(b' ');
    out.extend(source.name().as_bytes());
    out.extend([b' ', tag, b' ']);
    out.extend(text);
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(chunks: &[&[u8]]) -> Vec<(char, usize)> {
        let mut unfinished = Vec::new();
        let all: Vec<u8> =
            chunks.iter().flat_map(|chunk| cut(&mut unfinished, chunk, Source::Stdout, "T")).collect();
        let text = String::from_utf8(all).unwrap();
        text.lines()
            .map(|line| {
                let rest = line.strip_prefix("T stdout ").unwrap();
                (rest.chars().next().unwrap(), rest.len() - 2)
            })
            .collect()
    }

    #[test]
    fn lines_are_whole_however_the_bytes_arrive() {
        assert_eq!(lines(&[b"ab", b"c\nd", b"\n\n", b"tail"]), [('F', 3), ('F', 1), ('F', 0)]);
    }

    #[test]
    fn long_lines_are_cut_and_one_of_exactly_the_limit_is_not() {
        let exact = [vec![b'x'; MAX_LINE], b"\n".to_vec()].concat();
        assert_eq!(lines(&[&exact]), [('F', MAX_LINE)]);
        let long = [vec![b'x'; MAX_LINE + 5], b"\n".to_vec()].concat();
        assert_eq!(lines(&[&long]), [('P', MAX_LINE), ('F', 5)]);
    }

    #[test]
    fn a_stream_that_ends_without_a_newline_loses_nothing_and_gets_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/0.log");
        let mut log = Log::open(&path).unwrap();
        log.write(Source::Stderr, b"half", "T");
        std::fs::rename(&path, dir.path().join("old")).unwrap();
        log.reopen().unwrap();
        log.end(Source::Stderr, "T");
        log.end(Source::Stderr, "T");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "T stderr P half\n");
    }
}
