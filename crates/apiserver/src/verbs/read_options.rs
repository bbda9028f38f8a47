//! What a list or watch asks for besides its selectors, and which combinations mean nothing.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use std::time::Duration;

use crate::kinds::{Cause, Invalid};
use crate::request::Query;
use crate::status::ApiError;

const VERSION: &str = "meta.k8s.io/v1";

/// How a list is to relate to the revision it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Match {
    /// As of exactly that one.
    Exact,
    /// As of that one or any later.
    NotOlderThan,
}

/// Where a list goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resume {
    /// As of this revision; the newest if `None`, which is not what the pages before showed.
    pub revision: Option<u64>,
    /// The first key, without the resource's or namespace's own prefix.
    pub start: String,
}

/// The form in which clients keep a [`Resume`]. Upstream's, so that a token outlives a move from one to the other.
#[derive(Serialize, Deserialize)]
struct Token {
    #[serde(default)]
    v: String,
    #[serde(default)]
    rv: i64,
    #[serde(default)]
    start: String,
}

impl Resume {
    /// The token of a page that begins there.
    #[must_use]
    pub fn encode(&self) -> String {
        let rv = self.revision.map_or(-1, |r| i64::try_from(r).unwrap_or(i64::MAX));
        let token = Token { v: VERSION.to_owned(), rv, start: self.start.clone() };
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(&token).unwrap_or_default())
    }

    fn decode(text: &str) -> Result<Self, ApiError> {
        let bad = |why: String| ApiError::BadRequest(format!("invalid continue token: {why}"));
        let invalid = |why: String| bad(format!("continue key is not valid{why}"));
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|e| invalid(format!(": {e}")))?;
        let token: Token = serde_json::from_slice(&bytes).map_err(|e| invalid(format!(": {e}")))?;
        if token.v != VERSION {
            return Err(invalid(format!(": server does not recognize this encoded version {}", token.v)));
        }
        if token.rv == 0 {
            return Err(invalid(format!(": incorrect encoded start resourceVersion (version {VERSION})")));
        }
        if token.start.is_empty() {
            return Err(invalid(format!(": encoded start key empty (version {VERSION})")));
        }
        let relative = token.start.strip_prefix('/').unwrap_or(&token.start);
        if relative.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(invalid(format!(": {}", token.start)));
        }
        Ok(Self { revision: u64::try_from(token.rv).ok(), start: relative.to_owned() })
    }
}

/// What a list or watch asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// At most so many objects in one answer.
    pub limit: Option<usize>,
    /// Where the list goes on.
    pub from: Option<Resume>,
    /// The revision named; `Some(0)` for any.
    pub revision: Option<u64>,
    /// How it is meant.
    pub matching: Option<Match>,
    /// How long a watch lasts.
    pub timeout: Option<Duration>,
    /// Whether a watch tells how far it is.
    pub bookmarks: bool,
    /// Whether a watch begins with the state.
    pub initial: Option<bool>,
}

