//! Tokens with which a node joins: Secrets `bootstrap-token-ID` in `kube-system`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use trine_objects::time;

use crate::kinds::Objects;
use crate::registry::text;
use crate::user::User;

/// The type of such Secrets.
pub const TYPE: &str = "bootstrap.kubernetes.io/token";
/// The group of all who show one.
const GROUP: &str = "system:bootstrappers";

/// Splits `ID.SECRET`, six and sixteen lower-case letters and digits.
#[must_use]
pub fn parts(token: &str) -> Option<(&str, &str)> {
    let plain = |part: &str| part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let (id, secret) = token.split_once('.')?;
    (id.len() == 6 && secret.len() == 16 && plain(id) && plain(secret)).then_some((id, secret))
}

/// Who shows this token; `None` if it is not one that holds.
#[must_use]
pub fn user(objects: &dyn Objects, token: &str, now: i64) -> Option<User> {
    let (id, secret) = parts(token)?;
    let object = objects.get("", "secrets", "kube-system", &format!("bootstrap-token-{id}"))?;
    let data = |key: &str| -> String {
        let bytes = STANDARD.decode(text(&object["data"][key])).unwrap_or_default();
        String::from_utf8(bytes).unwrap_or_default()
    };
    let holds = object["type"] == TYPE
        && object["metadata"]["deletionTimestamp"].is_null()
        && data("token-id") == id
        && equal(data("token-secret").as_bytes(), secret.as_bytes())
        && data("usage-bootstrap-authentication") == "true"
        && !expired(&object, &data("expiration"), now);
    if !holds {
        return None;
    }
    let extra = data("auth-extra-groups");
    let extra = extra.split(',').map(str::trim).filter(|g| g.starts_with(&format!("{GROUP}:")));
    let groups: Vec<&str> = std::iter::once(GROUP).chain(extra).collect();
    Some(User::new(&format!("system:bootstrap:{id}"), &groups))
}

/// Without an expiration it holds for ever; with one that cannot be read, not at all.
fn expired(object: &Value, expiration: &str, now: i64) -> bool {
    if object["data"]["expiration"].is_null() || expiration.is_empty() {
        return false;
    }
    time::parse(expiration).is_none_or(|at| at <= now)
}

/// Compares in a time that does not depend on where they differ.
fn equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    struct One(Value);

    impl Objects for One {
        fn get(&self, _: &str, resource: &str, namespace: &str, name: &str) -> Option<Value> {
            let wanted = ("secrets", "kube-system", "bootstrap-token-abcdef");
            ((resource, namespace, name) == wanted).then(|| self.0.clone())
        }

        fn list(&self, _: &str, _: &str) -> Vec<Value> {
            Vec::new()
        }
    }

    fn secret(change: &[(&str, &str)]) -> One {
        let mut data = json!({});
        let whole = [
            ("token-id", "abcdef"),
            ("token-secret", "0123456789abcdef"),
            ("usage-bootstrap-authentication", "true"),
            ("auth-extra-groups", "system:bootstrappers:worker,system:masters"),
            ("expiration", "2030-01-01T00:00:00Z"),
        ];
        for (key, value) in whole.iter().chain(change) {
            data[*key] = STANDARD.encode(value).into();
        }
        One(json!({"metadata": {}, "type": TYPE, "data": data}))
    }

    #[test]
    fn a_token_holds_while_its_secret_says_so() {
        let token = "abcdef.0123456789abcdef";
        let found = user(&secret(&[]), token, 0).unwrap();
        assert_eq!(found.name, "system:bootstrap:abcdef");
        assert_eq!(
            found.groups,
            ["system:bootstrappers", "system:bootstrappers:worker", "system:authenticated"]
        );
        assert_eq!(user(&secret(&[]), "abcdef.0123456789abcdeg", 0), None);
        assert_eq!(user(&secret(&[]), token, 2_000_000_000), None, "expired");
        for change in
            [("token-secret", "x"), ("usage-bootstrap-authentication", "false"), ("expiration", "soon")]
        {
            assert_eq!(user(&secret(&[change]), token, 0), None, "{change:?}");
        }
        for text in ["", "abcdef", "abcdef.short", "ABCDEF.0123456789abcdef", "abcdef.0123456789abcdef.x"] {
            assert_eq!(parts(text), None, "{text}");
        }
    }
}
