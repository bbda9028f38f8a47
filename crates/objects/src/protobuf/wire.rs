//! Numbers, tags and lengths.

use super::Error;

/// Reads a message piece by piece. Nothing is allocated.
#[derive(Debug, Clone)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

/// The value of a field as it lies on the wire.
#[derive(Debug, Clone, Copy)]
pub(super) enum Raw<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32,
    /// A group: obsolete, skipped.
    Group,
}

impl Raw<'_> {
    /// The wire type.
    pub(super) fn wire(&self) -> u8 {
        match self {
            Self::Varint(_) => 0,
            Self::Fixed64(_) => 1,
            Self::Bytes(_) => 2,
            Self::Group => 3,
            Self::Fixed32 => 5,
        }
    }
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next field; `None` at the end.
    pub(super) fn field(&mut self) -> Result<Option<(u32, Raw<'a>)>, Error> {
        if self.is_empty() {
            return Ok(None);
        }
        let (number, wire) = self.tag()?;
        let raw = match wire {
            3 => {
                self.skip_group()?;
                Raw::Group
            }
            4 => return Err(Error::Tag(u64::from(number) << 3 | 4)),
            _ => self.value(number, wire)?,
        };
        Ok(Some((number, raw)))
    }

    pub(super) fn varint(&mut self) -> Result<u64, Error> {
        let mut value = 0_u64;
        for (i, byte) in self.rest.iter().enumerate().take(10) {
            let bits = u64::from(byte & 0x7f);
            if i == 9 && bits > 1 {
                return Err(Error::Overflow);
            }
            value |= bits << (7 * i);
            if byte & 0x80 == 0 {
                self.rest = &self.rest[i + 1..];
                return Ok(value);
            }
        }
        Err(if self.rest.len() < 10 { Error::Truncated } else { Error::Overflow })
    }

    pub(super) fn fixed64(&mut self) -> Result<u64, Error> {
        let (head, rest) = self.rest.split_first_chunk().ok_or(Error::Truncated)?;
        self.rest = rest;
        Ok(u64::from_le_bytes(*head))
    }

    fn tag(&mut self) -> Result<(u32, u8), Error> {
        let tag = self.varint()?;
        match u32::try_from(tag >> 3) {
            Ok(number @ 1..=0x1fff_ffff) => Ok((number, (tag & 7) as u8)),
            _ => Err(Error::Tag(tag)),
        }
    }

    fn value(&mut self, number: u32, wire: u8) -> Result<Raw<'a>, Error> {
        Ok(match wire {
            0 => Raw::Varint(self.varint()?),
            1 => Raw::Fixed64(self.fixed64()?),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| Error::Truncated)?;
                let (bytes, rest) = self.rest.split_at_checked(length).ok_or(Error::Truncated)?;
                self.rest = rest;
                Raw::Bytes(bytes)
            }
            5 => {
                // No field of any kind has this form; it is skipped.
                self.rest = self.rest.get(4..).ok_or(Error::Truncated)?;
                Raw::Fixed32
            }
            _ => return Err(Error::Tag(u64::from(number) << 3 | u64::from(wire))),
        })
    }

    fn skip_group(&mut self) -> Result<(), Error> {
        let mut open = 1_usize;
        while open > 0 {
            if self.is_empty() {
                return Err(Error::Truncated);
            }
            match self.tag()? {
                (_, 3) => open += 1,
                (_, 4) => open -= 1,
                (number, wire) => {
                    self.value(number, wire)?;
                }
            }
        }
        Ok(())
    }
}

/// Appends a number.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a field that is a number.
pub fn put_number(out: &mut Vec<u8>, number: u16, value: u64) {
    put_varint(out, u64::from(number) << 3);
    put_varint(out, value);
}

/// Appends a field of eight bytes.
pub fn put_fixed64(out: &mut Vec<u8>, number: u16, value: u64) {
    put_varint(out, u64::from(number) << 3 | 1);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends a field of bytes.
pub fn put_bytes(out: &mut Vec<u8>, number: u16, bytes: &[u8]) {
    put_varint(out, u64::from(number) << 3 | 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends a field that is a message, written by `inner`.
///
/// # Errors
/// Those of `inner`; what it wrote is left then.
pub fn put_message<E>(
    out: &mut Vec<u8>,
    number: u16,
    inner: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    put_varint(out, u64::from(number) << 3 | 2);
    let begin = out.len();
    inner(out)?;
    // The length is known only now; it is written behind the message and turned in front of it.
    let length = out.len() - begin;
    put_varint(out, length as u64);
    let digits = out.len() - begin - length;
    out[begin..].rotate_right(digits);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive_and_bad_ones_are_refused() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), i64::MAX as u64, u64::MAX] {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            let mut reader = Reader::new(&out);
            assert_eq!(reader.varint().unwrap(), value);
            assert!(reader.is_empty());
        }
        assert!(matches!(Reader::new(&[0x80]).varint(), Err(Error::Truncated)));
        assert!(matches!(Reader::new(&[0xff; 10]).varint(), Err(Error::Overflow)));
        let eleven = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0];
        assert!(matches!(Reader::new(&eleven).varint(), Err(Error::Overflow)));
    }

    #[test]
    fn a_message_gets_its_length_in_front() {
        let mut out = vec![9];
        let long = [7; 200];
        put_message(&mut out, 3, |out| {
            put_bytes(out, 1, &long);
            Ok::<(), Error>(())
        })
        .unwrap();
        assert_eq!(out[..7], [9, 0x1a, 0xcb, 1, 0x0a, 0xc8, 1]);
        assert_eq!(out[7..], long);
    }

    #[test]
    fn groups_are_skipped_and_must_end() {
        let mut reader = Reader::new(&[0x0b, 0x13, 0x08, 1, 0x14, 0x0c, 0x10, 5]);
        assert!(matches!(reader.field(), Ok(Some((1, Raw::Group)))));
        assert!(matches!(reader.field(), Ok(Some((2, Raw::Varint(5))))));
        assert!(matches!(Reader::new(&[0x0b, 0x13]).field(), Err(Error::Truncated)));
        assert!(matches!(Reader::new(&[0x0c]).field(), Err(Error::Tag(12))));
        assert!(matches!(Reader::new(&[0x00]).field(), Err(Error::Tag(0))));
        assert!(matches!(Reader::new(&[0x0f]).field(), Err(Error::Tag(15))));
    }
}
