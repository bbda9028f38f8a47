//! A request on its way to the server that serves it, and the answer on its way back.

use std::sync::Arc;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode, header};
use http_body_util::BodyExt;

use super::remote::Unreachable;
use super::{Aggregation, Remote};
use crate::http::proxy::copy;
use crate::http::stream::join;
use crate::user::{self, User};

const USER: HeaderName = HeaderName::from_static("x-remote-user");
const UID: HeaderName = HeaderName::from_static("x-remote-uid");
const GROUP: HeaderName = HeaderName::from_static("x-remote-group");
const EXTRA: &str = "x-remote-extra-";

/// Marks an answer that is another server's: it is left in the form in which it came.
#[derive(Debug, Clone, Copy)]
pub struct Foreign;

/// Says on whose behalf a request is sent; what it said before goes.
pub(super) fn as_user(headers: &mut HeaderMap, user: &User) {
    let said: Vec<HeaderName> =
        headers.keys().filter(|n| n.as_str().starts_with("x-remote-")).cloned().collect();
    said.iter().for_each(|name| drop(headers.remove(name)));
    let mut say = |name: HeaderName, value: &str| {
        if let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) {
            headers.append(name, value);
        }
    };
    say(USER, &user.name);
    if !user.uid.is_empty() {
        say(UID, &user.uid);
    }
    user.groups.iter().for_each(|group| say(GROUP, group));
    for (key, values) in &user.extra {
        if let Ok(name) = HeaderName::from_bytes(format!("{EXTRA}{}", escaped(key)).as_bytes()) {
            values.iter().for_each(|value| say(name.clone(), value));
        }
    }
}

/// A key as a part of a header's name.
fn escaped(key: &str) -> String {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&b);
    key.bytes().map(|b| if token(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

impl Aggregation {
    /// Passes a request on.
    pub async fn pass(&self, remote: &Arc<Remote>, mut request: Request<Body>) -> Response {
        if !remote.available() {
            return refused("service unavailable");
        }
        let Some(user) = user::caller() else { return refused("missing user") };
        let on_client = hyper::upgrade::on(&mut request);
        let upgrade = request.headers().get(header::UPGRADE).cloned();
        let (parts, body) = request.into_parts();
        let path = parts.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        let Ok(mut asked) = Request::builder().method(parts.method).uri(path).body(body) else {
            return refused("the request cannot be passed on");
        };
        copy(&parts.headers, asked.headers_mut());
        as_user(asked.headers_mut(), &user);
        let answer = match upgrade {
            None => remote.send(&self.registry, asked).await,
            Some(upgrade) => {
                asked.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
                asked.headers_mut().insert(header::UPGRADE, upgrade);
                match remote.place(&self.registry) {
                    Ok(place) => remote.send_apart(&place, asked).await,
                    Err(error) => Err(error),
                }
            }
        };
        match answer {
            Ok(answer) if answer.status() == StatusCode::SWITCHING_PROTOCOLS => join(on_client, answer),
            Ok(answer) => {
                let (mut parts, body) = answer.into_parts();
                let mut headers = HeaderMap::new();
                copy(&parts.headers, &mut headers);
                parts.headers = headers;
                parts.version = http::Version::HTTP_11;
                parts.extensions.insert(Foreign);
                Response::from_parts(parts, Body::from_stream(body.into_data_stream()))
            }
            Err(error) => {
                tracing::debug!(name = remote.name, %error, "an aggregated server is not reached");
                match error {
                    Unreachable::Nowhere(_) => refused("service unavailable"),
                    Unreachable::Trust(why) => {
                        (StatusCode::INTERNAL_SERVER_ERROR, format!("{why}\n")).into_response()
                    }
                    silent @ Unreachable::Silent(_) => refused(&silent.to_string()),
                }
            }
        }
    }
}

/// As upstream says it: plain text.
fn refused(why: &str) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn nobody_but_the_proxy_says_who_asks() {
        let mut headers = HeaderMap::new();
        for name in ["x-remote-user", "x-remote-group", "x-remote-extra-scopes", "accept"] {
            headers.insert(name, HeaderValue::from_static("forged"));
        }
        let extra = BTreeMap::from([("example.com/a b".to_owned(), vec!["1".to_owned(), "2".to_owned()])]);
        as_user(&mut headers, &User { extra, ..User::new("jane", &["devs"]) });
        let all =
            |name: &str| -> Vec<&str> { headers.get_all(name).iter().map(|v| v.to_str().unwrap()).collect() };
        assert_eq!(all("x-remote-user"), ["jane"]);
        assert_eq!(all("x-remote-group"), ["devs", "system:authenticated"]);
        assert_eq!(all("x-remote-extra-example.com%2fa%20b"), ["1", "2"]);
        assert_eq!(all("x-remote-extra-scopes"), Vec::<&str>::new());
        assert_eq!(all("accept"), ["forged"]);
    }
}
