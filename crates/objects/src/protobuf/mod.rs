//! Protobuf of the built-in kinds, driven by the table of types: JSON values in and out, no generated structs.
//!
//! - [`decode`], [`decode_as`] an object from the envelope in which it travels; [`Envelope`] what is in that without the object
//! - [`encode`], [`encode_json`] an object into its envelope
//! - [`watch_event`] a frame of a watch
//! - [`wire`] numbers and lengths, for messages that are no objects
//! - [`Error`] what is wrong with bytes or with an object
//!
//! The envelope is the magic `k8s\0` and a message `Unknown` {1: {1: apiVersion, 2: kind}, 2: the object, 3: content encoding,
//! 4: content type}. Fields are written in the order of their numbers, and also when they are zero where Go's structs cannot
//! tell zero from absent: byte for byte what Go clients and servers write. Unknown fields are skipped.

mod decode;
mod encode;
mod envelope;
mod simple;
pub mod wire;

#[cfg(test)]
mod tests;

pub use envelope::{Envelope, decode, decode_as, encode, encode_json, watch_event};

/// The media type.
pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// What every object begins with.
pub const MAGIC: &[u8; 4] = b"k8s\0";

/// What is wrong with bytes, or with an object that is to become bytes.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nothing at all.
    #[error("empty data")]
    Empty,
    /// The magic is missing.
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    NotProtobuf,
    /// The magic and nothing else.
    #[error("empty body")]
    EmptyBody,
    /// The bytes end within a value.
    #[error("unexpected EOF")]
    Truncated,
    /// A number has more than 64 bits.
    #[error("proto: integer overflow")]
    Overflow,
    /// A field number that cannot be, or an end without a beginning.
    #[error("proto: illegal tag {0}")]
    Tag(u64),
    /// A value of another form than the field's.
    #[error("proto: wrong wireType = {wire} for field {field}")]
    WireType {
        /// The wire type that was found.
        wire: u8,
        /// Name of the field.
        field: &'static str,
    },
    /// A value that its field cannot hold.
    #[error("field {field}: {why}")]
    Value {
        /// Name of the field.
        field: &'static str,
        /// What is wrong with the value.
        why: String,
    },
    /// More messages within one another than [`MAX_DEPTH`].
    #[error("exceeded max depth")]
    TooDeep,
    /// More values than [`MAX_VALUES`].
    #[error("more than {MAX_VALUES} values")]
    TooMany,
    /// The envelope does not say the kind, and nobody else does.
    #[error("Object 'Kind' is missing in the protobuf envelope")]
    NoKind,
    /// The kind has no protobuf form.
    #[error("no kind {kind:?} is registered for version {api_version:?}")]
    Unknown {
        /// `apiVersion`.
        api_version: String,
        /// `kind`.
        kind: String,
    },
}

/// The most messages within one another. Twice as many levels of JSON come from it, about what the JSON reader takes.
pub const MAX_DEPTH: usize = 64;

/// The most values in one object, so that two bytes for an empty message do not become a hundred times as much memory. An
/// object in the store has at most some tens of thousands.
pub const MAX_VALUES: usize = 1_000_000;