impl Options {
    /// Reads and checks them.
    ///
    /// # Errors
    /// [`ApiError::Invalid`] for combinations that upstream refuses, [`ApiError::BadRequest`] for what cannot be read.
    pub fn parse(query: &Query, watch: bool) -> Result<Self, ApiError> {
        let number = |key| query.get(key).map(integer).transpose();
        let limit = number("limit")?;
        let timeout = number("timeoutSeconds")?;
        let initial = query.get("sendInitialEvents").map(|v| !matches!(v, "false" | "0"));
        let causes = if watch { watch_causes(query, initial) } else { list_causes(query, initial) };
        if !causes.is_empty() {
            let (kind, group) = ("ListOptions".to_owned(), "meta.k8s.io".to_owned());
            return Err(ApiError::Invalid { kind, group, name: String::new(), causes: Invalid(causes) });
        }
        let from = query.get("continue").filter(|_| !watch).map(Resume::decode).transpose()?;
        let named = query.get("resourceVersion");
        if from.is_some() && named.is_some_and(|r| r != "0") {
            let why = "specifying resource version is not allowed when using continue";
            return Err(ApiError::BadRequest(why.to_owned()));
        }
        let revision = named.map(str::parse::<u64>).transpose();
        let revision = revision.map_err(|_| {
            let value = named.unwrap_or_default();
            let quoted = serde_json::Value::from(value);
            let problem = if value.bytes().all(|b| b.is_ascii_digit()) {
                "value out of range"
            } else {
                "invalid syntax"
            };
            let cause = format!(
                "resourceVersion: Invalid value: {quoted}: strconv.ParseUint: parsing {quoted}: {problem}"
            );
            ApiError::BadRequest(format!("invalid resource version: {cause}"))
        })?;
        let mut options = Self {
            limit: limit.and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0),
            from,
            revision,
            matching: match query.get("resourceVersionMatch") {
                Some("Exact") => Some(Match::Exact),
                Some("NotOlderThan") => Some(Match::NotOlderThan),
                _ => None,
            },
            timeout: timeout.and_then(|s| u64::try_from(s).ok()).filter(|s| *s > 0).map(Duration::from_secs),
            bookmarks: query.flag("allowWatchBookmarks"),
            initial,
        };
        // Upstream's older way to ask for the state first.
        if watch && initial.is_none() && options.revision.is_none_or(|r| r == 0) {
            options.initial = Some(true);
        }
        Ok(options)
    }

    /// Whether the list is to be as of exactly the revision it names.
    #[must_use]
    pub fn exact(&self) -> bool {
        let older_rule = self.matching.is_none() && self.limit.is_some();
        self.matching == Some(Match::Exact) || older_rule && self.revision.is_some_and(|r| r > 0)
    }
}

fn integer(text: &str) -> Result<i64, ApiError> {
    text.parse().map_err(|_| {
        let quoted = serde_json::Value::from(text);
        ApiError::BadRequest(format!("strconv.ParseInt: parsing {quoted}: invalid syntax"))
    })
}

const MATCH: &str = "resourceVersionMatch";
const INITIAL: &str = "sendInitialEvents";

fn list_causes(query: &Query, initial: Option<bool>) -> Vec<Cause> {
    let mut causes = Vec::new();
    if let Some(matching) = query.get(MATCH) {
        let version = query.get("resourceVersion");
        if version.is_none() {
            let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            causes.push(Cause::forbidden(MATCH, why));
        }
        causes.extend(continued(query));
        if !matches!(matching, "Exact" | "NotOlderThan") {
            causes.push(Cause::not_supported(MATCH, matching, &["Exact", "NotOlderThan", ""]));
        }
        if matching == "Exact" && version == Some("0") {
            let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            causes.push(Cause::forbidden(MATCH, why));
        }
    }
    if initial.is_some() {
        causes.push(Cause::forbidden(INITIAL, "sendInitialEvents is forbidden for list"));
    }
    causes
}

fn watch_causes(query: &Query, initial: Option<bool>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let matching = query.get(MATCH);
    if initial.is_some() && matching != Some("NotOlderThan") {
        let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        causes.push(Cause::forbidden(MATCH, why));
    }
    if let Some(matching) = matching {
        if initial.is_none() {
            let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            causes.push(Cause::forbidden(MATCH, why));
        }
        if matching != "NotOlderThan" {
            causes.push(Cause::not_supported(MATCH, matching, &["NotOlderThan"]));
        }
        causes.extend(continued(query));
    }
    causes
}

