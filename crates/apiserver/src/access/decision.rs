//! What an authorizer says.

/// An answer. Nobody denies: what nobody allows is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Yes, and why.
    Allow(String),
    /// Not by this authorizer, and perhaps why.
    NoOpinion(String),
}

impl Decision {
    /// Allowed without a word.
    #[must_use]
    pub fn yes() -> Self {
        Self::Allow(String::new())
    }

    /// No opinion, with the reason.
    #[must_use]
    pub fn no(why: impl Into<String>) -> Self {
        Self::NoOpinion(why.into())
    }

    /// Whether it is allowed.
    #[must_use]
    pub fn allowed(&self) -> bool {
        matches!(self, Self::Allow(_))
    }

    /// The reason, perhaps empty.
    #[must_use]
    pub fn reason(&self) -> &str {
        match self {
            Self::Allow(why) | Self::NoOpinion(why) => why,
        }
    }
}
