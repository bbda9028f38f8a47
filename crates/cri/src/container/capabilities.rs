//! Which capabilities a container has.

use trine_contracts::cri::Capability;
use trine_kernel::container::oci::Capabilities;

/// What containers get that ask for nothing (the set of containerd and Docker).
const DEFAULT: [&str; 14] = [
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FSETID",
    "CAP_FOWNER",
    "CAP_MKNOD",
    "CAP_NET_RAW",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETFCAP",
    "CAP_SETPCAP",
    "CAP_NET_BIND_SERVICE",
    "CAP_SYS_CHROOT",
    "CAP_KILL",
    "CAP_AUDIT_WRITE",
];

/// All that there are; the launcher takes those that it has itself.
const ALL: &str = "ALL";

/// The sets for a container that asks for `asked`.
#[must_use]
pub fn sets(asked: Option<&Capability>, privileged: bool) -> Capabilities {
    let none = Capability::default();
    let asked = asked.unwrap_or(&none);
    let is_all = |names: &[String]| names.iter().any(|name| name.eq_ignore_ascii_case(ALL));
    let mut held: Vec<String> = if privileged || is_all(&asked.add_capabilities) {
        known().map(str::to_owned).collect()
    } else if is_all(&asked.drop_capabilities) {
        Vec::new()
    } else {
        DEFAULT.map(str::to_owned).into()
    };
    for name in asked.add_capabilities.iter().map(|name| full(name)).filter(|name| name != "CAP_ALL") {
        if !held.contains(&name) {
            held.push(name);
        }
    }
    if !privileged {
        let dropped: Vec<String> = asked.drop_capabilities.iter().map(|name| full(name)).collect();
        held.retain(|name| !dropped.contains(name));
    }
    let ambient: Vec<String> = asked.add_ambient_capabilities.iter().map(|name| full(name)).collect();
    Capabilities {
        bounding: held.clone(),
        effective: held.clone(),
        permitted: held.clone(),
        inheritable: ambient.iter().filter(|name| held.contains(name)).cloned().collect(),
        ambient: ambient.into_iter().filter(|name| held.contains(name)).collect(),
    }
}

fn full(name: &str) -> String {
    let name = name.to_ascii_uppercase();
    if name.starts_with("CAP_") { name } else { format!("CAP_{name}") }
}

fn known() -> impl Iterator<Item = &'static str> {
    trine_kernel::container::capability_names()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(add: &[&str], drop: &[&str], privileged: bool) -> Vec<String> {
        let own = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect();
        let asked = Capability {
            add_capabilities: own(add),
            drop_capabilities: own(drop),
            add_ambient_capabilities: Vec::new(),
        };
        sets(Some(&asked), privileged).bounding
    }

    #[test]
    fn capabilities_are_added_and_dropped_as_the_contract_says() {
        assert_eq!(sets(None, false).effective.len(), DEFAULT.len());
        assert_eq!(held(&["NET_ADMIN"], &["ALL"], false), ["CAP_NET_ADMIN"]);
        assert_eq!(held(&[], &["ALL"], false), [""; 0]);
        assert!(held(&["ALL"], &["NET_RAW"], false).len() == 40);
        assert!(!held(&[], &["KILL"], false).contains(&"CAP_KILL".to_owned()));
        assert_eq!(held(&[], &["KILL"], true).len(), 41);
        assert!(held(&["cap_sys_time"], &[], false).contains(&"CAP_SYS_TIME".to_owned()));
    }

    #[test]
    fn ambient_ones_are_inheritable_and_never_more_than_held() {
        let asked = Capability {
            add_capabilities: vec!["NET_ADMIN".into()],
            add_ambient_capabilities: vec!["NET_ADMIN".into(), "SYS_ADMIN".into()],
            drop_capabilities: Vec::new(),
        };
        let sets = sets(Some(&asked), false);
        assert_eq!(
            (sets.ambient, sets.inheritable),
            (vec!["CAP_NET_ADMIN".into()], vec!["CAP_NET_ADMIN".into()])
        );
    }
}
