//! Field selectors: `metadata.name=web,status.phase!=Running`.

use super::SelectorError;

/// A conjunction of (in)equalities on named fields. The empty selector matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSelector {
    /// All must hold.
    pub terms: Vec<Term>,
}

/// One field compared with one value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Term {
    /// Path, as `metadata.name`.
    pub field: String,
    /// The value compared with.
    pub value: String,
    /// `true` for `=`, `false` for `!=`.
    pub equal: bool,
}

impl FieldSelector {
    /// Reads the text of a `fieldSelector` query parameter. A backslash escapes `\`, `,` and `=` in a value.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut terms = Vec::new();
        for part in split_terms(text) {
            if part.is_empty() {
                continue;
            }
            terms.push(parse_term(part)?);
        }
        Ok(Self { terms })
    }

    /// Whether an object with these field values is selected. A field that the object does not report is an empty value.
    pub fn matches(&self, fields: &[(String, String)]) -> bool {
        self.terms.iter().all(|t| {
            let value = fields.iter().find(|(name, _)| *name == t.field).map_or("", |(_, v)| v.as_str());
            (value == t.value) == t.equal
        })
    }

    /// The value that a field must have, if the selector says so: to choose an index.
    pub fn required(&self, field: &str) -> Option<&str> {
        self.terms.iter().find(|t| t.equal && t.field == field).map(|t| t.value.as_str())
    }

    /// The first field that is not among those supported.
    pub fn unsupported<'a>(&'a self, supported: &[&str]) -> Option<&'a str> {
        self.terms.iter().map(|t| t.field.as_str()).find(|f| !supported.contains(f))
    }

    /// Whether everything matches.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }
}

/// Splits at commas that are not escaped.
fn split_terms(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut escaped) = (Vec::new(), 0, false);
    for (i, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                parts.push(&text[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn parse_term(part: &str) -> Result<Term, SelectorError> {
    let invalid = || SelectorError(format!("invalid selector: '{part}'; can't understand '{part}'"));
    let at = part.find(['=', '!']).ok_or_else(invalid)?;
    let (field, rest) = part.split_at(at);
    let (equal, value) = if let Some(v) = rest.strip_prefix("!=") {
        (false, v)
    } else if let Some(v) = rest.strip_prefix("==") {
        (true, v)
    } else if let Some(v) = rest.strip_prefix('=') {
        (true, v)
    } else {
        return Err(invalid());
    };
    Ok(Term { field: field.trim().to_owned(), value: unescape(value)?, equal })
}

fn unescape(value: &str) -> Result<String, SelectorError> {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(next @ ('\\' | ',' | '=')) => out.push(next),
                other => {
                    let shown = other.map(String::from).unwrap_or_default();
                    return Err(SelectorError(format!(
                        "invalid field selector: invalid escape sequence: \\{shown}"
                    )));
                }
            },
            '=' | ',' => {
                return Err(SelectorError(format!(
                    "invalid field selector: unescaped character in value: {c}"
                )));
            }
            _ => out.push(c),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
    }

    #[test]
    fn terms_are_read_and_matched() {
        let web = fields(&[("metadata.name", "web"), ("spec.nodeName", ""), ("a", "x,y=z")]);
        for (text, wanted) in [
            ("", true),
            ("metadata.name=web", true),
            ("metadata.name==web", true),
            ("metadata.name!=web", false),
            ("metadata.name=web,spec.nodeName=", true),
            ("metadata.name=web,spec.nodeName!=", false),
            ("status.phase=", true),
            ("status.phase=Running", false),
            (r"a=x\,y\=z", true),
        ] {
            let selector = FieldSelector::parse(text).unwrap();
            assert_eq!(selector.matches(&web), wanted, "{text}");
        }
        assert_eq!(FieldSelector::parse("spec.nodeName=n1").unwrap().required("spec.nodeName"), Some("n1"));
    }

    #[test]
    fn malformed_terms_are_refused() {
        for text in ["metadata.name", "a!b", r"a=\x", "a=b=c"] {
            assert!(FieldSelector::parse(text).is_err(), "{text}");
        }
    }
}
