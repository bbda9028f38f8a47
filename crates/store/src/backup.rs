//! A store in a file: everything at one revision, checksummed.
//!
//! ```text
//! "TRINESNAP" version 1 | revision 8 | entries 8
//! per entry: revision 8 | expires 8 | length of key 4 | length of value 4 | key | value
//! SHA-256 of all of it, 32
//! ```
//! Integers are little endian.

use crate::store::{Entry, Snapshot};
use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;

const MAGIC: &[u8; 10] = b"TRINESNAP\x01";
/// No key or value is larger.
const LARGEST: u32 = 16 << 20;

/// Why a snapshot cannot be saved or read.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The file cannot be read or written.
    #[error("the snapshot cannot be {call}")]
    Io {
        /// `read` or `written`.
        call: &'static str,
        /// Why.
        source: io::Error,
    },
    /// It is no snapshot, or of another version.
    #[error("the file is no snapshot that this program reads")]
    Foreign,
    /// It is not what was saved.
    #[error("the snapshot is damaged: its checksum does not match")]
    Damaged,
}

fn read_error(source: io::Error) -> BackupError {
    match source.kind() {
        // It is shorter than it says of itself.
        io::ErrorKind::UnexpectedEof => BackupError::Damaged,
        _ => BackupError::Io { call: "read", source },
    }
}

/// Writes a snapshot.
///
/// # Errors
/// What the writer says.
pub fn encode(snapshot: &Snapshot, to: impl Write) -> io::Result<()> {
    let mut to = Hashing { inner: to, hash: Sha256::new() };
    to.write_all(MAGIC)?;
    to.write_all(&snapshot.revision.to_le_bytes())?;
    to.write_all(&(snapshot.entries.len() as u64).to_le_bytes())?;
    for entry in &snapshot.entries {
        to.write_all(&entry.revision.to_le_bytes())?;
        to.write_all(&entry.expires.to_le_bytes())?;
        for length in [entry.key.len(), entry.value.len()] {
            let length = u32::try_from(length).map_err(io::Error::other)?;
            to.write_all(&length.to_le_bytes())?;
        }
        to.write_all(entry.key.as_bytes())?;
        to.write_all(&entry.value)?;
    }
    let sum = to.hash.finalize();
    to.inner.write_all(&sum)
}

/// Reads a snapshot and checks it.
///
/// # Errors
/// [`BackupError`]
pub fn decode(from: impl Read) -> Result<Snapshot, BackupError> {
    let mut from = Hashing { inner: from, hash: Sha256::new() };
    let mut magic = [0; MAGIC.len()];
    from.read_exact(&mut magic).map_err(|_| BackupError::Foreign)?;
    if magic != *MAGIC {
        return Err(BackupError::Foreign);
    }
    let (revision, count) = (from.u64()?, from.u64()?);
    let mut entries = Vec::new();
    for _ in 0..count {
        let (revision, expires) = (from.u64()?, from.u64()?);
        let (key, value) = (from.u32()?, from.u32()?);
        let key = String::from_utf8(from.bytes(key)?).map_err(|_| BackupError::Damaged)?;
        let value = Bytes::from(from.bytes(value)?);
        entries.push(Entry { key: key.into(), revision, expires, value });
    }
    let sum = from.hash.finalize();
    let mut said = [0; 32];
    from.inner.read_exact(&mut said).map_err(read_error)?;
    if sum[..] != said {
        return Err(BackupError::Damaged);
    }
    Ok(Snapshot { entries, revision, compacted: revision })
}

/// Saves a snapshot: the file is there when it is whole and durable, not before. An older one is replaced.
///
/// # Errors
/// [`BackupError::Io`]
pub fn save(snapshot: &Snapshot, path: &Path) -> Result<(), BackupError> {
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let write = || -> io::Result<()> {
        let mut out = BufWriter::new(std::fs::File::create(&partial)?);
        encode(snapshot, &mut out)?;
        out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        std::fs::rename(&partial, path)
    };
    write().map_err(|source| {
        let _ = std::fs::remove_file(&partial);
        BackupError::Io { call: "written", source }
    })
}

/// Reads a file of [`save`].
///
/// # Errors
/// [`BackupError`]
pub fn load(path: &Path) -> Result<Snapshot, BackupError> {
    let file = std::fs::File::open(path).map_err(|source| BackupError::Io { call: "read", source })?;
    decode(BufReader::new(file))
}

struct Hashing<T> {
    inner: T,
    hash: Sha256,
}

impl<T: Write> Write for Hashing<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.inner.write(bytes)?;
        self.hash.update(&bytes[..n]);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<T: Read> Hashing<T> {
    fn read_exact(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        self.inner.read_exact(bytes)?;
        self.hash.update(bytes);
        Ok(())
    }

    fn u64(&mut self) -> Result<u64, BackupError> {
        let mut bytes = [0; 8];
        self.read_exact(&mut bytes).map_err(read_error)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn u32(&mut self) -> Result<u32, BackupError> {
        let mut bytes = [0; 4];
        self.read_exact(&mut bytes).map_err(read_error)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn bytes(&mut self, length: u32) -> Result<Vec<u8>, BackupError> {
        if length > LARGEST {
            return Err(BackupError::Damaged);
        }
        let mut bytes = vec![0; length as usize];
        self.read_exact(&mut bytes).map_err(read_error)?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_reads_back_and_any_damage_is_found() {
        let entry = |key: &str, revision| Entry {
            key: key.into(),
            revision,
            expires: revision * 2,
            value: Bytes::from_static(b"{}"),
        };
        let snapshot = Snapshot { entries: vec![entry("/a", 3), entry("/b", 7)], revision: 9, compacted: 9 };
        let mut bytes = Vec::new();
        encode(&snapshot, &mut bytes).unwrap();
        let read = decode(&bytes[..]).unwrap();
        assert_eq!((read.entries, read.revision), (snapshot.entries, 9));
        for at in 0..bytes.len() {
            let mut broken = bytes.clone();
            broken[at] ^= 0x10;
            assert!(decode(&broken[..]).is_err(), "byte {at}");
            assert!(decode(&bytes[..at]).is_err(), "length {at}");
        }
    }
}
