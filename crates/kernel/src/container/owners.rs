//! Who inside a user namespace is who on the host.

use serde::{Deserialize, Serialize};

use super::oci::IdMapping;

/// The ids of a user namespace; those of the host if there are none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Owners {
    /// Its users.
    pub uids: Vec<IdMapping>,
    /// Its groups.
    pub gids: Vec<IdMapping>,
}

impl Owners {
    /// True without a user namespace.
    #[must_use]
    pub fn are_the_hosts(&self) -> bool {
        self.uids.is_empty() && self.gids.is_empty()
    }

    /// The host's user who is `uid` inside; one that is nobody inside is taken for the host's.
    #[must_use]
    pub fn uid(&self, uid: u32) -> u32 {
        outside(&self.uids, uid)
    }

    /// The host's group that is `gid` inside.
    #[must_use]
    pub fn gid(&self, gid: u32) -> u32 {
        outside(&self.gids, gid)
    }

    /// The lines of `/proc/<pid>/uid_map` and `gid_map`.
    #[must_use]
    pub fn maps(&self) -> [String; 2] {
        [&self.uids, &self.gids].map(|ranges| {
            let lines = ranges.iter().map(|m| format!("{} {} {}\n", m.container_id, m.host_id, m.size));
            lines.collect()
        })
    }
}

fn outside(ranges: &[IdMapping], id: u32) -> u32 {
    let found = ranges.iter().find_map(|range| {
        let offset = id.checked_sub(range.container_id).filter(|offset| *offset < range.size)?;
        range.host_id.checked_add(offset)
    });
    found.unwrap_or(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_inside_are_those_of_their_range_outside() {
        let range = IdMapping { container_id: 0, host_id: 65536, size: 1000 };
        let further = IdMapping { container_id: 5000, host_id: 9, size: 1 };
        let owners = Owners { uids: vec![range, further], gids: vec![range] };
        assert_eq!([0, 999, 5000].map(|uid| owners.uid(uid)), [65536, 66535, 9]);
        assert_eq!(owners.gid(5), 65541);
        assert_eq!(owners.uid(1000), 1000, "nobody inside");
        assert_eq!(owners.maps(), ["0 65536 1000\n5000 9 1\n", "0 65536 1000\n"]);
        assert_eq!(Owners::default().uid(7), 7);
    }
}
