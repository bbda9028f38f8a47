//! Asking as somebody else: the `Impersonate-*` headers, each of which has to be allowed.

use http::{HeaderMap, HeaderName};

use super::attributes::Attributes;
use crate::status::ApiError;
use crate::user::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, User, account_of};

/// Headers begin with it.
const PREFIX: &str = "impersonate-";
/// Headers of extra keys begin with it.
const EXTRA: &str = "impersonate-extra-";
/// The group of uids and extra keys.
const GROUP: &str = "authentication.k8s.io";

/// As whom a request is to be done, and what that needs to be allowed: `None` if it does not ask for it.
///
/// # Errors
/// [`ApiError::BadRequest`] for headers without a user.
pub fn asked(headers: &HeaderMap) -> Result<Option<(User, Vec<Attributes>)>, ApiError> {
    let all = |name: &str| -> Vec<String> {
        headers.get_all(name).iter().filter_map(|v| v.to_str().ok().map(str::to_owned)).collect()
    };
    let one = |name: &str| all(name).into_iter().next().unwrap_or_default();
    let (name, uid, groups) = (one("impersonate-user"), one("impersonate-uid"), all("impersonate-group"));
    let mut user = User { name, uid, ..User::default() };
    let mut needs = Vec::new();
    let mut need = |group: &str, resource: &str, namespace: &str, name: &str| {
        needs.push(Attributes::of("impersonate", group, resource, namespace, name));
    };
    for key in headers.keys().filter_map(|k| k.as_str().strip_prefix(EXTRA)) {
        let values = all(&format!("{EXTRA}{key}"));
        let key = crate::request::decode(key).to_lowercase();
        values.iter().for_each(|value| need(GROUP, &format!("userextras/{key}"), "", value));
        user.extra.insert(key, values);
    }
    if user.name.is_empty() {
        if user.uid.is_empty() && groups.is_empty() && user.extra.is_empty() {
            return Ok(None);
        }
        let message = "groups, a uid or extra values are asked for without impersonating a user";
        return Err(ApiError::BadRequest(message.to_owned()));
    }
    let account = account_of(&user.name);
    match account {
        Some((namespace, name)) => need("", "serviceaccounts", namespace, name),
        None => need("", "users", "", &user.name),
    }
    if !user.uid.is_empty() {
        need(GROUP, "uids", "", &user.uid);
    }
    groups.iter().for_each(|group| need("", "groups", "", group));
    user.groups = groups;
    if let Some((namespace, name)) = account
        && user.groups.is_empty()
    {
        user.groups = User::account(namespace, name, "").groups;
    }
    let known = if user.name == ANONYMOUS { UNAUTHENTICATED } else { AUTHENTICATED };
    if !user.is_in(UNAUTHENTICATED) && !user.is_in(known) {
        user.groups.push(known.to_owned());
    }
    Ok(Some((user, needs)))
}

/// Takes the headers away.
pub fn forget(headers: &mut HeaderMap) {
    let names: Vec<HeaderName> = headers.keys().filter(|k| k.as_str().starts_with(PREFIX)).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(rows: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in rows {
            headers.append(HeaderName::from_static(name), value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn each_part_of_somebody_else_needs_a_right() {
        assert_eq!(asked(&HeaderMap::new()).unwrap(), None);
        let mut all = headers(&[
            ("impersonate-user", "u"),
            ("impersonate-group", "a"),
            ("impersonate-group", "b"),
            ("impersonate-uid", "1"),
            ("impersonate-extra-acme.com%2fproject", "x"),
        ]);
        let (user, needs) = asked(&all).unwrap().unwrap();
        assert_eq!(user.groups, ["a", "b", AUTHENTICATED]);
        let of = |group: &str, resource: &str, name: &str| {
            Attributes::of("impersonate", group, resource, "", name)
        };
        let wanted =
            [of("", "users", "u"), of("", "groups", "a"), of("", "groups", "b"), of(GROUP, "uids", "1")];
        assert!(wanted.iter().all(|w| needs.contains(w)), "{needs:?}");
        assert_eq!(needs.len(), 5);
        forget(&mut all);
        assert!(all.is_empty());
        assert!(asked(&headers(&[("impersonate-group", "a")])).is_err());
        let account = headers(&[("impersonate-user", "system:serviceaccount:ns:sa")]);
        let (user, needs) = asked(&account).unwrap().unwrap();
        assert_eq!(needs, [Attributes::of("impersonate", "", "serviceaccounts", "ns", "sa")]);
        assert!(user.is_in("system:serviceaccounts:ns"));
    }
}
