//! Fields that a write cannot touch, and so cannot own.

use super::set::Set;

/// What of a write counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Filter {
    /// Everything but these fields and what lies below them: `status` when the object itself is written.
    Without(Set),
    /// Only these fields and what lies below them: `status` when the status is written.
    Only(Set),
}

impl Filter {
    /// Everything counts.
    pub const ALL: Self = Self::Without(Set::EMPTY);

    /// What of the set counts.
    #[must_use]
    pub fn apply(&self, set: Set) -> Set {
        match self {
            Self::Without(fields) => set.without(fields),
            Self::Only(fields) => set.within(fields),
        }
    }
}
