//! Netlink messages as bytes: writing attributes into a growing buffer, and walking over received ones.

/// Netlink pads everything to four bytes.
const ALIGN: usize = 4;
/// Set on the type of an attribute which holds attributes.
const NESTED: u16 = 0x8000;
/// The bits of an attribute's type that are not flags.
const TYPE_MASK: u16 = 0x3fff;
/// Length of `nlmsghdr`.
pub(super) const HEADER: usize = 16;
/// Length of `nfgenmsg`.
pub(super) const GENERIC: usize = 4;

const fn padded(len: usize) -> usize {
    (len + ALIGN - 1) & !(ALIGN - 1)
}

/// Messages being written, one after the other.
#[derive(Debug, Default)]
pub(super) struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    fn pad(&mut self) {
        self.bytes.resize(padded(self.bytes.len()), 0);
    }

    /// Writes one message: `nlmsghdr`, `nfgenmsg`, then what `body` writes.
    pub(super) fn message(&mut self, head: Head, body: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&0u32.to_ne_bytes());
        self.bytes.extend_from_slice(&head.kind.to_ne_bytes());
        self.bytes.extend_from_slice(&head.flags.to_ne_bytes());
        self.bytes.extend_from_slice(&head.sequence.to_ne_bytes());
        self.bytes.extend_from_slice(&0u32.to_ne_bytes());
        self.bytes.extend_from_slice(&[head.family, 0]);
        self.bytes.extend_from_slice(&head.resource.to_be_bytes());
        body(self);
        self.pad();
        let len = u32::try_from(self.bytes.len() - start).unwrap_or(u32::MAX);
        self.bytes[start..start + 4].copy_from_slice(&len.to_ne_bytes());
    }

    /// One attribute with a value as it stands.
    pub(super) fn raw(&mut self, kind: u16, value: &[u8]) {
        let len = u16::try_from(value.len() + 4).unwrap_or(u16::MAX);
        self.bytes.extend_from_slice(&len.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(value);
        self.pad();
    }

    pub(super) fn u8(&mut self, kind: u16, value: u8) {
        self.raw(kind, &[value]);
    }

    /// nftables numbers are big-endian on the wire.
    pub(super) fn u32(&mut self, kind: u16, value: u32) {
        self.raw(kind, &value.to_be_bytes());
    }

    pub(super) fn u64(&mut self, kind: u16, value: u64) {
        self.raw(kind, &value.to_be_bytes());
    }

    /// A string with its terminating zero.
    pub(super) fn text(&mut self, kind: u16, value: &str) {
        let len = u16::try_from(value.len() + 5).unwrap_or(u16::MAX);
        self.bytes.extend_from_slice(&len.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(value.as_bytes());
        self.bytes.push(0);
        self.pad();
    }

    /// An attribute that holds the attributes which `body` writes.
    pub(super) fn nest(&mut self, kind: u16, body: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0, 0]);
        self.bytes.extend_from_slice(&(kind | NESTED).to_ne_bytes());
        body(self);
        let len = u16::try_from(self.bytes.len() - start).unwrap_or(u16::MAX);
        self.bytes[start..start + 2].copy_from_slice(&len.to_ne_bytes());
    }

    /// Sets flags on the message which starts at `offset`.
    pub(super) fn add_flags(&mut self, offset: usize, flags: u16) {
        let old = u16_at(&self.bytes, offset + 6).unwrap_or(0);
        self.bytes[offset + 6..offset + 8].copy_from_slice(&(old | flags).to_ne_bytes());
    }
}

/// The fixed part of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) kind: u16,
    pub(super) flags: u16,
    pub(super) sequence: u32,
    pub(super) family: u8,
    /// `nfgenmsg.res_id`: the subsystem in a batch's first and last message.
    pub(super) resource: u16,
}

/// One received message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message<'a> {
    pub(super) kind: u16,
    pub(super) flags: u16,
    pub(super) sequence: u32,
    pub(super) payload: &'a [u8],
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// The messages in one received datagram; stops at the first that is cut off.
pub(super) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let len = usize::try_from(u32_at(bytes, 0)?).ok()?;
        let message = Message {
            kind: u16_at(bytes, 4)?,
            flags: u16_at(bytes, 6)?,
            sequence: u32_at(bytes, 8)?,
            payload: bytes.get(HEADER..len)?,
        };
        bytes = bytes.get(padded(len)..).unwrap_or_default();
        Some(message)
    })
}

/// The attributes in `bytes`, as (type, value); stops at the first that is cut off.
pub(super) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = usize::from(u16_at(bytes, 0)?);
        let kind = u16_at(bytes, 2)? & TYPE_MASK;
        let value = bytes.get(4..len)?;
        bytes = bytes.get(padded(len)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// The value of the first attribute of type `kind`.
pub(super) fn find(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(k, _)| *k == kind).map(|(_, value)| value)
}

/// A big-endian number.
pub(super) fn number(value: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(value.get(..4)?.try_into().ok()?))
}

/// A string without its terminating zero.
pub(super) fn string(value: &[u8]) -> String {
    let end = value.iter().position(|b| *b == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}
