//! The envelope that says what an object is.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::wire::{Raw, Reader, put_bytes, put_message};
use super::{Error, MAGIC, decode as read, encode as write};
use crate::resources::split_api_version;
use crate::schema::{self, Ty, Type};

/// An object with its kind, not read yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// `apiVersion`; may be empty.
    pub api_version: String,
    /// `kind`; may be empty.
    pub kind: String,
    /// The object's message.
    pub raw: &'a [u8],
}

impl<'a> Envelope<'a> {
    /// Opens an envelope.
    ///
    /// # Errors
    /// [`Error`] for anything that is none.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Error> {
        if bytes.is_empty() {
            return Err(Error::Empty);
        }
        let body = bytes.strip_prefix(MAGIC).ok_or(Error::NotProtobuf)?;
        if body.is_empty() {
            return Err(Error::EmptyBody);
        }
        let mut envelope = Self { api_version: String::new(), kind: String::new(), raw: &[] };
        let mut reader = Reader::new(body);
        while let Some((number, value)) = reader.field()? {
            match (number, value) {
                (1, Raw::Bytes(bytes)) => envelope.read_kind(bytes)?,
                (2, Raw::Bytes(bytes)) => envelope.raw = bytes,
                (1 | 2, value) => return Err(Error::WireType { wire: value.wire(), field: "raw" }),
                // How the content is encoded: never used by anybody.
                _ => {}
            }
        }
        Ok(envelope)
    }

    fn read_kind(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let mut reader = Reader::new(bytes);
        while let Some((number, value)) = reader.field()? {
            match (number, value) {
                (1, Raw::Bytes(bytes)) => self.api_version = super::simple::text("apiVersion", bytes)?,
                (2, Raw::Bytes(bytes)) => self.kind = super::simple::text("kind", bytes)?,
                (1 | 2, value) => return Err(Error::WireType { wire: value.wire(), field: "typeMeta" }),
                _ => {}
            }
        }
        Ok(())
    }

    /// The type of the object.
    ///
    /// # Errors
    /// [`Error::NoKind`], [`Error::Unknown`].
    pub(super) fn schema(&self) -> Result<&'static Type, Error> {
        if self.kind.is_empty() || self.api_version.is_empty() {
            return Err(Error::NoKind);
        }
        schema_of(&self.api_version, &self.kind)
    }

    /// The object with its kind.
    pub(super) fn dress(self, mut object: Map<String, Value>) -> Value {
        object.insert("apiVersion".to_owned(), self.api_version.into());
        object.insert("kind".to_owned(), self.kind.into());
        Value::Object(object)
    }
}

/// Status, DeleteOptions and the like are the same in the group `meta.k8s.io` and in all others.
fn schema_of(api_version: &str, kind: &str) -> Result<&'static Type, Error> {
    let (group, version) = split_api_version(api_version);
    let shared = || schema::of("", "v1", kind).filter(|t| t.name().contains(".pkg.apis.meta."));
    schema::of(group, version, kind)
        .or_else(shared)
        .ok_or_else(|| Error::Unknown { api_version: api_version.to_owned(), kind: kind.to_owned() })
}

/// Reads an object whose envelope says what it is.
///
/// # Errors
/// [`Error`].
pub fn decode(bytes: &[u8]) -> Result<Value, Error> {
    decode_as(bytes, "", "")
}

/// Reads an object; what the envelope does not say of its kind is filled in.
///
/// # Errors
/// [`Error`].
pub fn decode_as(bytes: &[u8], api_version: &str, kind: &str) -> Result<Value, Error> {
    let mut envelope = Envelope::parse(bytes)?;
    if envelope.kind.is_empty() {
        kind.clone_into(&mut envelope.kind);
    }
    if envelope.api_version.is_empty() {
        api_version.clone_into(&mut envelope.api_version);
    }
    let map = read::message(envelope.schema()?, envelope.raw)?;
    Ok(envelope.dress(map))
}

