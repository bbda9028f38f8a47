//! Tokens: each stands for one session, is good for one use, and not for long.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::error::CriError;
use crate::runtime::new_id;

/// How long a token is good (upstream's number).
const LIFETIME: Duration = Duration::from_secs(60);
/// Tokens at a time (upstream's number).
const MOST: usize = 1000;

/// What a token stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Session {
    /// A further process.
    Exec {
        /// In this container.
        container: String,
        /// This command.
        command: Vec<String>,
        /// With a terminal.
        terminal: bool,
        /// With input.
        stdin: bool,
        /// With output.
        stdout: bool,
        /// With error output.
        stderr: bool,
    },
    /// Joining a container's streams.
    Attach {
        /// This container's.
        container: String,
        /// It has a terminal.
        terminal: bool,
        /// With input.
        stdin: bool,
        /// With output.
        stdout: bool,
        /// With error output.
        stderr: bool,
    },
    /// Connections to ports.
    Forward {
        /// Of this sandbox.
        sandbox: String,
        /// To these, where the client does not name them in its streams.
        ports: Vec<u16>,
    },
}

/// The sessions that wait for their client.
#[derive(Debug, Default)]
pub struct Tokens(Mutex<BTreeMap<String, (Instant, Session)>>);

impl Tokens {
    /// A token for `session`.
    ///
    /// # Errors
    /// [`CriError::State`] if too many wait.
    pub fn issue(&self, call: &'static str, session: Session) -> Result<String, CriError> {
        let token = new_id()?[..32].to_owned();
        let now = Instant::now();
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|_, (issued, _)| now.duration_since(*issued) < LIFETIME);
        if waiting.len() >= MOST {
            return Err(CriError::State {
                call,
                object: "streams".to_owned(),
                why: "too many wait for their clients".to_owned(),
            });
        }
        waiting.insert(token.clone(), (now, session));
        Ok(token)
    }

    /// Takes the session of a token; there is none a second time, or too late.
    #[must_use]
    pub fn take(&self, token: &str) -> Option<Session> {
        let (issued, session) = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(token)?;
        (issued.elapsed() < LIFETIME).then_some(session)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_good_once() {
        let tokens = Tokens::default();
        let session = Session::Attach {
            container: "c".into(),
            terminal: false,
            stdin: false,
            stdout: true,
            stderr: true,
        };
        let token = tokens.issue("Attach", session.clone()).unwrap();
        assert_eq!(tokens.take(&token), Some(session));
        assert_eq!(tokens.take(&token), None);
    }
}
