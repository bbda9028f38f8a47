//! `$(NAME)` references: replaced if the name is known, left alone if not; `$$` is a dollar sign.

/// Replaces the references in `text` by what `lookup` knows.
#[must_use]
pub fn expand(text: &str, lookup: impl Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let tail = &rest[at + 1..];
        if let Some(after) = tail.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) = tail.strip_prefix('(').and_then(|t| t.split_once(')')) {
            match lookup(name) {
                Some(value) => out.push_str(&value),
                None => {
                    out.push_str("$(");
                    out.push_str(name);
                    out.push(')');
                }
            }
            rest = after;
        } else {
            out.push('$');
            rest = tail;
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_replaced_escaped_or_left_alone() {
        let rows = [
            ("plain", "plain"),
            ("$(A)", "1"),
            ("x$(A)y$(A)", "x1y1"),
            ("$(UNKNOWN)", "$(UNKNOWN)"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$1"),
            ("$$$$(A)", "$$(A)"),
            ("$A", "$A"),
            ("$(A", "$(A"),
            ("$", "$"),
            ("$()", "$()"),
            ("é$(A)é", "é1é"),
        ];
        for (text, expected) in rows {
            let got = expand(text, |name| (name == "A").then(|| "1".to_owned()));
            assert_eq!(got, expected, "{text}");
        }
    }
}
