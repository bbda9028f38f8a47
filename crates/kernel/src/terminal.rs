//! The terminal of a command: its size, and raw mode for as long as a guard lives.

use rustix::stdio::stdin;
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr};

/// Restores the terminal when dropped.
pub struct RawMode(Termios);

/// Puts the terminal of standard input into raw mode; `None` if it is none.
#[must_use]
pub fn raw_mode() -> Option<RawMode> {
    if !isatty(stdin()) {
        return None;
    }
    let before = tcgetattr(stdin()).ok()?;
    let mut raw = before.clone();
    raw.make_raw();
    tcsetattr(stdin(), OptionalActions::Now, &raw).ok()?;
    Some(RawMode(before))
}

impl Drop for RawMode {
    fn drop(&mut self) {
        let _ = tcsetattr(stdin(), OptionalActions::Now, &self.0);
    }
}

/// Columns and rows of the terminal of standard input.
#[must_use]
pub fn size() -> Option<(u16, u16)> {
    let size = tcgetwinsize(stdin()).ok()?;
    Some((size.ws_col, size.ws_row))
}