fn continued(query: &Query) -> Option<Cause> {
    let why = "resourceVersionMatch is forbidden when continue is provided";
    query.get("continue").map(|_| Cause::forbidden(MATCH, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(query: &str, watch: bool) -> Option<(u16, String)> {
        let refused = Options::parse(&Query::parse(query), watch).err()?;
        Some((refused.code().0.as_u16(), refused.to_string()))
    }

    /// Each row: the query, whether it is a watch, and what is said against it after the common beginning.
    #[test]
    fn combinations_that_mean_nothing_are_refused_in_upstreams_words() {
        const HEAD: &str = "ListOptions.meta.k8s.io \"\" is invalid: ";
        let unless = "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided";
        let continued =
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided";
        let requires = "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        let rows: &[(&str, bool, &str)] = &[
            ("resourceVersionMatch=Exact", false, unless),
            ("resourceVersionMatch=NotOlderThan", false, unless),
            (
                "resourceVersionMatch=Exact&resourceVersion=0",
                false,
                "resourceVersionMatch: Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            ),
            (
                "resourceVersionMatch=Newest&resourceVersion=1",
                false,
                "resourceVersionMatch: Unsupported value: \"Newest\": supported values: \"\", \"Exact\", \"NotOlderThan\"",
            ),
            ("resourceVersionMatch=Exact&resourceVersion=1&continue=x", false, continued),
            (
                "sendInitialEvents=true",
                false,
                "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list",
            ),
            (
                "sendInitialEvents=false",
                false,
                "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list",
            ),
            ("sendInitialEvents=true", true, requires),
            ("sendInitialEvents=false", true, requires),
            (
                "resourceVersionMatch=NotOlderThan",
                true,
                "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is \
                 provided",
            ),
            ("sendInitialEvents=true&resourceVersionMatch=NotOlderThan&continue=x", true, continued),
        ];
        for (query, watch, why) in rows {
            assert_eq!(refusal(query, *watch), Some((422, format!("{HEAD}{why}"))), "{query}");
        }
        let both = refusal("resourceVersionMatch=Exact&continue=x", false).unwrap().1;
        assert_eq!(both, format!("{HEAD}[{unless}, {continued}]"));
    }

    #[test]
    fn what_cannot_be_read_is_a_bad_request() {
        let token = |text: &str| format!("continue={}", URL_SAFE_NO_PAD.encode(text));
        let good = token("{\"v\":\"meta.k8s.io/v1\",\"rv\":5,\"start\":\"a\"}");
        let rows = [
            ("limit=x".to_owned(), "strconv.ParseInt: parsing \"x\": invalid syntax"),
            ("timeoutSeconds=x".to_owned(), "strconv.ParseInt: parsing \"x\": invalid syntax"),
            (
                "resourceVersion=x".to_owned(),
                "invalid resource version: resourceVersion: Invalid value: \"x\": strconv.ParseUint: parsing \"x\": \
                 invalid syntax",
            ),
            (
                format!("{good}&resourceVersion=3"),
                "specifying resource version is not allowed when using continue",
            ),
            (
                token("{}"),
                "invalid continue token: continue key is not valid: server does not recognize this encoded version ",
            ),
            (
                token("{\"v\":\"meta.k8s.io/v1\",\"start\":\"a\"}"),
                "invalid continue token: continue key is not valid: incorrect encoded start resourceVersion (version \
                 meta.k8s.io/v1)",
            ),
            (
                token("{\"v\":\"meta.k8s.io/v1\",\"rv\":5}"),
                "invalid continue token: continue key is not valid: encoded start key empty (version meta.k8s.io/v1)",
            ),
            (
                token("{\"v\":\"meta.k8s.io/v1\",\"rv\":5,\"start\":\"../x\"}"),
                "invalid continue token: continue key is not valid: ../x",
            ),
        ];
        for (query, why) in rows {
            assert_eq!(refusal(&query, false), Some((400, why.to_owned())), "{query}");
        }
        let (code, why) = refusal("continue=%25", false).unwrap();
        assert!(
            code == 400 && why.starts_with("invalid continue token: continue key is not valid: "),
            "{why}"
        );
    }

    #[test]
    fn what_is_asked_for_is_understood() {
        let parse = |query: &str, watch| Options::parse(&Query::parse(query), watch).unwrap();
        assert_eq!(parse("limit=-1&timeoutSeconds=0", false), Options::default());
        assert!(parse("limit=5&resourceVersion=7", false).exact());
        assert!(!parse("limit=5&resourceVersion=0", false).exact());
        assert!(!parse("limit=5&resourceVersion=7&resourceVersionMatch=NotOlderThan", false).exact());
        assert!(parse("resourceVersion=7&resourceVersionMatch=Exact", false).exact());
        for from in [
            Resume { revision: Some(9), start: "default/a\0".to_owned() },
            Resume { revision: None, start: "a".to_owned() },
        ] {
            let options = parse(&format!("continue={}&resourceVersion=0", from.encode()), false);
            assert_eq!(options.from, Some(from));
        }
        for (query, initial) in [
            ("", Some(true)),
            ("resourceVersion=0", Some(true)),
            ("resourceVersion=7", None),
            ("sendInitialEvents=false&resourceVersionMatch=NotOlderThan", Some(false)),
        ] {
            assert_eq!(parse(query, true).initial, initial, "{query}");
        }
    }
}
