//! What becomes of a sandbox that a new daemon finds. Pure.

use crate::sandbox::SandboxState;

/// What was found.
#[derive(Debug, Clone, Copy)]
pub struct Found {
    /// As it was recorded.
    pub state: SandboxState,
    /// It was made in this boot.
    pub same_boot: bool,
    /// Its keeper lives.
    pub keeper: bool,
}

/// What is done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It runs: carry on.
    Adopt,
    /// Its making was cut short, and nobody knows its id: remove it.
    Undo,
    /// It is not ready, or not any more: what is left of it, also by a stop that was cut short, is let go of, and it is seen as
    /// not ready.
    Lost,
}

/// The fate of a sandbox.
#[must_use]
pub fn fate(found: Found) -> Fate {
    match found {
        Found { state: SandboxState::Making, .. } => Fate::Undo,
        Found { state: SandboxState::Ready, same_boot: true, keeper: true } => Fate::Adopt,
        Found { state: SandboxState::Ready | SandboxState::NotReady, .. } => Fate::Lost,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_ready_sandbox_of_this_boot_with_a_keeper_is_taken_over() {
        use SandboxState::{Making, NotReady, Ready};
        for (state, same_boot, keeper, expected) in [
            (Making, true, true, Fate::Undo),
            (Making, false, false, Fate::Undo),
            (Ready, true, true, Fate::Adopt),
            (Ready, true, false, Fate::Lost),
            (Ready, false, false, Fate::Lost),
            (NotReady, true, true, Fate::Lost),
            (NotReady, true, false, Fate::Lost),
        ] {
            assert_eq!(fate(Found { state, same_boot, keeper }), expected, "{state:?} {same_boot} {keeper}");
        }
    }
}
