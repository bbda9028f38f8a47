//! Quantities: `100m`, `1.5Gi`, `2e3`. Kept in billionths as an integer, so sums are exact.
//! Source: apimachinery `resource.Quantity` (suffixes, rounding up, canonical form).

use serde_json::Value;
use std::cmp::Ordering;
use std::fmt;
use std::ops::{Add, Sub};
use std::str::FromStr;

const NANO: i128 = 1_000_000_000;
/// What is above this is capped, as upstream does: the largest signed 64-bit integer.
const MAX: i128 = i64::MAX as i128 * NANO;
/// More decimal digits than this are certainly above the cap.
const MAX_DIGITS: usize = 30;
const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
const BINARY: [(&str, u32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];

/// How a quantity is written; kept from the text that it was read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// Powers of ten: `k`, `M`.
    Decimal,
    /// Powers of 1024: `Ki`, `Mi`.
    Binary,
    /// `1e3`.
    Exponent,
}

/// An amount of something.
#[derive(Debug, Clone, Copy)]
pub struct Quantity {
    nano: i128,
    format: Format,
}

/// A text that is no quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
pub struct QuantityError;

impl Quantity {
    /// So many thousandths.
    #[must_use]
    pub fn from_milli(milli: i128) -> Self {
        Self { nano: milli.saturating_mul(1_000_000), format: Format::Decimal }
    }

    /// So many whole ones, written in powers of 1024 (bytes).
    #[must_use]
    pub fn from_bytes(bytes: u64) -> Self {
        Self { nano: i128::from(bytes) * NANO, format: Format::Binary }
    }

    /// So many billionths, written as this one is.
    #[must_use]
    pub fn with_nano(self, nano: i128) -> Self {
        Self { nano, ..self }
    }

    /// Billionths.
    #[must_use]
    pub fn nano(&self) -> i128 {
        self.nano
    }

    /// Thousandths, rounded up (away from zero), as upstream's `MilliValue`.
    #[must_use]
    pub fn milli(&self) -> i128 {
        divide_up(self.nano, 1_000_000)
    }

    /// Whole ones, rounded up, as upstream's `Value`.
    #[must_use]
    pub fn value(&self) -> i128 {
        divide_up(self.nano, NANO)
    }

    /// True for zero.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.nano == 0
    }

    /// True below zero.
    #[must_use]
    pub fn is_negative(&self) -> bool {
        self.nano < 0
    }
}

impl Quantity {
    /// A sum is written as its left part, unless that is nothing.
    fn joint_format(self, other: Self) -> Format {
        if self.is_zero() { other.format } else { self.format }
    }
}

/// The quantity in a JSON value: text or a number.
///
/// # Errors
/// Any other value, and text that is no quantity.
pub fn from_value(value: &Value) -> Result<Quantity, QuantityError> {
    match value {
        Value::String(text) => text.parse(),
        Value::Number(number) => number.to_string().parse(),
        _ => Err(QuantityError),
    }
}

/// Division that rounds away from zero.
fn divide_up(number: i128, by: i128) -> i128 {
    let (whole, rest) = (number / by, number % by);
    if rest == 0 { whole } else { whole + number.signum() }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nano == other.nano
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nano.cmp(&other.nano)
    }
}

impl Add for Quantity {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self { nano: self.nano.saturating_add(other.nano).clamp(-MAX, MAX), format: self.joint_format(other) }
    }
}

impl Sub for Quantity {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self { nano: self.nano.saturating_sub(other.nano).clamp(-MAX, MAX), format: self.joint_format(other) }
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let number_end = text
            .char_indices()
            .find(|(i, c)| !(c.is_ascii_digit() || *c == '.' || (*i == 0 && matches!(c, '+' | '-'))))
            .map_or(text.len(), |(i, _)| i);
        let (number, suffix) = text.split_at(number_end);
        let (negative, digits) = match number.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, number.strip_prefix('+').unwrap_or(number)),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let only_digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
        if (whole.is_empty() && fraction.is_empty()) || !only_digits(whole) || !only_digits(fraction) {
            return Err(QuantityError);
        }
        let (multiplier, power, format) = scale(suffix)?;
        let nano = scaled(whole, fraction, multiplier, power)?;
        Ok(Self { nano: if negative { -nano } else { nano }, format })
    }
}

