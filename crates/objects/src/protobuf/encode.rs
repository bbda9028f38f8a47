//! From JSON to bytes.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::simple::{write_int_or_string, write_quantity, write_time};
use super::wire::{put_bytes, put_fixed64, put_message, put_number};
use super::{Error, MAX_DEPTH};
use crate::schema::{Field, Place, Simpler, Ty, Type};

/// Appends the fields of an object.
pub(super) fn message(
    out: &mut Vec<u8>,
    ty: &'static Type,
    map: &Map<String, Value>,
    depth: usize,
) -> Result<(), Error> {
    if depth == MAX_DEPTH {
        return Err(Error::TooDeep);
    }
    Encoder { ty, map, depth }.level(out, ty.wire(), 0)
}

struct Encoder<'a> {
    ty: &'static Type,
    map: &'a Map<String, Value>,
    depth: usize,
}

fn bad(field: &'static str, expected: &str, value: &Value) -> Error {
    let got = match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    };
    Error::Value { field, why: format!("expected {expected}, got {got}") }
}

impl Encoder<'_> {
    fn place(&self, index: u16) -> Option<(&'static Field, Place)> {
        let field = self.ty.fields.get(usize::from(index))?;
        field.place.map(|place| (field, place))
    }

    /// Appends fields whose places share their first `level` numbers; those that share one more lie in a message.
    fn level(&self, out: &mut Vec<u8>, mut indices: &[u16], level: usize) -> Result<(), Error> {
        while let Some((first, after)) = indices.split_first() {
            let at_level = |i: &u16| self.place(*i).and_then(|(_, place)| place.path().get(level).copied());
            let (Some((field, place)), Some(number)) = (self.place(*first), at_level(first)) else {
                indices = after;
                continue;
            };
            if place.path().len() == level + 1 {
                self.field(out, number, field, place)?;
                indices = after;
            } else {
                let count = indices.iter().take_while(|i| at_level(i) == Some(number)).count();
                let (group, after) = indices.split_at(count);
                put_message(out, number, |out| self.level(out, group, level + 1))?;
                indices = after;
            }
        }
        Ok(())
    }

    fn field(
        &self,
        out: &mut Vec<u8>,
        number: u16,
        field: &'static Field,
        place: Place,
    ) -> Result<(), Error> {
        let value = self.map.get(field.name).filter(|v| !v.is_null());
        match (&field.ty, value) {
            (Ty::List(item), Some(Value::Array(list))) if place.wrapped => {
                put_message(out, number, |out| self.list(out, 1, field.name, item, list))
            }
            (Ty::List(item), Some(Value::Array(list))) => self.list(out, number, field.name, item, list),
            (Ty::List(_), Some(other)) => Err(bad(field.name, "a list", other)),
            (Ty::Map(item), Some(Value::Object(map))) => {
                let mut keys: Vec<&String> = map.keys().collect();
                keys.sort_unstable();
                for key in keys {
                    put_message(out, number, |out| {
                        put_bytes(out, 1, key.as_bytes());
                        self.entry(out, field.name, item, place.wrapped, &map[key])
                    })?;
                }
                Ok(())
            }
            (Ty::Map(_), Some(other)) => Err(bad(field.name, "an object", other)),
            (Ty::List(_) | Ty::Map(_), None) => Ok(()),
            (ty, Some(value)) => self.one(out, number, field.name, ty, value),
            // Where Go has a pointer, absence is nothing; elsewhere it is the zero value, but for bytes.
            (Ty::Bytes, None) => Ok(()),
            (_, None) if place.optional => Ok(()),
            (ty, None) => self.one(out, number, field.name, ty, &Value::Null),
        }
    }

    fn list(
        &self,
        out: &mut Vec<u8>,
        number: u16,
        field: &'static str,
        item: &Ty,
        list: &[Value],
    ) -> Result<(), Error> {
        list.iter().try_for_each(|value| self.one(out, number, field, item, value))
    }

    fn entry(
        &self,
        out: &mut Vec<u8>,
        field: &'static str,
        item: &Ty,
        wrapped: bool,
        value: &Value,
    ) -> Result<(), Error> {
        match (item, value) {
            (Ty::List(item), Value::Array(list)) if wrapped => {
                put_message(out, 2, |out| self.list(out, 1, field, item, list))
            }
            (Ty::List(_), Value::Null) => put_message(out, 2, |_| Ok(())),
            (Ty::List(_), other) => Err(bad(field, "a list", other)),
            (Ty::Bytes, Value::Null) => Ok(()),
            (item, value) => self.one(out, 2, field, item, value),
        }
    }

    /// Appends one value; null is the zero value.
    fn one(
        &self,
        out: &mut Vec<u8>,
        number: u16,
        field: &'static str,
        ty: &Ty,
        value: &Value,
    ) -> Result<(), Error> {
        let integer = |min: i64, max: i64, expected| match value {
            Value::Null => Ok(0),
            other => {
                other.as_i64().filter(|n| (min..=max).contains(n)).ok_or_else(|| bad(field, expected, value))
            }
        };
        match ty {
            Ty::String => match value {
                Value::Null => put_bytes(out, number, b""),
                Value::String(text) => put_bytes(out, number, text.as_bytes()),
                other => return Err(bad(field, "a string", other)),
            },
            Ty::Bool => match value {
                Value::Null => put_number(out, number, 0),
                Value::Bool(flag) => put_number(out, number, u64::from(*flag)),
                other => return Err(bad(field, "a boolean", other)),
            },
            Ty::Int32 => {
                let int = integer(i32::MIN.into(), i32::MAX.into(), "a 32-bit integer")?;
                put_number(out, number, int as u64);
            }
            Ty::Int64 => put_number(out, number, integer(i64::MIN, i64::MAX, "a 64-bit integer")? as u64),
            Ty::Double => {
                let double = if value.is_null() { Some(0.0) } else { value.as_f64() };
                let double = double.ok_or_else(|| bad(field, "a number", value))?;
                put_fixed64(out, number, double.to_bits());
            }
            Ty::Bytes => {
                let text = if value.is_null() { Some("") } else { value.as_str() };
                let text = text.map(|t| t.replace(['\n', '\r'], ""));
                let bytes = text.and_then(|t| STANDARD.decode(t).ok());
                put_bytes(out, number, &bytes.ok_or_else(|| bad(field, "base64", value))?);
            }
            Ty::Time => put_message(out, number, |out| write_time(out, field, value, false))?,
            Ty::MicroTime => put_message(out, number, |out| write_time(out, field, value, true))?,
            Ty::Quantity => put_message(out, number, |out| write_quantity(out, field, value))?,
            Ty::IntOrString => put_message(out, number, |out| write_int_or_string(out, field, value))?,
            Ty::Object | Ty::Any => put_message(out, number, |out| {
                if !value.is_null() {
                    put_bytes(out, 1, value.to_string().as_bytes());
                }
                Ok(())
            })?,
            Ty::Ref(id) => put_message(out, number, |out| self.object(out, field, id.get(), value))?,
            Ty::RefOr(id, simpler) => {
                put_message(out, number, |out| self.one_of(out, field, id.get(), *simpler, value))?;
            }
            // No type of the table has a list or a map directly within another.
            Ty::List(_) | Ty::Map(_) => return Err(bad(field, "a single value", value)),
        }
        Ok(())
    }

    fn object(
        &self,
        out: &mut Vec<u8>,
        field: &'static str,
        ty: &'static Type,
        value: &Value,
    ) -> Result<(), Error> {
        match value {
            Value::Null => message(out, ty, &Map::new(), self.depth + 1),
            Value::Object(map) => message(out, ty, map, self.depth + 1),
            other => Err(bad(field, "an object", other)),
        }
    }

    fn one_of(
        &self,
        out: &mut Vec<u8>,
        field: &'static str,
        ty: &'static Type,
        simpler: Simpler,
        value: &Value,
    ) -> Result<(), Error> {
        let whole = |out: &mut Vec<u8>, number, value: &Value| {
            put_message(out, number, |out| self.object(out, field, ty, value))
        };
        match (simpler, value) {
            (Simpler::Bool, Value::Null) => put_number(out, 1, 0),
            (Simpler::Bool, Value::Bool(flag)) => put_number(out, 1, u64::from(*flag)),
            (Simpler::Bool, value) => {
                put_number(out, 1, 1);
                whole(out, 2, value)?;
            }
            (_, Value::Null) => {}
            (Simpler::Strings, Value::Array(list)) => self.list(out, 2, field, &Ty::String, list)?,
            (Simpler::List, Value::Array(list)) => {
                list.iter().try_for_each(|value| whole(out, 2, value))?;
            }
            (_, value) => whole(out, 1, value)?,
        }
        Ok(())
    }
}
