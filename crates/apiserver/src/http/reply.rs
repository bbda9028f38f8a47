//! The last step of an answer: from the JSON that verbs make to what the client takes (protobuf, YAML, indented, compressed).
//!
//! Verbs know JSON alone, so that there is one path for all of them. Stored objects are JSON, too: for a client that wants
//! protobuf they are read once more here, item by item, so that a long list never stands in memory as a tree.

use std::io::Write;

use axum::body::{Body, Bytes};
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::{StreamExt, stream};
use http::{HeaderMap, HeaderValue, Request, header};
use http_body::Body as _;
use http_body_util::BodyExt;
use serde_json::Value;
use trine_objects::protobuf;

use super::accept::{Accept, Encoding, MEDIA_TYPES, Shape};
use crate::aggregation::Foreign;
use crate::request::Query;
use crate::status::ApiError;

/// Answers longer than this are compressed for clients that can read it, bytes. Upstream: the same.
const COMPRESSED_FROM: u64 = 128 * 1024;
const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const WATCHED: &str = "application/vnd.kubernetes.protobuf;stream=watch";

/// What the client of a request takes.
#[derive(Debug)]
pub struct Wish {
    accept: Accept,
    gzip: bool,
    pretty: bool,
    watch: bool,
}

impl Wish {
    /// From the headers and the query.
    #[must_use]
    pub fn of<B>(request: &Request<B>) -> Self {
        let query = Query::parse(request.uri().query().unwrap_or_default());
        let watch = query.flag("watch");
        let text = |name| header_text(request.headers(), name);
        let agent = text(&header::USER_AGENT);
        let by_hand = ["curl", "Wget", "Mozilla/5.0"].iter().any(|p| agent.starts_with(p));
        let gzip = text(&header::ACCEPT_ENCODING).split(',').any(|part| {
            let mut words = part.split(';').map(str::trim);
            words.next() == Some("gzip")
                && !words.any(|w| matches!(w, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"))
        });
        Self {
            accept: Accept::parse(text(&header::ACCEPT), watch),
            gzip,
            pretty: query
                .get("pretty")
                .map_or(by_hand, |p| matches!(p, "true" | "1" | "t" | "T" | "True" | "TRUE")),
            watch,
        }
    }

    /// Refuses a client that takes nothing that there is, before anything is done for it.
    ///
    /// # Errors
    /// [`ApiError::NotAcceptable`].
    pub fn check(&self) -> Result<(), ApiError> {
        self.accept.best().map(|_| ()).ok_or_else(not_acceptable)
    }

    /// Refuses a client that takes tables or metadata alone.
    ///
    /// # Errors
    /// [`ApiError::NotAcceptable`].
    pub fn check_whole(&self) -> Result<(), ApiError> {
        if self.accept.takes(Shape::Whole) { Ok(()) } else { Err(not_acceptable()) }
    }

    /// Brings a JSON answer into the wanted form. Other answers stay as they are.
    pub async fn dress(self, response: Response) -> Response {
        if response.extensions().get::<Foreign>().is_some() {
            return response;
        }
        let json = header_text(response.headers(), &header::CONTENT_TYPE) == JSON;
        let Some(best) = self.accept.best().filter(|_| json) else {
            return compressed(self.gzip, response).await;
        };
        if response.body().size_hint().exact().is_none() {
            return if self.watch && best.encoding == Encoding::Protobuf {
                frames(response)
            } else {
                response
            };
        }
        if best.encoding == Encoding::Json && !self.pretty {
            return compressed(self.gzip, response).await;
        }
        let (mut parts, body) = response.into_parts();
        let Ok(body) = body.collect().await else {
            return ApiError::Internal("an answer ended before its end".to_owned()).into_response();
        };
        let body = body.to_bytes();
        let converted = match best.encoding {
            Encoding::Protobuf => protobuf::encode_json(&body).map(|b| (protobuf::MEDIA_TYPE, b)).ok(),
            Encoding::Yaml => yaml(&body).map(|b| (YAML, b)),
            Encoding::Json => indented(&body).map(|b| (JSON, b)),
        };
        let body = match converted {
            Some((media, bytes)) => {
                parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
                bytes.into()
            }
            // What has no protobuf form (custom resources) goes as JSON to those who take that as well; errors go to all.
            None if self.accept.takes_json(best.shape)
                || self.accept.takes_json(Shape::Whole)
                || !parts.status.is_success() =>
            {
                body
            }
            None => return not_acceptable().into_response(),
        };
        parts.headers.remove(header::CONTENT_LENGTH);
        compressed(self.gzip, Response::from_parts(parts, body.into())).await
    }
}

fn not_acceptable() -> ApiError {
    ApiError::NotAcceptable(MEDIA_TYPES.map(|(name, _)| name).join(", "))
}

fn header_text<'a>(headers: &'a HeaderMap, name: &header::HeaderName) -> &'a str {
    headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default()
}

