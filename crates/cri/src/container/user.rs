//! Who a container runs as: ids, or names that the image's own `/etc/passwd` and `/etc/group` know.

use trine_contracts::cri::{LinuxContainerSecurityContext, SupplementalGroupsPolicy};
use trine_kernel::container::oci::User;

/// The image's lists; empty if it has none.
#[derive(Debug, Clone, Copy, Default)]
pub struct Lists<'a> {
    /// `/etc/passwd`.
    pub passwd: &'a str,
    /// `/etc/group`.
    pub group: &'a str,
}

struct Account<'a> {
    name: &'a str,
    uid: u32,
    gid: u32,
}

impl<'a> Lists<'a> {
    fn accounts(&self) -> impl Iterator<Item = Account<'a>> {
        self.passwd.lines().filter_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            let uid = fields.nth(1)?.parse().ok()?;
            Some(Account { name, uid, gid: fields.next()?.parse().ok()? })
        })
    }

    /// Name, id and members.
    fn groups(&self) -> impl Iterator<Item = (&'a str, u32, &'a str)> {
        self.group.lines().filter_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            let gid = fields.nth(1)?.parse().ok()?;
            Some((name, gid, fields.next().unwrap_or_default()))
        })
    }
}

/// The user of a container: what `security` asks for, else what the image says (`user`, `user:group`, by name or id).
///
/// # Errors
/// A sentence that names what is unknown or contradicts itself.
pub fn resolve(
    security: Option<&LinuxContainerSecurityContext>,
    image_user: &str,
    lists: Lists<'_>,
) -> Result<User, String> {
    let none = LinuxContainerSecurityContext::default();
    let security = security.unwrap_or(&none);
    let number = |value: i64, what: &str| {
        u32::try_from(value).map_err(|_| format!("{what} {value} is not between 0 and 4294967295"))
    };
    let group = security.run_as_group.as_ref().map(|g| number(g.value, "run_as_group")).transpose()?;
    let asked = match (&security.run_as_user, security.run_as_username.as_str()) {
        (Some(uid), _) => Some(number(uid.value, "run_as_user")?.to_string()),
        (None, "") => None,
        (None, name) => Some(name.to_owned()),
    };
    let by_image = asked.is_none();
    if by_image && group.is_some() && image_user.is_empty() {
        return Err("run_as_group is set, but no user".to_owned());
    }
    let text = asked.unwrap_or_else(|| image_user.to_owned());
    let (name, named_group) = match text.split_once(':') {
        Some((name, group)) => (name, Some(group)),
        None => (text.as_str(), None),
    };
    let (uid, primary, login) = account(name, lists)?;
    let gid = match (group, named_group.filter(|g| !g.is_empty())) {
        (Some(gid), _) => gid,
        (None, Some(named)) => group_id(named, lists)?,
        (None, None) => primary,
    };
    let mut further = Vec::new();
    let strict = security.supplemental_groups_policy == SupplementalGroupsPolicy::Strict as i32;
    if !strict && let Some(login) = login {
        let member = |members: &str| members.split(',').any(|m| m.trim() == login);
        further.extend(lists.groups().filter(|(_, _, members)| member(members)).map(|(_, gid, _)| gid));
    }
    for gid in &security.supplemental_groups {
        further.push(number(*gid, "supplemental group")?);
    }
    // The primary group is listed too, as other runtimes do.
    let mut additional_gids = vec![gid];
    for gid in further {
        if !additional_gids.contains(&gid) {
            additional_gids.push(gid);
        }
    }
    Ok(User { uid, gid, additional_gids })
}

/// Id, primary group and name of a user that is given by name or id.
fn account<'a>(text: &str, lists: Lists<'a>) -> Result<(u32, u32, Option<&'a str>), String> {
    let text = if text.is_empty() { "0" } else { text };
    let found = match text.parse::<u32>() {
        Ok(uid) => lists.accounts().find(|a| a.uid == uid).ok_or(uid),
        Err(_) => match lists.accounts().find(|a| a.name == text) {
            Some(account) => Ok(account),
            None => return Err(format!("user {text:?} is not in the image's /etc/passwd")),
        },
    };
    Ok(match found {
        Ok(account) => (account.uid, account.gid, Some(account.name)),
        Err(uid) => (uid, 0, None),
    })
}

fn group_id(text: &str, lists: Lists<'_>) -> Result<u32, String> {
    text.parse().or_else(|_| {
        let found = lists.groups().find(|(name, _, _)| *name == text);
        found.map(|(_, gid, _)| gid).ok_or_else(|| format!("group {text:?} is not in the image's /etc/group"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use trine_contracts::cri::Int64Value;

    const LISTS: Lists<'static> = Lists {
        passwd: "root:x:0:0::/:/bin/sh\nwww:x:33:33::/:/bin/sh\nbroken\napp:x:1000:100::/:/bin/sh\n",
        group: "root:x:0:\nwww:x:33:\nextra:x:50000:app,www\nusers:x:100:\n",
    };

    fn user(image: &str) -> Result<(u32, u32, Vec<u32>), String> {
        resolve(None, image, LISTS).map(|u| (u.uid, u.gid, u.additional_gids))
    }

    #[test]
    fn the_images_user_is_a_name_or_an_id_with_a_group_or_without() {
        assert_eq!(user(""), Ok((0, 0, vec![0])));
        assert_eq!(user("www"), Ok((33, 33, vec![33, 50000])));
        assert_eq!(user("1000"), Ok((1000, 100, vec![100, 50000])));
        assert_eq!(user("1002"), Ok((1002, 0, vec![0])));
        assert_eq!(user("1003:1004"), Ok((1003, 1004, vec![1004])));
        assert_eq!(user("www:users"), Ok((33, 100, vec![100, 50000])));
        assert!(user("nobody").unwrap_err().contains("/etc/passwd"));
        assert!(user("www:nogroup").unwrap_err().contains("/etc/group"));
    }

    #[test]
    fn what_the_pod_asks_for_wins_over_the_image() {
        let value = |value| Some(Int64Value { value });
        let asked = LinuxContainerSecurityContext {
            run_as_user: value(1000),
            run_as_group: value(7),
            supplemental_groups: vec![9],
            ..Default::default()
        };
        let merged = resolve(Some(&asked), "www", LISTS).unwrap();
        assert_eq!((merged.uid, merged.gid, merged.additional_gids), (1000, 7, vec![7, 50000, 9]));
        let strict = LinuxContainerSecurityContext {
            supplemental_groups_policy: SupplementalGroupsPolicy::Strict as i32,
            ..asked
        };
        assert_eq!(resolve(Some(&strict), "www", LISTS).unwrap().additional_gids, [7, 9]);
        let group_alone = LinuxContainerSecurityContext { run_as_group: value(7), ..Default::default() };
        assert!(resolve(Some(&group_alone), "", LISTS).is_err());
    }
}
