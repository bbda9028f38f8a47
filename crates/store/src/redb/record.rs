//! What one commit did, and the bytes of a checkpointed row. Integers are little endian.

use crate::store::Change;
use std::sync::Arc;

/// The changes of one commit. All carry the same time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// In the order of their revisions, without a gap.
    pub changes: Arc<[Change]>,
    /// For each change the second since 1970 at which its key expires; 0 for never.
    pub expires: Vec<u64>,
}

impl Batch {
    /// The last revision; 0 if there is none.
    pub fn last(&self) -> u64 {
        self.changes.last().map_or(0, |c| c.revision)
    }

    /// Bytes of keys and values.
    pub fn size(&self) -> usize {
        self.changes.iter().map(|c| c.key.len() + c.value.len()).sum()
    }
}

/// What is kept of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Current<'a> {
    /// Revision of its last modification.
    pub revision: u64,
    /// When it expires, in seconds since 1970; 0 for never.
    pub expires: u64,
    /// Its value.
    pub value: &'a [u8],
}

impl<'a> Current<'a> {
    /// `revision 8 | expires 8 | value`.
    pub fn encode(self) -> Vec<u8> {
        let mut row = Vec::with_capacity(16 + self.value.len());
        row.extend_from_slice(&self.revision.to_le_bytes());
        row.extend_from_slice(&self.expires.to_le_bytes());
        row.extend_from_slice(self.value);
        row
    }

    /// `None` if the row is too short to be one.
    pub fn decode(row: &'a [u8]) -> Option<Self> {
        let (revision, rest) = row.split_first_chunk::<8>()?;
        let (expires, value) = rest.split_first_chunk::<8>()?;
        Some(Self { revision: u64::from_le_bytes(*revision), expires: u64::from_le_bytes(*expires), value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_read_back_as_they_were_written() {
        let row = Current { revision: 9, expires: 7, value: b"x" };
        assert_eq!(Current::decode(&row.encode()), Some(row));
        assert_eq!(Current::decode(&[0; 15]), None);
    }
}
