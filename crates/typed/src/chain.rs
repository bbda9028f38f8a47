//! One line from a chain of errors. `Display` of our errors never repeats the source, so the chain is joined here.

use std::error::Error;

/// `a: b: c` over the sources of `error`.
#[must_use]
pub fn display(error: &dyn Error) -> String {
    let mut line = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        let text = source.to_string();
        // Foreign errors often repeat their own source; ours do not.
        if !line.ends_with(&text) {
            line.push_str(": ");
            line.push_str(&text);
        }
        next = source.source();
    }
    line
}