/// The binary multiplier, the power of ten, and the format of a suffix.
fn scale(suffix: &str) -> Result<(i128, i32, Format), QuantityError> {
    if let Some((_, power)) = DECIMAL.iter().find(|(s, _)| *s == suffix) {
        return Ok((1, *power, Format::Decimal));
    }
    if let Some((_, bits)) = BINARY.iter().find(|(s, _)| *s == suffix) {
        return Ok((1 << bits, 0, Format::Binary));
    }
    let exponent = suffix.strip_prefix(['e', 'E']).ok_or(QuantityError)?;
    let power: i32 = exponent.strip_prefix('+').unwrap_or(exponent).parse().map_err(|_| QuantityError)?;
    if power.abs() > 18 {
        return Err(QuantityError);
    }
    Ok((1, power, Format::Exponent))
}

/// `whole.fraction * multiplier * 10^power` in billionths; finer parts are rounded up.
fn scaled(whole: &str, fraction: &str, multiplier: i128, power: i32) -> Result<i128, QuantityError> {
    // Digits of a fraction beyond the 18th after a billionth cannot matter except that they are there.
    let fraction = fraction.trim_end_matches('0');
    let (kept, rest) = fraction.split_at(fraction.len().min(18));
    let whole = whole.trim_start_matches('0');
    if whole.len() > MAX_DIGITS - 10 {
        return Ok(MAX);
    }
    let digits: i128 = format!("0{whole}{kept}").parse().map_err(|_| QuantityError)?;
    let digits = digits * 10 + i128::from(!rest.is_empty());
    let exponent = power + 9 - 1 - i32::try_from(kept.len()).map_err(|_| QuantityError)?;
    let Some(product) = digits.checked_mul(multiplier) else { return Ok(MAX) };
    let ten = |n: u32| 10i128.checked_pow(n);
    let nano = if exponent >= 0 {
        ten(exponent.unsigned_abs()).and_then(|p| product.checked_mul(p)).unwrap_or(MAX)
    } else {
        ten(exponent.unsigned_abs()).map_or(i128::from(product > 0), |p| divide_up(product, p))
    };
    Ok(nano.min(MAX))
}