/// Writes an object, in its envelope.
///
/// # Errors
/// [`Error::Unknown`] for kinds without a protobuf form, [`Error::Value`] for objects that do not fit their type.
pub fn encode(object: &Value) -> Result<Vec<u8>, Error> {
    let mut out = Vec::with_capacity(512);
    encode_into(&mut out, object)?;
    Ok(out)
}

/// The outside of a list, its items not read yet.
#[derive(Deserialize)]
struct Unread<'a> {
    #[serde(rename = "apiVersion", borrow, default)]
    api_version: Cow<'a, str>,
    #[serde(borrow, default)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
    #[serde(borrow)]
    items: Option<&'a RawValue>,
}

/// Writes an object given as JSON text, in its envelope. The items of a list are read one by one.
///
/// # Errors
/// As [`encode`]; [`Error::Value`] for what is no JSON.
pub fn encode_json(text: &[u8]) -> Result<Vec<u8>, Error> {
    let bad = |e: serde_json::Error| Error::Value { field: "object", why: e.to_string() };
    let unread: Unread<'_> = serde_json::from_slice(text).map_err(bad)?;
    let item = schema_of(&unread.api_version, &unread.kind).ok().and_then(|ty| {
        let field = ty.field("items").filter(|_| unread.kind.ends_with("List"))?;
        let Ty::List(item) = &field.ty else { return None };
        let Ty::Ref(item) = **item else { return None };
        Some((ty, field.place?.path().first().copied()?, item.get()))
    });
    let (Some((ty, number, item)), Some(items)) = (item, unread.items) else {
        return encode(&serde_json::from_slice(text).map_err(bad)?);
    };
    let mut outside = Map::new();
    if let Some(metadata) = unread.metadata {
        outside.insert("metadata".to_owned(), serde_json::from_str(metadata.get()).map_err(bad)?);
    }
    let items: Vec<&RawValue> = serde_json::from_str(items.get()).map_err(bad)?;
    let mut out = Vec::with_capacity(text.len() / 2);
    // The metadata of every list lies in front of its items.
    enclose(&mut out, &unread.api_version, &unread.kind, |out| {
        write::message(out, ty, &outside, 0)?;
        for text in items {
            let object: Map<String, Value> = serde_json::from_str(text.get()).map_err(bad)?;
            put_message(out, number, |out| write::message(out, item, &object, 1))?;
        }
        Ok(())
    })?;
    Ok(out)
}

fn encode_into(out: &mut Vec<u8>, object: &Value) -> Result<(), Error> {
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let (Value::Object(map), false) = (object, kind.is_empty()) else { return Err(Error::NoKind) };
    let ty = schema_of(api_version, kind)?;
    enclose(out, api_version, kind, |out| write::message(out, ty, map, 0))
}

fn enclose(
    out: &mut Vec<u8>,
    api_version: &str,
    kind: &str,
    object: impl FnOnce(&mut Vec<u8>) -> Result<(), Error>,
) -> Result<(), Error> {
    out.extend_from_slice(MAGIC);
    put_message(out, 1, |out| {
        put_bytes(out, 1, api_version.as_bytes());
        put_bytes(out, 2, kind.as_bytes());
        Ok::<(), Error>(())
    })?;
    put_message(out, 2, object)?;
    put_bytes(out, 3, b"");
    put_bytes(out, 4, b"");
    Ok(())
}

/// Appends a frame of a watch: its length in four bytes, big end first, and `WatchEvent` {1: the word, 2: {1: the object in its
/// envelope}}. The frame itself has no envelope.
///
/// # Errors
/// As [`encode`]; nothing is appended then.
pub fn watch_event(out: &mut Vec<u8>, word: &str, object: &Value) -> Result<(), Error> {
    let begin = out.len();
    out.extend_from_slice(&[0; 4]);
    put_bytes(out, 1, word.as_bytes());
    let written = put_message(out, 2, |out| put_message(out, 1, |out| encode_into(out, object)));
    if let Err(error) = written {
        out.truncate(begin);
        return Err(error);
    }
    let length = u32::try_from(out.len() - begin - 4).unwrap_or(u32::MAX);
    out[begin..begin + 4].copy_from_slice(&length.to_be_bytes());
    Ok(())
}
