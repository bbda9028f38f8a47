//! Sizes: for people to read, and as a request gives them.

use std::fmt;

use trine_contracts::csi::CapacityRange;

use crate::error::Cause;

/// Sizes are multiples of a sector, bytes.
pub const GRANULE: u64 = 4096;

/// The smallest volume, bytes: the smallest ext4.
pub const SMALLEST: u64 = 1 << 20;

/// The size of a volume whose request names none, bytes.
pub const DEFAULT: u64 = 1 << 30;

/// Bytes, shown in the largest binary unit in which they are a short number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        let (mut whole, mut rest, mut unit) = (self.0, 0, 0);
        while whole >= 1024 && unit + 1 < UNITS.len() {
            rest = whole % 1024;
            whole /= 1024;
            unit += 1;
        }
        match rest * 10 / 1024 {
            0 => write!(f, "{whole} {}", UNITS[unit]),
            tenth => write!(f, "{whole}.{tenth} {}", UNITS[unit]),
        }
    }
}

/// A range of acceptable sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// At least, bytes; 0 if not said.
    pub required: u64,
    /// At most, bytes; `u64::MAX` if not said.
    pub limit: u64,
}

impl Range {
    /// Reads the range of a request.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if it is negative or empty.
    pub fn read(range: Option<&CapacityRange>) -> Result<Self, Cause> {
        let Some(range) = range else { return Ok(Self { required: 0, limit: u64::MAX }) };
        let bytes = |value: i64, name: &str| {
            u64::try_from(value).map_err(|_| Cause::Invalid(format!("{name} is negative ({value})")))
        };
        let required = bytes(range.required_bytes, "required_bytes")?;
        let limit = match bytes(range.limit_bytes, "limit_bytes")? {
            0 => u64::MAX,
            limit => limit,
        };
        if required > limit {
            let text = format!("at least {} and at most {} are asked for", Bytes(required), Bytes(limit));
            return Err(Cause::Invalid(text));
        }
        Ok(Self { required, limit })
    }

    /// The size that fits: what is required, in whole sectors.
    ///
    /// # Errors
    /// `OUT_OF_RANGE` if no size fits.
    pub fn choose(self) -> Result<u64, Cause> {
        let wanted = if self.required == 0 { DEFAULT.min(self.limit) } else { self.required };
        if wanted < SMALLEST {
            let text = format!("{} is less than the smallest volume ({})", Bytes(wanted), Bytes(SMALLEST));
            return Err(Cause::Size(text));
        }
        if self.required == 0 {
            return Ok(wanted / GRANULE * GRANULE);
        }
        let rounded = wanted.checked_next_multiple_of(GRANULE).filter(|bytes| *bytes <= self.limit);
        rounded.ok_or_else(|| {
            Cause::Size(format!("no multiple of {GRANULE} bytes lies in {} to {} bytes", wanted, self.limit))
        })
    }

    /// Whether `bytes` is acceptable.
    #[must_use]
    pub fn contains(self, bytes: u64) -> bool {
        self.required <= bytes && bytes <= self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    #[test]
    fn sizes_read_well() {
        for (bytes, text) in [
            (0, "0 B"),
            (4096, "4 KiB"),
            (1 << 30, "1 GiB"),
            (3 << 29, "1.5 GiB"),
            (10 << 40, "10 TiB"),
            (u64::MAX, "15.9 EiB"),
        ] {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
    }

    #[test]
    fn a_size_is_what_was_asked_in_whole_sectors_or_an_error() {
        for (name, required, limit, expected) in [
            ("nothing said", 0, 0, Ok(DEFAULT)),
            ("exact", 1 << 30, 1 << 30, Ok(1 << 30)),
            ("rounded up", (1 << 30) + 1, 0, Ok((1 << 30) + 4096)),
            ("no room to round", (1 << 30) + 1, (1 << 30) + 2, Err(Code::OutOfRange)),
            ("only a limit", 0, (5 << 20) + 1, Ok(5 << 20)),
            ("too small", 4096, 0, Err(Code::OutOfRange)),
            ("limit too small", 0, 4096, Err(Code::OutOfRange)),
            ("negative", -1, 0, Err(Code::InvalidArgument)),
            ("upside down", 2 << 20, 1 << 20, Err(Code::InvalidArgument)),
            ("huge", i64::MAX, 0, Ok(1 << 63)),
        ] {
            let range = CapacityRange { required_bytes: required, limit_bytes: limit };
            let got = Range::read(Some(&range)).and_then(Range::choose);
            assert_eq!(got.map_err(|cause| cause.code()), expected, "{name}");
        }
    }
}