impl fmt::Display for Quantity {
    /// The canonical form: the largest suffix without a fraction.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nano == 0 {
            return f.write_str("0");
        }
        if self.format == Format::Binary && self.nano % NANO == 0 && (self.nano / NANO).abs() >= 1024 {
            let whole = self.nano / NANO;
            let fits = BINARY.iter().rev().find(|(_, bits)| whole % (1i128 << bits) == 0);
            return match fits {
                Some((suffix, bits)) => write!(f, "{}{suffix}", whole >> bits),
                None => write!(f, "{whole}"),
            };
        }
        let fits = DECIMAL.iter().rev().find(|(_, power)| {
            let unit = 10i128.pow((power + 9).unsigned_abs());
            self.nano % unit == 0
        });
        let (suffix, power) = fits.copied().unwrap_or(("n", -9));
        let number = self.nano / 10i128.pow((power + 9).unsigned_abs());
        match (self.format, power) {
            (Format::Exponent, p) if p != 0 => write!(f, "{number}e{p}"),
            _ => write!(f, "{number}{suffix}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_exactly_and_written_in_canonical_form() {
        let rows = [
            ("0", 0, "0"),
            ("100m", 100, "100m"),
            ("0.1", 100, "100m"),
            ("1", 1000, "1"),
            ("1500m", 1500, "1500m"),
            ("1k", 1_000_000, "1k"),
            ("1000", 1_000_000, "1k"),
            ("1Ki", 1_024_000, "1Ki"),
            ("1.5Gi", 1_610_612_736_000, "1536Mi"),
            ("2048Mi", 2_147_483_648_000, "2Gi"),
            ("512Ki", 524_288_000, "512Ki"),
            ("1e3", 1_000_000, "1e3"),
            ("-5", -5000, "-5"),
            ("+5", 5000, "5"),
            (".5", 500, "500m"),
            ("100M", 100_000_000_000, "100M"),
        ];
        for (text, milli, canonical) in rows {
            let quantity: Quantity = text.parse().unwrap();
            assert_eq!(quantity.milli(), milli, "{text}");
            assert_eq!(quantity.to_string(), canonical, "{text}");
        }
        for text in ["", "m", "1.2.3", "1x", "1 Gi", "1gi", "--1", "1e", ".", "1e99"] {
            assert!(text.parse::<Quantity>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn extremes_and_mixed_forms_have_the_canonical_form_of_the_api() {
        let rows = [
            ("0Mi", "0"),
            ("-0", "0"),
            ("5.", "5"),
            ("0.50", "500m"),
            ("100000", "100k"),
            ("1024", "1024"),
            ("1024Ki", "1Mi"),
            ("0.5Ki", "512"),
            ("1000Ki", "1000Ki"),
            ("2.0001Ki", "2048102400u"),
            ("1E", "1E"),
            ("1E3", "1e3"),
            ("1e-3", "1e-3"),
            ("12e1", "120"),
            ("100n", "100n"),
            ("0.1n", "1n"),
            ("0.0000000000000000000000000000000000000000001", "1n"),
            ("-1.5", "-1500m"),
            ("-2Ki", "-2Ki"),
            ("9Ei", "9223372036854775807"),
            ("123456789012345678901234567890123456789012345678901234567890", "9223372036854775807"),
        ];
        for (text, canonical) in rows {
            let quantity: Quantity = text.parse().unwrap_or_else(|_| panic!("{text}"));
            assert_eq!(quantity.to_string(), canonical, "{text}");
            assert_eq!(canonical.parse::<Quantity>().unwrap(), quantity, "{text}");
        }
        for text in ["-", "Mi", "1mi", "1K", "1KiB", "1e1.5", "0x10", "1--", "1ee3", " 1"] {
            assert!(text.parse::<Quantity>().is_err(), "{text:?}");
        }
        assert!(from_value(&Value::Null).is_err());
        assert_eq!(from_value(&serde_json::json!(0.25)).unwrap().to_string(), "250m");
    }

    #[test]
    fn sums_are_written_as_their_left_part() {
        let q = |text: &str| text.parse::<Quantity>().unwrap();
        for (a, b, sum, difference) in [
            ("1", "500m", "1500m", "500m"),
            ("1Gi", "1Mi", "1025Mi", "1023Mi"),
            ("0", "2Ki", "2Ki", "-2Ki"),
            ("1Ki", "1k", "2024", "24"),
            ("1Mi", "1Mi", "2Mi", "0"),
        ] {
            assert_eq!((q(a) + q(b)).to_string(), sum, "{a} + {b}");
            assert_eq!((q(a) - q(b)).to_string(), difference, "{a} - {b}");
        }
    }

    #[test]
    fn what_is_finer_than_asked_is_rounded_up() {
        let quantity: Quantity = "1u".parse().unwrap();
        assert_eq!((quantity.milli(), quantity.value()), (1, 1));
        assert_eq!("0.0000000001".parse::<Quantity>().unwrap().nano(), 1);
    }

    #[test]
    fn sums_and_order_do_not_depend_on_the_format() {
        let sum = "1Gi".parse::<Quantity>().unwrap() + "1G".parse().unwrap();
        assert_eq!(sum.value(), 2_073_741_824);
        assert!("1Gi".parse::<Quantity>().unwrap() > "1G".parse().unwrap());
        assert_eq!("1000m".parse::<Quantity>().unwrap(), "1".parse().unwrap());
    }
}
