//! Digests, and readers that take one on the way.

use std::fmt;
use std::io::{self, Read};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

/// `sha256:` and 64 lower-case hex digits; nothing else can be one, so it is safe in a path.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Digest(String);

impl Digest {
    /// None unless it is a well-formed sha256.
    pub fn parse(text: &str) -> Option<Self> {
        let hex = text.strip_prefix("sha256:")?;
        let good = hex.len() == 64 && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        good.then(|| Self(text.to_owned()))
    }

    /// The digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        let mut hasher = Hasher::default();
        hasher.update(bytes);
        hasher.finish()
    }

    /// The digits alone.
    pub fn hex(&self) -> &str {
        &self.0["sha256:".len()..]
    }

    /// With its algorithm in front.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Digest {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text).ok_or_else(|| format!("{text:?} is no sha256 digest"))
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.0
    }
}

/// Takes a sha256 piece by piece.
pub(crate) struct Hasher {
    context: ring::digest::Context,
    bytes: u64,
}

impl Default for Hasher {
    fn default() -> Self {
        Self { context: ring::digest::Context::new(&ring::digest::SHA256), bytes: 0 }
    }
}

impl Hasher {
    pub fn update(&mut self, bytes: &[u8]) {
        self.context.update(bytes);
        self.bytes += bytes.len() as u64;
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn finish(self) -> Digest {
        Digest(format!("sha256:{}", hex::encode(self.context.finish())))
    }
}

/// A reader that hashes what passes; the digest is asked of its [`Tap`], for the reader itself may be deep inside
/// a decoder.
pub(crate) struct HashingReader<R> {
    inner: R,
    tap: Tap,
}

/// The other end of a [`HashingReader`].
#[derive(Clone, Default)]
pub(crate) struct Tap(Arc<Mutex<Hasher>>);

impl Tap {
    /// The digest and the number of bytes so far; starts anew.
    pub fn take(&self) -> (Digest, u64) {
        let hasher = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let bytes = hasher.bytes();
        (hasher.finish(), bytes)
    }
}

impl<R: Read> HashingReader<R> {
    pub fn new(inner: R) -> (Self, Tap) {
        let tap = Tap::default();
        (Self { inner, tap: tap.clone() }, tap)
    }
}

impl<R: Read> Read for HashingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.tap.0.lock().unwrap_or_else(PoisonError::into_inner).update(&buffer[..n]);
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_lower_case_sha256_is_a_digest() {
        assert!(Digest::parse(Digest::of(b"").as_str()).is_some());
        for bad in ["", "sha256:", "sha256:../x", "sha512:00", &format!("sha256:{}", "A".repeat(64))] {
            assert!(Digest::parse(bad).is_none(), "{bad}");
        }
        assert_eq!(Digest::of(b"").hex(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }

    #[test]
    fn a_tap_sees_what_the_reader_passed_on() {
        let (mut reader, tap) = HashingReader::new(&b"hello"[..]);
        io::copy(&mut reader, &mut io::sink()).unwrap();
        assert_eq!(tap.take(), (Digest::of(b"hello"), 5));
    }
}
