//! From bytes to JSON.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::simple::{double, only_bytes, read_int_or_string, read_json, read_time, text};
use super::wire::{Raw, Reader};
use super::{Error, MAGIC, MAX_DEPTH, MAX_VALUES};
use crate::schema::{Field, Simpler, Ty, Type};

/// Reads a message.
pub(super) fn message(ty: &'static Type, bytes: &[u8]) -> Result<Map<String, Value>, Error> {
    let mut map = Map::new();
    Decoder { values: 0, depth: 0 }.message(ty, bytes, &mut map)?;
    Ok(map)
}

/// What one object may still cost.
#[derive(Debug)]
pub(super) struct Decoder {
    values: usize,
    depth: usize,
}

/// The field numbers of the embedded messages around a field.
#[derive(Debug, Clone, Copy, Default)]
struct Above {
    numbers: [u16; 4],
    depth: usize,
}

impl Above {
    fn with(mut self, number: u16) -> Option<Self> {
        *self.numbers.get_mut(self.depth)? = number;
        self.depth += 1;
        Some(self)
    }

    fn path(&self) -> &[u16] {
        &self.numbers[..self.depth]
    }
}

impl Decoder {
    fn count(&mut self) -> Result<(), Error> {
        self.values += 1;
        if self.values > MAX_VALUES { Err(Error::TooMany) } else { Ok(()) }
    }

    fn within<T>(&mut self, visit: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        if self.depth == MAX_DEPTH {
            return Err(Error::TooDeep);
        }
        self.depth += 1;
        let result = visit(self);
        self.depth -= 1;
        result
    }

    fn message(
        &mut self,
        ty: &'static Type,
        bytes: &[u8],
        into: &mut Map<String, Value>,
    ) -> Result<(), Error> {
        self.within(|d| d.fields(ty, Above::default(), bytes, into))
    }

    /// Reads the fields of a message, or of one that is embedded in it. A message may come in parts.
    fn fields(
        &mut self,
        ty: &'static Type,
        above: Above,
        bytes: &[u8],
        into: &mut Map<String, Value>,
    ) -> Result<(), Error> {
        let mut reader = Reader::new(bytes);
        while let Some((number, raw)) = reader.field()? {
            let Some(path) = u16::try_from(number).ok().and_then(|n| above.with(n)) else { continue };
            let Some(first) = ty.at(path.path()).next() else { continue };
            if first.place.is_some_and(|p| p.path().len() == path.depth) {
                self.field(first, raw, into)?;
            } else {
                let Raw::Bytes(bytes) = raw else {
                    return Err(Error::WireType { wire: raw.wire(), field: first.name });
                };
                self.fields(ty, path, bytes, into)?;
            }
        }
        Ok(())
    }

    fn field(
        &mut self,
        field: &'static Field,
        raw: Raw<'_>,
        into: &mut Map<String, Value>,
    ) -> Result<(), Error> {
        self.count()?;
        let Some(place) = field.place else { return Ok(()) };
        match &field.ty {
            Ty::List(item) if place.wrapped => {
                let list = self.wrapped(field.name, item, raw)?;
                into.insert(field.name.to_owned(), list);
            }
            Ty::List(item) => {
                let slot = into.entry(field.name).or_insert_with(|| Value::Array(Vec::new()));
                if let Value::Array(list) = slot {
                    self.items(field.name, item, raw, list)?;
                }
            }
            Ty::Map(item) => {
                let (key, value) = self.entry(field.name, item, place.wrapped, raw)?;
                let slot = into.entry(field.name).or_insert_with(|| Value::Object(Map::new()));
                if let Value::Object(map) = slot {
                    map.insert(key, value);
                }
            }
            Ty::Ref(id) => {
                let slot = into.entry(field.name).or_insert_with(|| Value::Object(Map::new()));
                match (slot, raw) {
                    (Value::Object(map), Raw::Bytes(bytes)) => self.message(id.get(), bytes, map)?,
                    (_, raw) => return Err(Error::WireType { wire: raw.wire(), field: field.name }),
                }
            }
            ty => {
                let value = self.one(field.name, ty, raw)?;
                let drops = !place.shows_zero && !place.optional && is_zero(&value);
                if drops || value.is_null() {
                    into.remove(field.name);
                } else {
                    into.insert(field.name.to_owned(), value);
                }
            }
        }
        Ok(())
    }

    /// Appends the item, or the items if they are packed.
    fn items(
        &mut self,
        field: &'static str,
        item: &Ty,
        raw: Raw<'_>,
        into: &mut Vec<Value>,
    ) -> Result<(), Error> {
        let packed = match raw {
            Raw::Bytes(bytes) if matches!(item, Ty::Int32 | Ty::Int64 | Ty::Bool | Ty::Double) => bytes,
            raw => {
                into.push(self.one(field, item, raw)?);
                return Ok(());
            }
        };
        let mut reader = Reader::new(packed);
        while !reader.is_empty() {
            self.count()?;
            let raw = if *item == Ty::Double {
                Raw::Fixed64(reader.fixed64()?)
            } else {
                Raw::Varint(reader.varint()?)
            };
            into.push(self.one(field, item, raw)?);
        }
        Ok(())
    }

    /// A list that is a message.
    fn wrapped(&mut self, field: &'static str, item: &Ty, raw: Raw<'_>) -> Result<Value, Error> {
        let Raw::Bytes(bytes) = raw else { return Err(Error::WireType { wire: raw.wire(), field }) };
        let mut list = Vec::new();
        let mut reader = Reader::new(bytes);
        while let Some((number, raw)) = reader.field()? {
            if number == 1 {
                self.count()?;
                self.items(field, item, raw, &mut list)?;
            }
        }
        Ok(Value::Array(list))
    }

