//! `/openapi`: documents under their hashes, so that clients may keep them.

use axum::body::Body;
use axum::response::Response;
use http::{HeaderMap, HeaderValue, Request, StatusCode, header};

use crate::catalog::Resources;
use crate::openapi::{Document, Foreign, OpenApi};
use crate::request::Query;
use crate::status::ApiError;

const JSON: &str = "application/json";
/// Two spellings of one type: the older has a character that media types must not have.
const PROTOBUF: [&str; 2] = [
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
];
/// How long a document under its hash may be kept, seconds. Upstream: a year.
const KEPT: i64 = 365 * 86_400;

/// Answers what lies below `/openapi`.
///
/// # Errors
/// [`ApiError::NoResource`] for paths that are none, [`ApiError::NotAcceptable`].
pub fn answer(
    openapi: &OpenApi,
    resources: &Resources,
    others: &[Foreign],
    path: &[&str],
    request: &Request<Body>,
) -> Result<Response, ApiError> {
    match path {
        ["v3"] => Ok(body(JSON, openapi.index(resources, others))),
        ["v3", rest @ ..] => {
            let path = rest.join("/");
            let document = openapi.document(resources, others, &path).ok_or(ApiError::NoResource)?;
            let query = Query::parse(request.uri().query().unwrap_or_default());
            match query.get("hash") {
                Some(hash) if hash != document.hash => Ok(elsewhere(&path, &document.hash)),
                hash => Ok(kept(JSON, document, request.headers(), hash.is_some())),
            }
        }
        ["v2"] => {
            let (media, document) = match wanted(request.headers())? {
                JSON => (JSON, openapi.all_json(resources, others)),
                _ => (PROTOBUF[0], openapi.all_protobuf(resources, others)),
            };
            Ok(kept(media, document, request.headers(), false))
        }
        _ => Err(ApiError::NoResource),
    }
}

/// The first media type that is taken and there.
fn wanted(headers: &HeaderMap) -> Result<&'static str, ApiError> {
    let accept = headers.get(header::ACCEPT).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let media = accept.split(',').map(|part| part.split(';').next().unwrap_or_default().trim());
    let found = media.filter_map(|media| match media {
        "" | JSON | "*/*" | "application/*" => Some(JSON),
        other => PROTOBUF.contains(&other).then_some(PROTOBUF[0]),
    });
    found
        .into_iter()
        .next()
        .ok_or_else(|| ApiError::NotAcceptable([JSON, PROTOBUF[0], PROTOBUF[1]].join(", ")))
}

fn body(media: &'static str, bytes: impl Into<Body>) -> Response {
    let mut response = Response::new(bytes.into());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    response
}

/// The document, or nothing if the client has it. Under its hash it never changes.
fn kept(media: &'static str, document: Document, headers: &HeaderMap, for_good: bool) -> Response {
    let tag = format!("\"{}\"", document.hash);
    let have = headers.get(header::IF_NONE_MATCH).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let mut response = if have.split(',').any(|one| one.trim().trim_start_matches("W/") == tag) {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else {
        body(media, document.bytes)
    };
    let out = response.headers_mut();
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        out.insert(header::ETAG, tag);
    }
    out.insert(header::VARY, HeaderValue::from_static("Accept"));
    if for_good {
        out.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
        let until = trine_clock::now() + jiff::SignedDuration::from_secs(KEPT);
        let until = until.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
        if let Ok(until) = HeaderValue::from_str(&until) {
            out.insert(header::EXPIRES, until);
        }
    }
    response
}

/// The document has changed since the client saw the index.
fn elsewhere(path: &str, hash: &str) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    if let Ok(location) = HeaderValue::from_str(&format!("/openapi/v3/{path}?hash={hash}")) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;

    fn ask(path: &[&str], query: &str, headers: &[(&str, &str)]) -> Result<Response, ApiError> {
        let mut request = Request::builder().uri(format!("/openapi?{query}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        answer(&OpenApi::new(), &Catalog::new().now(), &[], path, &request.body(Body::empty()).unwrap())
    }

    #[test]
    fn a_document_is_kept_under_its_hash() {
        let first = ask(&["v3", "api", "v1"], "", &[]).unwrap();
        let tag = first.headers()[header::ETAG].to_str().unwrap().to_owned();
        let hash = tag.trim_matches('"');
        assert!(!first.headers().contains_key(header::CACHE_CONTROL));
        let under = ask(&["v3", "api", "v1"], &format!("hash={hash}"), &[]).unwrap();
        assert_eq!(under.headers()[header::CACHE_CONTROL], "public, immutable");
        assert!(under.headers()[header::EXPIRES].to_str().unwrap().ends_with(" GMT"));
        let known = ask(&["v3", "api", "v1"], "", &[("if-none-match", &tag)]).unwrap();
        assert_eq!(known.status(), StatusCode::NOT_MODIFIED);
        let old = ask(&["v3", "api", "v1"], "hash=OLD", &[]).unwrap();
        assert_eq!(old.status(), StatusCode::MOVED_PERMANENTLY);
        assert_eq!(old.headers()[header::LOCATION], format!("/openapi/v3/api/v1?hash={hash}"));
        assert_eq!(ask(&["v3", "apis", "none", "v1"], "", &[]).unwrap_err(), ApiError::NoResource);
    }

    #[test]
    fn the_older_form_comes_in_two_encodings() {
        for (accept, wanted) in [
            ("", JSON),
            ("application/json", JSON),
            ("application/com.github.proto-openapi.spec.v2@v1.0+protobuf", PROTOBUF[0]),
            ("application/com.github.proto-openapi.spec.v2.v1.0+protobuf;q=0.9, */*", PROTOBUF[0]),
        ] {
            let response = ask(&["v2"], "", &[("accept", accept)]).unwrap();
            assert_eq!(response.headers()[header::CONTENT_TYPE], wanted, "{accept}");
        }
        assert!(matches!(ask(&["v2"], "", &[("accept", "text/html")]), Err(ApiError::NotAcceptable(_))));
    }
}