fn yaml(json: &[u8]) -> Option<Vec<u8>> {
    let value: Value = serde_json::from_slice(json).ok()?;
    serde_saphyr::to_string(&value).ok().map(String::into_bytes)
}

fn indented(json: &[u8]) -> Option<Vec<u8>> {
    let value: Value = serde_json::from_slice(json).ok()?;
    serde_json::to_vec_pretty(&value).ok()
}

async fn compressed(wanted: bool, response: Response) -> Response {
    let long = response.body().size_hint().exact().is_some_and(|n| n > COMPRESSED_FROM);
    if !wanted || !long || response.headers().contains_key(header::CONTENT_ENCODING) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let Ok(plain) = body.collect().await.map(http_body_util::Collected::to_bytes) else {
        return ApiError::Internal("an answer ended before its end".to_owned()).into_response();
    };
    let kept = plain.clone();
    let packed = tokio::task::spawn_blocking(move || gzip(&plain)).await.ok().flatten();
    let body = packed.map_or(kept, |packed| {
        parts.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        parts.headers.remove(header::CONTENT_LENGTH);
        packed
    });
    parts.headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    Response::from_parts(parts, body.into())
}

fn gzip(plain: &[u8]) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(plain.len() / 8), Compression::fast());
    encoder.write_all(plain).ok()?;
    encoder.finish().ok().map(Bytes::from)
}

/// Turns the lines of a watch into frames. A piece may end within a line.
fn frames(response: Response) -> Response {
    let (mut parts, body) = response.into_parts();
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(WATCHED));
    let pieces = stream::unfold(Some((body.into_data_stream(), Vec::new())), |state| async {
        let (mut pieces, mut rest) = state?;
        let piece = match pieces.next().await? {
            Ok(piece) => piece,
            Err(error) => return Some((Err(error), None)),
        };
        rest.extend_from_slice(&piece);
        let mut out = Vec::new();
        let mut begin = 0;
        while let Some(length) = rest[begin..].iter().position(|b| *b == b'\n') {
            if let Err(error) = frame(&mut out, &rest[begin..begin + length]) {
                tracing::warn!(%error, "a watch ends: its event has no protobuf form");
                return Some((Ok(Bytes::from(out)), None));
            }
            begin += length + 1;
        }
        rest.drain(..begin);
        Some((Ok(Bytes::from(out)), Some((pieces, rest))))
    });
    Response::from_parts(parts, Body::from_stream(pieces))
}

