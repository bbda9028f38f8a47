//! The bytes of one commit in the journal. Integers are little endian.
//!
//! ```text
//! magic 4 | checksum 4 | length of the body 4 | changes 4 | first revision 8 | seconds since 1970 8
//! per change: deleted 1 | expires 8 | previous 8 | length of key 4 | length of value 4 | key | value
//! zeros up to a multiple of 8
//! ```

use super::record::Batch;
use crate::store::Change;
use bytes::Bytes;
use std::sync::Arc;

/// How every frame begins.
pub const MAGIC: [u8; 4] = *b"TrJ1";
const HEAD: usize = 32;
const CHANGE_HEAD: usize = 25;
/// Frames begin at multiples of this.
pub const ALIGN: usize = 8;

/// How many bytes of a frame a change will take.
pub fn room(key: &str, value: usize) -> usize {
    CHANGE_HEAD + key.len() + value
}

/// The bytes that are needed around the changes of a frame at most.
pub const OVERHEAD: usize = HEAD + ALIGN;

/// Appends the frame of a batch, which is not empty.
pub fn encode(out: &mut Vec<u8>, batch: &Batch) {
    let start = out.len();
    let (first, at) = batch.changes.first().map_or((0, 0), |c| (c.revision, c.at));
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(&number(batch.changes.len()));
    out.extend_from_slice(&first.to_le_bytes());
    out.extend_from_slice(&at.to_le_bytes());
    for (change, expires) in batch.changes.iter().zip(&batch.expires) {
        out.push(u8::from(change.deleted));
        out.extend_from_slice(&expires.to_le_bytes());
        out.extend_from_slice(&change.previous.to_le_bytes());
        out.extend_from_slice(&number(change.key.len()));
        out.extend_from_slice(&number(change.value.len()));
        out.extend_from_slice(change.key.as_bytes());
        out.extend_from_slice(&change.value);
    }
    let body = number(out.len() - start - HEAD);
    out[start + 8..start + 12].copy_from_slice(&body);
    let sum = crc32fast::hash(&out[start + 8..]);
    out[start + 4..start + 8].copy_from_slice(&sum.to_le_bytes());
    out.resize(start + (out.len() - start).next_multiple_of(ALIGN), 0);
}

fn number(n: usize) -> [u8; 4] {
    u32::try_from(n).unwrap_or(u32::MAX).to_le_bytes()
}

/// The frame at the beginning of the bytes and how many it takes; `None` if there is no whole one.
pub fn decode(bytes: &[u8]) -> Option<(Batch, usize)> {
    let mut head = Reader(bytes.get(..HEAD)?);
    if head.take(4)? != MAGIC {
        return None;
    }
    let sum = head.u32()?;
    let (length, count) = (head.u32()? as usize, head.u32()? as usize);
    let (first, at) = (head.u64()?, head.u64()?);
    let end = HEAD.checked_add(length)?;
    if crc32fast::hash(bytes.get(8..end)?) != sum {
        return None;
    }
    let mut body = Reader(&bytes[HEAD..end]);
    let mut changes = Vec::with_capacity(count.min(length / CHANGE_HEAD));
    let mut expires = Vec::with_capacity(changes.capacity());
    for i in 0..count {
        let deleted = body.take(1)? != [0];
        expires.push(body.u64()?);
        let previous = body.u64()?;
        let (key, value) = (body.u32()? as usize, body.u32()? as usize);
        let key = Arc::from(std::str::from_utf8(body.take(key)?).ok()?);
        let value = Bytes::copy_from_slice(body.take(value)?);
        let revision = first.checked_add(i as u64)?;
        changes.push(Change { revision, key, previous, deleted, value, at });
    }
    let whole = body.0.is_empty() && !changes.is_empty();
    whole.then(|| (Batch { changes: changes.into(), expires }, end.next_multiple_of(ALIGN)))
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(taken)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch() -> Batch {
        let change = |revision, deleted, value: &'static [u8]| Change {
            revision,
            key: "/pods/a/b".into(),
            previous: 3,
            deleted,
            value: Bytes::from_static(value),
            at: 1_800_000_000,
        };
        Batch { changes: [change(7, false, b"{}"), change(8, true, b"")].into(), expires: vec![0, 9] }
    }

    #[test]
    fn frames_read_back_as_they_were_written() {
        let mut bytes = Vec::new();
        encode(&mut bytes, &batch());
        let one = bytes.len();
        encode(&mut bytes, &batch());
        assert_eq!((one % ALIGN, bytes.len()), (0, 2 * one));
        assert_eq!(decode(&bytes), Some((batch(), one)));
        assert_eq!(decode(&bytes[one..]), Some((batch(), one)));
    }

    #[test]
    fn a_frame_with_any_wrong_or_missing_byte_is_none() {
        let mut bytes = Vec::new();
        encode(&mut bytes, &batch());
        let body = HEAD + 2 * room("/pods/a/b", 0) + 2;
        for at in 0..body {
            let mut broken = bytes.clone();
            broken[at] ^= 1;
            assert_eq!(decode(&broken), None, "byte {at}");
            assert_eq!(decode(&bytes[..at]), None, "length {at}");
        }
    }
}
