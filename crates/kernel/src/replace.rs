//! Files that are replaced whole, again and again.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use crate::testing::failpoint;

/// Replaces the content of `path`: whoever reads it, also after `kill -9` of this process, finds the old content or the new one. The
/// old one stays in `spare`, a file beside it, and is written over the next time: ext4 is slow to make inodes where many were
/// just deleted, and writes a file out at once that is renamed over another.
///
/// # Errors
/// What the system says; the old content is there then.
pub fn replace(path: &Path, spare: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).truncate(false).write(true).open(spare)?;
    fill(&mut file, bytes)?;
    failpoint("record: drafted");
    match renameat_with(CWD, spare, CWD, path, RenameFlags::EXCHANGE) {
        Ok(()) => Ok(()),
        // The first time, or a file system that cannot exchange.
        Err(Errno::NOENT | Errno::INVAL | Errno::NOSYS) => std::fs::rename(spare, path),
        Err(errno) => Err(errno.into()),
    }
}

/// Not cut to nothing first: ext4 takes that for a replacement, too.
fn fill(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    file.write_all(bytes)?;
    file.set_len(bytes.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_replacement_is_whole_and_the_one_before_is_spared() {
        let dir = tempfile::tempdir().unwrap();
        let (path, spare) = (dir.path().join("record"), dir.path().join("spare"));
        for content in ["first, a long one", "second", "", "fourth, longer than the first one"] {
            let before = std::fs::read_to_string(&path).ok();
            replace(&path, &spare, content.as_bytes()).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
            assert_eq!(std::fs::read_to_string(&spare).ok(), before);
        }
        // What a killed process has half written.
        std::fs::write(&spare, "x".repeat(100)).unwrap();
        replace(&path, &spare, b"fifth").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "fifth");
    }
}