fn frame(out: &mut Vec<u8>, line: &[u8]) -> Result<(), String> {
    let event: Value = serde_json::from_slice(line).map_err(|e| e.to_string())?;
    let word = event["type"].as_str().unwrap_or_default();
    protobuf::watch_event(out, word, &event["object"]).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn wish(headers: &[(&str, &str)], uri: &str) -> Wish {
        let mut request = Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        Wish::of(&request.body(()).unwrap())
    }

    fn answer(value: &Value) -> Response {
        crate::status::json_response(http::StatusCode::OK, value)
    }

    async fn bytes(response: Response) -> (String, Bytes) {
        let media = header_text(response.headers(), &header::CONTENT_TYPE).to_owned();
        (media, response.into_body().collect().await.unwrap().to_bytes())
    }

    const PROTOBUF: (&str, &str) = ("accept", "application/vnd.kubernetes.protobuf,application/json");

    #[tokio::test]
    async fn objects_and_refusals_become_protobuf() {
        let object =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "b"}});
        let (media, body) = bytes(wish(&[PROTOBUF], "/").dress(answer(&object)).await).await;
        assert_eq!(media, "application/vnd.kubernetes.protobuf");
        assert_eq!(protobuf::decode(&body).unwrap(), object);
        let refused = wish(&[PROTOBUF], "/").dress(ApiError::Unauthorized.into_response()).await;
        let (_, body) = bytes(refused).await;
        assert_eq!(protobuf::decode(&body).unwrap()["reason"], "Unauthorized");
    }

    #[tokio::test]
    async fn what_has_no_protobuf_form_is_json_or_not_acceptable() {
        let widget = json!({"apiVersion": "x.io/v1", "kind": "Widget"});
        let (media, _) = bytes(wish(&[PROTOBUF], "/").dress(answer(&widget)).await).await;
        assert_eq!(media, "application/json");
        let only = wish(&[("accept", "application/vnd.kubernetes.protobuf")], "/");
        assert_eq!(only.dress(answer(&widget)).await.status(), http::StatusCode::NOT_ACCEPTABLE);
        assert!(wish(&[("accept", "application/cbor")], "/").check().is_err());
    }

    #[tokio::test]
    async fn people_get_indentation_and_yaml() {
        let object = json!({"kind": "X", "a": [1]});
        let (_, body) = bytes(wish(&[("user-agent", "curl/8")], "/").dress(answer(&object)).await).await;
        assert!(body.starts_with(b"{\n  \"a\""), "{body:?}");
        let (_, body) =
            bytes(wish(&[("user-agent", "curl/8")], "/?pretty=0").dress(answer(&object)).await).await;
        assert_eq!(&body[..], object.to_string().as_bytes());
        let (media, body) =
            bytes(wish(&[("accept", "application/yaml")], "/").dress(answer(&object)).await).await;
        let back: Value = serde_saphyr::from_slice(&body).unwrap();
        assert_eq!((media.as_str(), back), ("application/yaml", object));
    }

    #[tokio::test]
    async fn long_answers_are_compressed_for_those_who_ask() {
        use std::io::Read;
        let long = json!({"text": "x".repeat(200_000)});
        let ask = [("accept-encoding", "deflate, gzip;q=0.8")];
        let response = wish(&ask, "/").dress(answer(&long)).await;
        assert_eq!(header_text(response.headers(), &header::CONTENT_ENCODING), "gzip");
        assert_eq!(header_text(response.headers(), &header::VARY), "Accept-Encoding");
        let (_, body) = bytes(response).await;
        let mut text = String::new();
        flate2::read::GzDecoder::new(&body[..]).read_to_string(&mut text).unwrap();
        assert_eq!(text, long.to_string());
        for (headers, value) in
            [(&ask[..], &json!({"text": "short"})), (&[], &long), (&[("accept-encoding", "gzip;q=0")], &long)]
        {
            let response = wish(headers, "/").dress(answer(value)).await;
            assert!(!response.headers().contains_key(header::CONTENT_ENCODING), "{headers:?}");
        }
    }

    #[tokio::test]
    async fn the_lines_of_a_watch_become_frames_wherever_they_are_cut() {
        let object =
            |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        let lines: String =
            ["a", "b"].map(|n| json!({"type": "ADDED", "object": object(n)}).to_string() + "\n").concat();
        let pieces: Vec<Result<Bytes, std::convert::Infallible>> =
            lines.as_bytes().chunks(7).map(|c| Ok(Bytes::copy_from_slice(c))).collect();
        let mut response = Response::new(Body::from_stream(stream::iter(pieces)));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
        let (media, body) = bytes(wish(&[PROTOBUF], "/?watch=1").dress(response).await).await;
        assert_eq!(media, "application/vnd.kubernetes.protobuf;stream=watch");
        let mut wanted = Vec::new();
        protobuf::watch_event(&mut wanted, "ADDED", &object("a")).unwrap();
        protobuf::watch_event(&mut wanted, "ADDED", &object("b")).unwrap();
        assert_eq!(&body[..], wanted);
    }
}