    /// An entry of a map.
    fn entry(
        &mut self,
        field: &'static str,
        item: &Ty,
        wrapped: bool,
        raw: Raw<'_>,
    ) -> Result<(String, Value), Error> {
        let Raw::Bytes(bytes) = raw else { return Err(Error::WireType { wire: raw.wire(), field }) };
        let (mut key, mut value) = (String::new(), None);
        let mut reader = Reader::new(bytes);
        while let Some((number, raw)) = reader.field()? {
            match (number, raw) {
                (1, Raw::Bytes(bytes)) => key = text(field, bytes)?,
                (1, raw) => return Err(Error::WireType { wire: raw.wire(), field }),
                (2, raw) => {
                    value = Some(match item {
                        Ty::List(item) if wrapped => self.wrapped(field, item, raw)?,
                        item => self.one(field, item, raw)?,
                    });
                }
                _ => {}
            }
        }
        let value = match value {
            Some(value) => value,
            None => match item {
                Ty::String | Ty::Bytes => Value::String(String::new()),
                Ty::Bool => false.into(),
                Ty::Int32 | Ty::Int64 | Ty::Double | Ty::IntOrString => 0.into(),
                Ty::Quantity => "0".into(),
                Ty::Ref(_) | Ty::Map(_) => Value::Object(Map::new()),
                Ty::List(_) => Value::Array(Vec::new()),
                _ => Value::Null,
            },
        };
        Ok((key, value))
    }

    /// A value that stands for itself.
    fn one(&mut self, field: &'static str, ty: &Ty, raw: Raw<'_>) -> Result<Value, Error> {
        Ok(match (ty, raw) {
            (Ty::String, Raw::Bytes(bytes)) => text(field, bytes)?.into(),
            (Ty::Bool, Raw::Varint(v)) => (v != 0).into(),
            (Ty::Int32, Raw::Varint(v)) => (v as i32).into(),
            (Ty::Int64, Raw::Varint(v)) => (v as i64).into(),
            (Ty::Double, Raw::Fixed64(v)) => double(field, f64::from_bits(v))?,
            (Ty::Bytes, Raw::Bytes(bytes)) => STANDARD.encode(bytes).into(),
            (Ty::Time, Raw::Bytes(bytes)) => read_time(field, bytes, false)?,
            (Ty::MicroTime, Raw::Bytes(bytes)) => read_time(field, bytes, true)?,
            (Ty::Quantity, Raw::Bytes(bytes)) => match only_bytes(field, bytes)? {
                Some(bytes) => text(field, bytes)?.into(),
                None => "0".into(),
            },
            (Ty::IntOrString, Raw::Bytes(bytes)) => read_int_or_string(field, bytes)?,
            (Ty::Object | Ty::Any, Raw::Bytes(bytes)) => match only_bytes(field, bytes)? {
                Some(raw) if raw.starts_with(MAGIC) => self.within(|d| d.nested(raw))?,
                raw => read_json(field, raw)?,
            },
            (Ty::Ref(id), Raw::Bytes(bytes)) => {
                let mut map = Map::new();
                self.message(id.get(), bytes, &mut map)?;
                Value::Object(map)
            }
            (Ty::RefOr(id, simpler), Raw::Bytes(bytes)) => self.one_of(field, id.get(), *simpler, bytes)?,
            (_, raw) => return Err(Error::WireType { wire: raw.wire(), field }),
        })
    }

    /// An object in its envelope, as raw extensions hold those that were written as protobuf.
    fn nested(&mut self, raw: &[u8]) -> Result<Value, Error> {
        let envelope = super::Envelope::parse(raw)?;
        let mut map = Map::new();
        self.message(envelope.schema()?, envelope.raw, &mut map)?;
        Ok(envelope.dress(map))
    }

    /// A value of a type, or what may stand for it: {1: the value, 2: list} or {1: true or false, 2: the value}.
    fn one_of(
        &mut self,
        field: &'static str,
        ty: &'static Type,
        simpler: Simpler,
        bytes: &[u8],
    ) -> Result<Value, Error> {
        let (mut object, mut list, mut flag) = (None, Vec::new(), false);
        let mut reader = Reader::new(bytes);
        while let Some((number, raw)) = reader.field()? {
            self.count()?;
            match (simpler, number, raw) {
                (Simpler::Bool, 1, Raw::Varint(v)) => flag = v != 0,
                (Simpler::Bool, 2, Raw::Bytes(bytes)) | (_, 1, Raw::Bytes(bytes)) => {
                    self.message(ty, bytes, object.get_or_insert_default())?;
                }
                (Simpler::Strings, 2, Raw::Bytes(bytes)) => list.push(text(field, bytes)?.into()),
                (Simpler::List, 2, Raw::Bytes(bytes)) => {
                    let mut map = Map::new();
                    self.message(ty, bytes, &mut map)?;
                    list.push(Value::Object(map));
                }
                (_, 1 | 2, raw) => return Err(Error::WireType { wire: raw.wire(), field }),
                _ => {}
            }
        }
        Ok(match (object, simpler) {
            (_, Simpler::List | Simpler::Strings) if !list.is_empty() => Value::Array(list),
            (Some(map), _) => Value::Object(map),
            (None, Simpler::Bool) => flag.into(),
            (None, _) => Value::Null,
        })
    }
}

/// Whether JSON leaves the value out where it cannot be told from an absent one.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Bool(b) => !b,
        Value::Number(n) => n.as_f64() == Some(0.0),
        Value::String(s) => s.is_empty(),
        _ => false,
    }
}
