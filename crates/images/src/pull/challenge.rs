//! What a registry asks for in `WWW-Authenticate`. Pure.

/// How a registry wants to be convinced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Challenge {
    /// A token of this service.
    Bearer { realm: String, service: Option<String>, scope: Option<String> },
    /// Name and password.
    Basic,
}

/// Reads one header's value.
pub(crate) fn parse(header: &str) -> Option<Challenge> {
    let (scheme, rest) = header.trim().split_once(' ').unwrap_or((header.trim(), ""));
    if scheme.eq_ignore_ascii_case("basic") {
        return Some(Challenge::Basic);
    }
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    let parameters = parameters(rest);
    let get = |name: &str| {
        parameters.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, v)| v.clone())
    };
    Some(Challenge::Bearer { realm: get("realm")?, service: get("service"), scope: get("scope") })
}

/// `key="value", key=value`; values in quotes may hold commas and escaped quotes.
fn parameters(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = text.trim_start_matches([' ', ',']);
    while let Some((key, after)) = rest.split_once('=') {
        let mut value = String::new();
        if let Some(quoted) = after.strip_prefix('"') {
            let mut chars = quoted.char_indices();
            let mut end = quoted.len();
            while let Some((at, c)) = chars.next() {
                match c {
                    '\\' => value.extend(chars.next().map(|(_, c)| c)),
                    '"' => {
                        end = at + 1;
                        break;
                    }
                    c => value.push(c),
                }
            }
            rest = &quoted[end..];
        } else {
            let end = after.find(',').unwrap_or(after.len());
            value.push_str(after[..end].trim());
            rest = &after[end..];
        }
        found.push((key.trim().to_owned(), value));
        rest = rest.trim_start_matches([' ', ',']);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_read_as_registries_write_them() {
        let bearer = |realm: &str, service: Option<&str>, scope: Option<&str>| {
            Some(Challenge::Bearer {
                realm: realm.into(),
                service: service.map(Into::into),
                scope: scope.map(Into::into),
            })
        };
        for (header, expected) in [
            (
                r#"Bearer realm="https://auth.io/token",service="registry.io",scope="repository:a/b:pull,push""#,
                bearer("https://auth.io/token", Some("registry.io"), Some("repository:a/b:pull,push")),
            ),
            (r#"bearer realm="https://a/t""#, bearer("https://a/t", None, None)),
            (r#"Bearer service=x, realm="q\"uote""#, bearer("q\"uote", Some("x"), None)),
            (r#"Basic realm="x""#, Some(Challenge::Basic)),
            ("Basic", Some(Challenge::Basic)),
            ("Bearer service=x", None),
            ("Negotiate", None),
            ("", None),
        ] {
            assert_eq!(parse(header), expected, "{header}");
        }
    }
}
