//! Credentials.

use std::fmt;

use base64::Engine;

/// Credentials for a registry.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Auth {
    /// Name and password.
    Basic {
        /// The name.
        username: String,
        /// The password, or a token that stands for one.
        password: String,
    },
    /// A token that the registry itself takes.
    Token(String),
}

impl Auth {
    /// From base64 of `name:password`, as configuration files of docker hold it.
    #[must_use]
    pub fn from_base64(text: &str) -> Option<Self> {
        let bytes = base64::engine::general_purpose::STANDARD.decode(text.trim()).ok()?;
        let text = String::from_utf8(bytes).ok()?;
        let (username, password) = text.split_once(':')?;
        Some(Self::Basic { username: username.into(), password: password.trim_end_matches('\0').into() })
    }
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Basic { username, .. } => write!(f, "Basic({username}, …)"),
            Self::Token(_) => f.write_str("Token(…)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_read_from_base64_and_never_shown() {
        let auth = Auth::from_base64("bWU6czpl").unwrap();
        assert_eq!(auth, Auth::Basic { username: "me".into(), password: "s:e".into() });
        assert!(!format!("{auth:?}").contains("s:e"));
        assert!(Auth::from_base64("!").is_none());
    }
}
