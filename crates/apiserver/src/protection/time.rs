//! Which requests may last, and how long the others may. Source: apiserver `endpoints/filters/request_deadline.go`.

use std::time::Duration;

use crate::access::attributes::{Attributes, Subject};
use crate::request::Query;
use crate::status::ApiError;

/// How long a request may take. Upstream: `--request-timeout`, a minute.
const LONGEST: Duration = Duration::from_secs(60);
/// What lasts as long as its client wants.
const STREAMS: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];

/// Whether a request may last: watches, and streams to containers.
#[must_use]
pub fn lasts(wanted: &Attributes) -> bool {
    is_watch(wanted)
        || wanted.verb == "proxy"
        || matches!(&wanted.subject, Subject::Resource(r) if STREAMS.contains(&r.subresource.as_str()))
}

/// Whether it is a watch, which costs something when it begins.
#[must_use]
pub fn is_watch(wanted: &Attributes) -> bool {
    wanted.verb == "watch"
}

/// How long a request may take: what it asks for itself, a minute at most.
///
/// # Errors
/// [`ApiError::BadRequest`] for a `timeout` that is none.
pub fn allowed(query: &Query) -> Result<Duration, ApiError> {
    let Some(given) = query.get("timeout") else { return Ok(LONGEST) };
    let wrong = || {
        let why = format!("invalid timeout specified in the request URL - time: invalid duration {given:?}");
        ApiError::BadRequest(why)
    };
    let seconds = seconds(given).ok_or_else(wrong)?;
    Ok(if seconds > 0.0 && seconds < LONGEST.as_secs_f64() {
        Duration::from_secs_f64(seconds)
    } else {
        LONGEST
    })
}

/// A duration as Go writes it: `1m30s`, `1.5h`, `-2ms`.
fn seconds(text: &str) -> Option<f64> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0.0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut sum = 0.0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..end].parse().ok()?;
        let unit = rest[end..].find(|c: char| c.is_ascii_digit() || c == '.').map_or(rest.len(), |n| end + n);
        sum += number
            * match &rest[end..unit] {
                "ns" => 1e-9,
                "us" | "µs" | "μs" => 1e-6,
                "ms" => 1e-3,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                _ => return None,
            };
        rest = &rest[unit..];
    }
    Some(sign * sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Method;

    #[test]
    fn a_request_gets_the_time_that_it_asks_for_up_to_a_minute() {
        let millis = |text: &str| allowed(&Query::parse(text)).map(|d| d.as_millis());
        for (query, wanted) in [
            ("", 60_000),
            ("timeout=30s", 30_000),
            ("timeout=1.5s", 1500),
            ("timeout=250ms", 250),
            ("timeout=2m", 60_000),
            ("timeout=1h5m", 60_000),
            ("timeout=0s", 60_000),
            ("timeout=0", 60_000),
            ("timeout=-5s", 60_000),
        ] {
            assert_eq!(millis(query), Ok(wanted), "{query}");
        }
        for wrong in ["5", "s", "1x", "1s2", "-"] {
            let said = millis(&format!("timeout={wrong}")).unwrap_err().to_string();
            assert!(said.starts_with("invalid timeout specified in the request URL - "), "{said}");
        }
    }

    #[test]
    fn watches_and_streams_last() {
        let lasts = |method, path, query| lasts(&Attributes::read(&method, path, query));
        assert!(lasts(Method::GET, "/api/v1/pods", "watch=true"));
        assert!(lasts(Method::GET, "/api/v1/namespaces/a/pods/b/log", ""));
        assert!(lasts(Method::POST, "/api/v1/namespaces/a/services/b/proxy/x", ""));
        assert!(!lasts(Method::GET, "/api/v1/pods", "") && !lasts(Method::GET, "/healthz", "watch=true"));
    }
}
