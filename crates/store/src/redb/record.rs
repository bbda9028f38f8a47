//! The bytes of a row. Integers are little endian.

use crate::store::Change;
use bytes::Bytes;
use std::sync::Arc;

/// `revision ++ value`.
pub fn encode_current(revision: u64, value: &[u8]) -> Vec<u8> {
    let mut row = Vec::with_capacity(8 + value.len());
    row.extend_from_slice(&revision.to_le_bytes());
    row.extend_from_slice(value);
    row
}

/// The revision and value of a current row; `None` if it is too short to be one.
pub fn decode_current(row: &[u8]) -> Option<(u64, &[u8])> {
    let (head, value) = row.split_first_chunk::<8>()?;
    Some((u64::from_le_bytes(*head), value))
}

/// `deleted(1) ++ previous(8) ++ at(8) ++ key length(4) ++ key ++ value`.
pub fn encode_change(change: &Change) -> Vec<u8> {
    let key = change.key.as_bytes();
    let mut row = Vec::with_capacity(21 + key.len() + change.value.len());
    row.push(u8::from(change.deleted));
    row.extend_from_slice(&change.previous.to_le_bytes());
    row.extend_from_slice(&change.at.to_le_bytes());
    row.extend_from_slice(&u32::try_from(key.len()).unwrap_or(u32::MAX).to_le_bytes());
    row.extend_from_slice(key);
    row.extend_from_slice(&change.value);
    row
}

/// The change of a log row; `None` if it is malformed.
pub fn decode_change(revision: u64, row: &[u8]) -> Option<Change> {
    let (deleted, rest) = row.split_first()?;
    let (previous, rest) = rest.split_first_chunk::<8>()?;
    let (at, rest) = rest.split_first_chunk::<8>()?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let (key, value) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    Some(Change {
        revision,
        key: Arc::from(std::str::from_utf8(key).ok()?),
        previous: u64::from_le_bytes(*previous),
        deleted: *deleted != 0,
        value: Bytes::copy_from_slice(value),
        at: u64::from_le_bytes(*at),
    })
}

/// When a change was made, without reading the rest of it.
pub fn change_time(row: &[u8]) -> Option<u64> {
    row.get(9..17)?.first_chunk::<8>().map(|at| u64::from_le_bytes(*at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_read_back_as_they_were_written() {
        let change = Change {
            revision: 7,
            key: "/pods/a/b".into(),
            previous: 3,
            deleted: true,
            value: Bytes::from_static(b"{}"),
            at: 1_800_000_000,
        };
        let row = encode_change(&change);
        assert_eq!(change_time(&row), Some(change.at));
        assert_eq!(decode_change(7, &row), Some(change));
        assert_eq!(decode_current(&encode_current(9, b"x")), Some((9, &b"x"[..])));
    }

    #[test]
    fn short_rows_are_refused() {
        assert_eq!(decode_current(b"1234567"), None);
        assert_eq!(decode_change(1, &[0; 20]), None);
        let mut row = vec![0; 21];
        row[17] = 9;
        assert_eq!(decode_change(1, &row), None);
    }
}
