//! What registries say when they say no.

use serde::Deserialize;

use crate::error::Fault;

/// Why a registry gave no image.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// No answer, or the connection broke.
    #[error("{call} {url}")]
    Http {
        /// `GET` or `read`.
        call: &'static str,
        /// Of what.
        url: String,
        /// What the connection said.
        source: reqwest::Error,
    },
    /// Another answer than the one that was hoped for.
    #[error("{url} answers {status}: {message}")]
    Status {
        /// Of what.
        url: String,
        /// The HTTP status.
        status: u16,
        /// The registry's codes and words (`manifest unknown`).
        message: String,
    },
    /// The registry or its token service refuses the credentials, or wants some.
    #[error(
        "unauthorized: {message} ({url} answers {status}); the image may not exist or may need credentials"
    )]
    Unauthorized {
        /// Of what.
        url: String,
        /// The HTTP status.
        status: u16,
        /// The registry's codes and words.
        message: String,
    },
    /// Nothing came for too long.
    #[error("no progress for {seconds} s at {url}")]
    Stalled {
        /// Of what.
        url: String,
        /// The deadline.
        seconds: u64,
    },
    /// An answer that no registry should give.
    #[error("{url}: {why}")]
    Protocol {
        /// Of what.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// What is said of a registry's hosts cannot be used.
    #[error("{path}: {why}")]
    Hosts {
        /// The file.
        path: std::path::PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// None of the hosts that were tried has it.
    #[error("none of its hosts has it: {}", each(tried))]
    Everywhere {
        /// The hosts in their order with what each said; never none.
        tried: Vec<(String, RegistryError)>,
    },
    /// No host may be asked.
    #[error("no host of this registry may be asked: its hosts.toml allows none of them to resolve and pull")]
    NoHost,
    /// No client could be made: no certificates to trust, most likely.
    #[error("cannot set up TLS (are the machine's CA certificates installed?)")]
    Tls {
        /// What the library said.
        source: reqwest::Error,
    },
}

impl RegistryError {
    pub(crate) fn fault(&self) -> Fault {
        match self {
            Self::Http { source, .. } if source.is_timeout() => Fault::Timeout,
            Self::Http { .. } => Fault::Unavailable,
            Self::Status { status: 404, .. } => Fault::NotFound,
            Self::Status { status: 429 | 500.., .. } => Fault::Unavailable,
            Self::Status { .. } | Self::Protocol { .. } => Fault::Invalid,
            Self::Unauthorized { .. } => Fault::Unauthorized,
            Self::Stalled { .. } => Fault::Timeout,
            Self::Hosts { .. } | Self::NoHost => Fault::Invalid,
            // The last one is the registry itself.
            Self::Everywhere { tried } => tried.last().map_or(Fault::NotFound, |(_, error)| error.fault()),
            Self::Tls { .. } => Fault::Internal,
        }
    }

    /// The error for what several hosts said; of one, that one's.
    pub(crate) fn of_several(mut tried: Vec<(String, Self)>) -> Self {
        match tried.len() {
            0 => Self::NoHost,
            1 => tried.remove(0).1,
            _ => Self::Everywhere { tried },
        }
    }

    /// The error for an answer that is not a success.
    pub(crate) fn of_status(url: &str, status: u16, body: &[u8]) -> Self {
        let (url, message) = (url.to_owned(), message(status, body));
        match status {
            401 | 403 => Self::Unauthorized { url, status, message },
            _ => Self::Status { url, status, message },
        }
    }
}

/// What each host said, with causes.
fn each(tried: &[(String, RegistryError)]) -> String {
    let one = |(host, error): &(String, RegistryError)| {
        let mut text = format!("{host}: {error}");
        let mut next = std::error::Error::source(error);
        while let Some(cause) = next {
            text = format!("{text}: {cause}");
            next = cause.source();
        }
        text
    };
    tried.iter().map(one).collect::<Vec<_>>().join("; ")
}

#[derive(Deserialize)]
struct Envelope {
    errors: Vec<Line>,
}

#[derive(Deserialize)]
struct Line {
    #[serde(default)]
    code: String,
    #[serde(default)]
    message: String,
}

/// The registry's own words in one line.
fn message(status: u16, body: &[u8]) -> String {
    let lines = serde_json::from_slice::<Envelope>(body).map(|envelope| envelope.errors).unwrap_or_default();
    let texts: Vec<String> =
        lines
            .into_iter()
            .map(|line| {
                if line.message.is_empty() {
                    line.code.to_lowercase().replace('_', " ")
                } else {
                    line.message
                }
            })
            .collect();
    if !texts.is_empty() {
        return texts.join("; ");
    }
    let known = reqwest::StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
    known.unwrap_or("no reason given").to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_registrys_own_words_are_kept() {
        let body =
            br#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown","detail":{"Tag":"x"}}]}"#;
        let error = RegistryError::of_status("http://r/v2/a/manifests/x", 404, body);
        assert!(error.to_string().ends_with("404: manifest unknown"), "{error}");
        assert_eq!(error.fault(), Fault::NotFound);
        let error = RegistryError::of_status("u", 401, br#"{"errors":[{"code":"UNAUTHORIZED"}]}"#);
        assert!(error.to_string().starts_with("unauthorized"), "{error}");
        assert_eq!(error.fault(), Fault::Unauthorized);
        let error = RegistryError::of_status("u", 502, b"<html>");
        assert!(error.to_string().contains("bad gateway"), "{error}");
        assert_eq!(error.fault(), Fault::Unavailable);
    }
}
