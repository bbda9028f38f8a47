//! The body of a request as JSON, with what a strict reader has against it.

use bytes::Bytes;
use serde_json::Value;
use trine_objects::json::{self, Duplicates};
use trine_objects::protobuf;

use super::repeated_keys;
use crate::status::ApiError;

/// A document from JSON, YAML or protobuf, with its duplicate fields.
///
/// # Errors
/// [`ApiError::UnsupportedMediaType`] and [`ApiError::BadRequest`].
pub fn document(content_type: &str, body: &Bytes) -> Result<(Value, Duplicates), ApiError> {
    let bad = |what: &str, error: &dyn std::fmt::Display| {
        ApiError::BadRequest(format!("the body is not {what}: {error}"))
    };
    let media = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match media.as_str() {
        "" | "application/json" => json::parse_reporting_duplicates(body).map_err(|e| bad("JSON", &e)),
        "application/yaml" | "text/yaml" => {
            let text = std::str::from_utf8(body).map_err(|e| bad("YAML", &e))?;
            yaml(text).map_err(|e| bad("YAML", &e))
        }
        protobuf::MEDIA_TYPE => match protobuf::decode(body) {
            Ok(object) => Ok((object, Duplicates::default())),
            // Kinds of custom resources: upstream reads JSON and YAML alone there.
            Err(protobuf::Error::Unknown { .. }) => {
                Err(unsupported(&["application/json", "application/yaml"]))
            }
            Err(error) => Err(ApiError::BadRequest(error.to_string())),
        },
        _ => Err(unsupported(&["application/json", "application/yaml", protobuf::MEDIA_TYPE])),
    }
}

/// A configuration to apply: JSON, or the YAML that its content type promises; and what a strict reader of YAML, which upstream
/// takes for both, says of keys that are there twice.
///
/// # Errors
/// [`ApiError::BadRequest`].
pub fn applied(body: &Bytes) -> Result<(Value, Option<String>), ApiError> {
    if let Ok((value, duplicates)) = json::parse_reporting_duplicates(body)
        && duplicates.is_empty()
    {
        return Ok((value, None));
    }
    let bad = |error: &dyn std::fmt::Display| ApiError::BadRequest(format!("error decoding YAML: {error}"));
    let text = std::str::from_utf8(body).map_err(|e| bad(&e))?;
    let (value, duplicates) = yaml(text).map_err(|e| bad(&e))?;
    let complaint = match duplicates.is_empty() {
        true => None,
        false => Some(repeated_keys::complaint(text).map_err(|e| bad(&e))?),
    };
    Ok((value, complaint))
}

/// YAML is one document; that keys are there twice is left to the reader of fields, as in JSON.
fn yaml(text: &str) -> Result<(Value, Duplicates), serde_saphyr::Error> {
    json::read_reporting_duplicates(|reader| {
        let options = serde_saphyr::options! {
            duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::PassThrough,
        };
        serde_saphyr::with_deserializer_from_str_with_options(text, options, |d| reader.read(d))
    })
}

fn unsupported(accepted: &[&str]) -> ApiError {
    ApiError::UnsupportedMediaType(format!(
        "the body of the request was in an unknown format - accepted media types include: {}",
        accepted.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn three_media_types_are_read_and_others_named() {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}});
        let read = |media: &str, bytes: Vec<u8>| document(media, &bytes.into()).map(|(value, _)| value);
        assert_eq!(read("application/json; charset=utf-8", object.to_string().into()).unwrap(), object);
        let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n";
        assert_eq!(read("application/yaml", yaml.into()).unwrap(), object);
        assert_eq!(read(protobuf::MEDIA_TYPE, protobuf::encode(&object).unwrap()).unwrap(), object);
        let refused = read("application/cbor", vec![0xd9, 0xd9, 0xf7, 0xa0]).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "the body of the request was in an unknown format - accepted media types include: application/json, \
             application/yaml, application/vnd.kubernetes.protobuf"
        );
        let (value, twice) =
            document("application/yaml", &"spec:\n  a: 1\n  b: {c: 1, c: 2}\n  a: x\n".into()).unwrap();
        assert_eq!(value, json!({"spec": {"a": "x", "b": {"c": 2}}}));
        let twice: Vec<String> = twice.among(Vec::new()).iter().map(ToString::to_string).collect();
        assert_eq!(twice, ["duplicate field \"spec.b.c\"", "duplicate field \"spec.a\""]);
        assert!(matches!(read(protobuf::MEDIA_TYPE, b"{}".into()), Err(ApiError::BadRequest(_))));
        let widget = b"k8s\0\x0a\x11\x0a\x07x.io/v1\x12\x06Widget\x12\x00".to_vec();
        assert!(matches!(read(protobuf::MEDIA_TYPE, widget), Err(ApiError::UnsupportedMediaType(_))));
    }
}
