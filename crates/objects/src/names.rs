//! What may be a name: of an object, a label, a port. Each function returns the reasons why the text is refused; the wording
//! is what clients of the API know.

/// The longest DNS label and label value, in bytes.
const LABEL_MAX: usize = 63;
/// The longest DNS subdomain, in bytes.
const SUBDOMAIN_MAX: usize = 253;

/// The result of a check: nothing, or the reasons.
pub type Checked = Result<(), Vec<String>>;

fn reasons(list: Vec<String>) -> Checked {
    if list.is_empty() { Ok(()) } else { Err(list) }
}

fn too_long(max: usize) -> String {
    format!("must be no more than {max} bytes")
}

fn lower_alnum(c: u8) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit()
}

fn is_label(text: &str) -> bool {
    let b = text.as_bytes();
    !b.is_empty()
        && b.iter().all(|c| lower_alnum(*c) || *c == b'-')
        && lower_alnum(b[0])
        && lower_alnum(b[b.len() - 1])
}

/// A DNS-1123 label: names of namespaces, containers, volumes.
pub fn dns1123_label(text: &str) -> Checked {
    let mut list = Vec::new();
    if text.len() > LABEL_MAX {
        list.push(too_long(LABEL_MAX));
    }
    if !is_label(text) {
        list.push(
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end \
             with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
                .to_owned(),
        );
    }
    reasons(list)
}

/// A DNS-1123 subdomain: the names of most objects.
pub fn dns1123_subdomain(text: &str) -> Checked {
    let mut list = Vec::new();
    if text.len() > SUBDOMAIN_MAX {
        list.push(too_long(SUBDOMAIN_MAX));
    }
    if !text.split('.').all(is_label) {
        list.push(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start \
             and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
                .to_owned(),
        );
    }
    reasons(list)
}

/// A DNS-1035 label: names of Services.
pub fn dns1035_label(text: &str) -> Checked {
    let mut list = Vec::new();
    if text.len() > LABEL_MAX {
        list.push(too_long(LABEL_MAX));
    }
    if !is_label(text) || !text.starts_with(|c: char| c.is_ascii_lowercase()) {
        list.push(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, \
             and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is \
             '[a-z]([-a-z0-9]*[a-z0-9])?')"
                .to_owned(),
        );
    }
    reasons(list)
}

fn is_token(text: &str) -> bool {
    let b = text.as_bytes();
    !b.is_empty()
        && b.iter().all(|c| c.is_ascii_alphanumeric() || b"-_.".contains(c))
        && b[0].is_ascii_alphanumeric()
        && b[b.len() - 1].is_ascii_alphanumeric()
}

/// A qualified name (`name` or `prefix/name`): keys of labels and annotations, names of finalizers and extended resources.
pub fn qualified_name(text: &str) -> Checked {
    let mut list = Vec::new();
    let name = match text.split_once('/') {
        None => text,
        Some((prefix, name)) if !name.contains('/') => {
            if prefix.is_empty() {
                list.push("prefix part must be non-empty".to_owned());
            } else if let Err(inner) = dns1123_subdomain(prefix) {
                list.extend(inner.into_iter().map(|r| format!("prefix part {r}")));
            }
            name
        }
        Some(_) => {
            return Err(vec![
                "a qualified name must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                 alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
                 '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. \
                 'example.com/MyName')"
                    .to_owned(),
            ]);
        }
    };
    if name.is_empty() {
        list.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_MAX {
        list.push(format!("name part {}", too_long(LABEL_MAX)));
    }
    if !is_token(name) {
        list.push(
            "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
             character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
             '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
                .to_owned(),
        );
    }
    reasons(list)
}

/// A label's value.
pub fn label_value(text: &str) -> Checked {
    let mut list = Vec::new();
    if text.len() > LABEL_MAX {
        list.push(too_long(LABEL_MAX));
    }
    if !text.is_empty() && !is_token(text) {
        list.push(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and \
             end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is \
             '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
                .to_owned(),
        );
    }
    reasons(list)
}

/// A key of a ConfigMap or Secret: a file name.
pub fn config_key(text: &str) -> Checked {
    let mut list = Vec::new();
    if text.len() > SUBDOMAIN_MAX {
        list.push(too_long(SUBDOMAIN_MAX));
    }
    if text.is_empty() || !text.bytes().all(|c| c.is_ascii_alphanumeric() || b"-_.".contains(&c)) {
        list.push(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  \
             or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
                .to_owned(),
        );
    }
    if text == "." {
        list.push("must not be '.'".to_owned());
    } else if text == ".." {
        list.push("must not be '..'".to_owned());
    } else if text.starts_with("..") {
        list.push("must not start with '..'".to_owned());
    }
    reasons(list)
}

/// The name of an environment variable: printable ASCII without `=`.
pub fn env_var_name(text: &str) -> Checked {
    if !text.is_empty() && text.bytes().all(|c| (b' '..=b'~').contains(&c) && c != b'=') {
        return Ok(());
    }
    Err(vec![
        "a valid environment variable name must consist only of printable ASCII characters other than '=' (e.g. \
         'my.env-name',  or 'MY_ENV.NAME',  or 'MyEnvName1', regex used for validation is '[ -<>-~]+')"
            .to_owned(),
    ])
}

/// The name of a container port: an IANA service name.
pub fn port_name(text: &str) -> Checked {
    let mut list = Vec::new();
    if text.len() > 15 {
        list.push("must be no more than 15 characters".to_owned());
    }
    if !text.bytes().all(|c| lower_alnum(c) || c == b'-') {
        list.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !text.bytes().any(|c| c.is_ascii_lowercase()) {
        list.push("must contain at least one letter (a-z)".to_owned());
    }
    if text.contains("--") {
        list.push("must not contain consecutive hyphens".to_owned());
    }
    if text.starts_with('-') || text.ends_with('-') {
        list.push("must not begin or end with a hyphen".to_owned());
    }
    reasons(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::type_complexity, reason = "a table of cases reads best as one literal")]
    #[test]
    fn names_are_judged_as_documented() {
        let long = "a".repeat(64);
        let cases: &[(&str, fn(&str) -> Checked, &[&str], &[&str])] = &[
            ("label", dns1123_label, &["a", "a-1", "0a"], &["", "A", "a.b", "-a", "a-", &long, "a_b"]),
            ("subdomain", dns1123_subdomain, &["a", "a.b-c", &long], &["", ".a", "a..b", "a.", "A.b"]),
            ("1035", dns1035_label, &["a", "a1"], &["1a", "", "a.b"]),
            (
                "qualified",
                qualified_name,
                &["a", "A_b.c", "x.io/Name"],
                &["", "/a", "a/", "a/b/c", "X/a", "-a", "a b"],
            ),
            ("value", label_value, &["", "a", "A.b_c-d"], &["-a", "a b", &long, "a/b"]),
            ("key", config_key, &["a.b", ".hidden", "_"], &["", "a/b", ".", "..", "..a"]),
            ("env", env_var_name, &["A", "a.b-c", "1a"], &["", "a=b", "\u{e9}"]),
            ("port", port_name, &["http", "a-1"], &["", "1", "HTTP", "a--b", "-a", "sixteen-chars-xx"]),
        ];
        for (what, check, good, bad) in cases {
            for text in *good {
                assert_eq!(check(text), Ok(()), "{what} {text:?}");
            }
            for text in *bad {
                assert!(check(text).is_err(), "{what} {text:?}");
            }
        }
    }
}
