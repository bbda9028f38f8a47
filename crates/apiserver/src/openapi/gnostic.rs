//! The older description in protobuf, as discovery clients ask for it (`openapi.v2.Document` of gnostic's models). Each message
//! is a table of its JSON keys with numbers and forms.

use serde_json::Value;
use trine_objects::protobuf::wire::{put_bytes, put_fixed64, put_message, put_number};

/// A message.
struct Message {
    fields: &'static [(&'static str, u16, Form)],
    /// The field of what begins with `x-`.
    extensions: u16,
}

/// How a value lies in a message.
enum Form {
    Text,
    Flag,
    Int,
    Double,
    Texts,
    /// Any value, as YAML in a message (field 2).
    Any,
    Anys,
    One(&'static Message),
    Many(&'static Message),
    /// A value in a message of its own, as its field 1.
    Wrapped(&'static Message),
    /// A map: a message of named values in this field. They may be wrapped.
    Named(u16, &'static Message, bool),
    /// One type or several.
    Types,
    /// A schema, or true or false.
    SchemaOrFlag,
    /// Parameters, which differ by where they are.
    Parameters,
}

use Form::{
    Any, Anys, Double, Flag, Int, Many, Named, One, Parameters, SchemaOrFlag, Text, Texts, Types, Wrapped,
};

static DOCUMENT: Message = Message {
    fields: &[
        ("swagger", 1, Text),
        ("info", 2, One(&INFO)),
        ("paths", 8, Named(2, &PATH, false)),
        ("definitions", 9, Named(1, &SCHEMA, false)),
    ],
    extensions: 16,
};

static INFO: Message =
    Message { fields: &[("title", 1, Text), ("version", 2, Text), ("description", 3, Text)], extensions: 7 };

static PATH: Message = Message {
    fields: &[
        ("get", 2, One(&OPERATION)),
        ("put", 3, One(&OPERATION)),
        ("post", 4, One(&OPERATION)),
        ("delete", 5, One(&OPERATION)),
        ("patch", 8, One(&OPERATION)),
        ("parameters", 9, Parameters),
    ],
    extensions: 10,
};

static OPERATION: Message = Message {
    fields: &[
        ("tags", 1, Texts),
        ("description", 3, Text),
        ("operationId", 5, Text),
        ("produces", 6, Texts),
        ("consumes", 7, Texts),
        ("parameters", 8, Parameters),
        ("responses", 9, Named(1, &RESPONSE, true)),
        ("schemes", 10, Texts),
    ],
    extensions: 13,
};

static RESPONSE: Message =
    Message { fields: &[("description", 1, Text), ("schema", 2, Wrapped(&SCHEMA))], extensions: 5 };

static BODY: Message = Message {
    fields: &[
        ("description", 1, Text),
        ("name", 2, Text),
        ("in", 3, Text),
        ("required", 4, Flag),
        ("schema", 5, One(&SCHEMA)),
    ],
    extensions: 6,
};

static QUERY: Message = Message {
    fields: &[
        ("required", 1, Flag),
        ("in", 2, Text),
        ("description", 3, Text),
        ("name", 4, Text),
        ("type", 6, Text),
        ("format", 7, Text),
        ("uniqueItems", 20, Flag),
    ],
    extensions: 23,
};

static PATH_PARAMETER: Message = Message {
    fields: &[
        ("required", 1, Flag),
        ("in", 2, Text),
        ("description", 3, Text),
        ("name", 4, Text),
        ("type", 5, Text),
        ("format", 6, Text),
        ("uniqueItems", 19, Flag),
    ],
    extensions: 22,
};

static SCHEMA: Message = Message {
    fields: &[
        ("$ref", 1, Text),
        ("format", 2, Text),
        ("title", 3, Text),
        ("description", 4, Text),
        ("default", 5, Any),
        ("multipleOf", 6, Double),
        ("maximum", 7, Double),
        ("exclusiveMaximum", 8, Flag),
        ("minimum", 9, Double),
        ("exclusiveMinimum", 10, Flag),
        ("maxLength", 11, Int),
        ("minLength", 12, Int),
        ("pattern", 13, Text),
        ("maxItems", 14, Int),
        ("minItems", 15, Int),
        ("uniqueItems", 16, Flag),
        ("maxProperties", 17, Int),
        ("minProperties", 18, Int),
        ("required", 19, Texts),
        ("enum", 20, Anys),
        ("additionalProperties", 21, SchemaOrFlag),
        ("type", 22, Types),
        ("items", 23, Wrapped(&SCHEMA)),
        ("allOf", 24, Many(&SCHEMA)),
        ("properties", 25, Named(1, &SCHEMA, false)),
    ],
    extensions: 31,
};

/// Writes a document of the older form.
pub(super) fn encode(document: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, &DOCUMENT, document);
    out
}

fn put(out: &mut Vec<u8>, message: &Message, value: &Value) {
    for (key, number, form) in message.fields {
        if let Some(value) = value.get(*key) {
            put_field(out, *number, form, value);
        }
    }
    for (name, value) in value.as_object().into_iter().flatten().filter(|(name, _)| name.starts_with("x-")) {
        nest(out, message.extensions, |out| {
            put_bytes(out, 1, name.as_bytes());
            any(out, 2, value);
        });
    }
}

fn put_field(out: &mut Vec<u8>, number: u16, form: &Form, value: &Value) {
    let list = || value.as_array().into_iter().flatten();
    match form {
        Text => put_bytes(out, number, value.as_str().unwrap_or_default().as_bytes()),
        Flag => put_number(out, number, u64::from(value.as_bool().unwrap_or_default())),
        Int => put_number(out, number, value.as_i64().unwrap_or_default() as u64),
        Double => put_fixed64(out, number, value.as_f64().unwrap_or_default().to_bits()),
        Texts => {
            list().filter_map(Value::as_str).for_each(|text| put_bytes(out, number, text.as_bytes()));
        }
        Any => any(out, number, value),
        Anys => list().for_each(|value| any(out, number, value)),
        One(message) => nest(out, number, |out| put(out, message, value)),
        Many(message) => list().for_each(|value| nest(out, number, |out| put(out, message, value))),
        Wrapped(message) => nest(out, number, |out| nest(out, 1, |out| put(out, message, value))),
        Named(entry, message, wrapped) => nest(out, number, |out| {
            for (name, value) in value.as_object().into_iter().flatten() {
                nest(out, *entry, |out| {
                    put_bytes(out, 1, name.as_bytes());
                    nest(out, 2, |out| {
                        if *wrapped {
                            nest(out, 1, |out| put(out, message, value));
                        } else {
                            put(out, message, value);
                        }
                    });
                });
            }
        }),
        Types => nest(out, number, |out| match value {
            Value::String(one) => put_bytes(out, 1, one.as_bytes()),
            _ => list().filter_map(Value::as_str).for_each(|text| put_bytes(out, 1, text.as_bytes())),
        }),
        SchemaOrFlag => nest(out, number, |out| match value {
            Value::Bool(flag) => put_number(out, 2, u64::from(*flag)),
            schema => nest(out, 1, |out| put(out, &SCHEMA, schema)),
        }),
        Parameters => list().for_each(|value| parameter(out, number, value)),
    }
}

/// {1: {1: in the body, 2: {3: in the query, 4: in the path}}}
fn parameter(out: &mut Vec<u8>, number: u16, value: &Value) {
    nest(out, number, |out| {
        nest(out, 1, |out| match value["in"].as_str() {
            Some("body") => nest(out, 1, |out| put(out, &BODY, value)),
            Some("path") => nest(out, 2, |out| nest(out, 4, |out| put(out, &PATH_PARAMETER, value))),
            _ => nest(out, 2, |out| nest(out, 3, |out| put(out, &QUERY, value))),
        });
    });
}

fn any(out: &mut Vec<u8>, number: u16, value: &Value) {
    nest(out, number, |out| put_bytes(out, 2, value.to_string().as_bytes()));
}

fn nest(out: &mut Vec<u8>, number: u16, inner: impl FnOnce(&mut Vec<u8>)) {
    let written = put_message(out, number, |out| {
        inner(out);
        Ok::<(), std::convert::Infallible>(())
    });
    let Ok(()) = written;
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn schemas_lie_under_their_numbers() {
        let document = json!({"swagger": "2.0", "definitions": {"A": {
            "type": "object", "required": ["b"], "properties": {"b": {"$ref": "#/definitions/B"}},
            "additionalProperties": false, "x-k": [1]}}});
        let wanted = b"\x0a\x032.0\x4a\x45\x0a\x43\x0a\x01A\x12\x3e\
            \x9a\x01\x01b\xaa\x01\x02\x10\x00\xb2\x01\x08\x0a\x06object\
            \xca\x01\x18\x0a\x16\x0a\x01b\x12\x11\x0a\x0f#/definitions/B\
            \xfa\x01\x0c\x0a\x03x-k\x12\x05\x12\x03[1]";
        assert_eq!(encode(&document), wanted);
    }

    #[test]
    fn parameters_differ_by_where_they_are() {
        for (place, wanted) in [("body", &[0x0a_u8][..]), ("path", &[0x12]), ("query", &[0x12])] {
            let mut out = Vec::new();
            parameter(&mut out, 9, &json!({"name": "n", "in": place}));
            assert_eq!(out[0], 9 << 3 | 2);
            assert_eq!(&out[4..5], wanted, "{place}");
        }
        let mut out = Vec::new();
        parameter(&mut out, 9, &json!({"name": "n", "in": "path", "type": "string", "required": true}));
        assert!(out.ends_with(b"\x08\x01\x12\x04path\x22\x01n\x2a\x06string"), "{out:?}");
    }
}
