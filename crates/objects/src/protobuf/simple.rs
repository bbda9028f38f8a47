//! Values that are messages on the wire and something simpler in JSON: times, quantities, integers or strings, raw JSON.

use serde_json::{Number, Value};

use super::Error;
use super::wire::{Raw, Reader, put_bytes, put_number};
use crate::{quantity, time};

const MICRO: i64 = 1_000_000;
/// 0001-01-01T00:00:00Z, what Go calls the zero time; an empty message.
const ZERO_TIME: i64 = -62_135_596_800;
/// 9999-12-31T23:59:59Z, the last that RFC 3339 can write.
const LAST_TIME: i64 = 253_402_300_799;

fn bad(field: &'static str, why: impl Into<String>) -> Error {
    Error::Value { field, why: why.into() }
}

/// Text from bytes.
pub(super) fn text(field: &'static str, bytes: &[u8]) -> Result<String, Error> {
    std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| bad(field, "invalid UTF-8"))
}

/// A number as JSON has it: without fraction where there is none.
pub(super) fn double(field: &'static str, value: f64) -> Result<Value, Error> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if value.fract() == 0.0 && value.abs() <= EXACT {
        return Ok((value as i64).into());
    }
    Number::from_f64(value).map(Value::Number).ok_or_else(|| bad(field, "not a finite number"))
}

/// `Timestamp` {1: seconds, 2: nanoseconds} as text; null for the zero time.
pub(super) fn read_time(field: &'static str, bytes: &[u8], micro: bool) -> Result<Value, Error> {
    let (mut seconds, mut nanos) = (0_i64, 0_i64);
    let mut reader = Reader::new(bytes);
    while let Some((number, raw)) = reader.field()? {
        match (number, raw) {
            (1, Raw::Varint(v)) => seconds = v as i64,
            (2, Raw::Varint(v)) => nanos = v as i32 as i64,
            (1 | 2, raw) => return Err(Error::WireType { wire: raw.wire(), field }),
            _ => {}
        }
    }
    if bytes.is_empty() || (seconds == ZERO_TIME && nanos == 0) {
        return Ok(Value::Null);
    }
    if !(ZERO_TIME..=LAST_TIME).contains(&seconds) || !(0..1_000_000_000).contains(&nanos) {
        return Err(bad(field, format!("no time: {seconds} seconds, {nanos} nanoseconds")));
    }
    Ok(if micro { time::format_micro(seconds * MICRO + nanos / 1000) } else { time::format(seconds) }.into())
}

/// The content of a `Timestamp`; nothing for the zero time.
pub(super) fn write_time(
    out: &mut Vec<u8>,
    field: &'static str,
    value: &Value,
    micro: bool,
) -> Result<(), Error> {
    let nanos = match value {
        Value::Null => return Ok(()),
        Value::String(text) => time::parse_nanos(text),
        _ => None,
    };
    let nanos = nanos.ok_or_else(|| bad(field, format!("no time: {value}")))?;
    let seconds = nanos.div_euclid(1_000_000_000) as i64;
    let micros = if micro { nanos.rem_euclid(1_000_000_000) as u64 / 1000 * 1000 } else { 0 };
    if seconds != ZERO_TIME || micros != 0 {
        put_number(out, 1, seconds as u64);
        put_number(out, 2, micros);
    }
    Ok(())
}

/// The only field of a message, of bytes and of number 1: quantities, raw JSON.
pub(super) fn only_bytes<'a>(field: &'static str, bytes: &'a [u8]) -> Result<Option<&'a [u8]>, Error> {
    let mut found = None;
    let mut reader = Reader::new(bytes);
    while let Some((number, raw)) = reader.field()? {
        match (number, raw) {
            (1, Raw::Bytes(bytes)) => found = Some(bytes),
            (1, raw) => return Err(Error::WireType { wire: raw.wire(), field }),
            _ => {}
        }
    }
    Ok(found)
}

/// The content of a quantity; the zero quantity for null.
pub(super) fn write_quantity(out: &mut Vec<u8>, field: &'static str, value: &Value) -> Result<(), Error> {
    if value.is_null() {
        put_bytes(out, 1, b"0");
        return Ok(());
    }
    let quantity = quantity::from_value(value).map_err(|e| bad(field, e.to_string()))?;
    put_bytes(out, 1, quantity.to_string().as_bytes());
    Ok(())
}

/// `IntOrString` {1: whether it is the text, 2: the number, 3: the text}.
pub(super) fn read_int_or_string(field: &'static str, bytes: &[u8]) -> Result<Value, Error> {
    let (mut kind, mut int, mut string) = (0, 0, String::new());
    let mut reader = Reader::new(bytes);
    while let Some((number, raw)) = reader.field()? {
        match (number, raw) {
            (1, Raw::Varint(v)) => kind = v,
            (2, Raw::Varint(v)) => int = v as i32,
            (3, Raw::Bytes(bytes)) => string = text(field, bytes)?,
            (1..=3, raw) => return Err(Error::WireType { wire: raw.wire(), field }),
            _ => {}
        }
    }
    match kind {
        0 => Ok(int.into()),
        1 => Ok(string.into()),
        other => Err(bad(field, format!("neither integer nor string: {other}"))),
    }
}

/// The content of an `IntOrString`; zero for null.
pub(super) fn write_int_or_string(
    out: &mut Vec<u8>,
    field: &'static str,
    value: &Value,
) -> Result<(), Error> {
    let (kind, int, string) = match value {
        Value::Null => (0, 0, ""),
        Value::String(text) => (1, 0, text.as_str()),
        other => {
            let int = other.as_i64().and_then(|n| i32::try_from(n).ok());
            (0, int.ok_or_else(|| bad(field, format!("not a 32-bit integer: {other}")))?, "")
        }
    };
    put_number(out, 1, kind);
    put_number(out, 2, i64::from(int) as u64);
    put_bytes(out, 3, string.as_bytes());
    Ok(())
}

/// JSON from the bytes of a message that holds it raw; null for none.
pub(super) fn read_json(field: &'static str, raw: Option<&[u8]>) -> Result<Value, Error> {
    match raw {
        None | Some([]) => Ok(Value::Null),
        Some(raw) => serde_json::from_slice(raw).map_err(|e| bad(field, format!("no JSON: {e}"))),
    }
}
