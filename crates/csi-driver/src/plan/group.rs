//! Snapshots of several volumes at one moment: may they be taken, and are they those that are meant.

use std::collections::BTreeSet;

use super::copy;
use super::volume::{Space, fits};
use crate::error::Cause;
use crate::record::{Group, State};

pub use copy::Take;

/// The volumes of a request, in the order in which they are locked, held still and copied.
///
/// # Errors
/// `INVALID_ARGUMENT` if there are none, or an empty one.
pub fn volumes(asked: &[String]) -> Result<Vec<String>, Cause> {
    if asked.is_empty() {
        return Err(Cause::Invalid("no source_volume_ids".to_owned()));
    }
    if asked.iter().any(String::is_empty) {
        return Err(Cause::Invalid("an empty one of source_volume_ids".to_owned()));
    }
    Ok(asked.iter().cloned().collect::<BTreeSet<_>>().into_iter().collect())
}

/// The name of the snapshot of `volume` in a group. No request can have made the same: it would be of another volume.
#[must_use]
pub fn member_name(group: &str, volume: &str) -> String {
    format!("{group} of {volume}")
}

/// Whether a group is of these volumes.
///
/// # Errors
/// `ALREADY_EXISTS` if it is of others.
pub fn same(group: &Group, volumes: &[String]) -> Result<(), Cause> {
    if group.members.keys().eq(volumes) {
        return Ok(());
    }
    let of: Vec<&str> = group.members.keys().map(String::as_str).collect();
    Err(Cause::Exists(format!("it exists as a snapshot of the volumes {}", of.join(", "))))
}

/// Decides about `CreateVolumeGroupSnapshot`; `written` are the bytes that each volume has on the disk.
///
/// # Errors
/// `ALREADY_EXISTS` if it is of other volumes, `RESOURCE_EXHAUSTED`.
pub fn take(
    existing: Option<&Group>,
    volumes: &[String],
    written: &[u64],
    space: Space,
    node: &str,
) -> Result<Take, Cause> {
    if let Some(there) = existing.filter(|g| g.state == State::Ready) {
        return same(there, volumes).map(|()| Take::Existing);
    }
    let all = written.iter().fold(0_u64, |sum, bytes| sum.saturating_add(*bytes));
    fits(0, all, Space { whole: u64::MAX, ..space }, node)?;
    Ok(Take::New)
}

/// Checks the members that a request names, if it names any.
///
/// # Errors
/// `INVALID_ARGUMENT` if they are not the group's.
pub fn members(group: &Group, named: &[String]) -> Result<(), Cause> {
    let (are, named): (BTreeSet<_>, BTreeSet<_>) = (group.members.values().collect(), named.iter().collect());
    if named.is_empty() || are == named {
        return Ok(());
    }
    Err(Cause::Invalid("snapshot_ids are not those of the group".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    fn names(all: &[&str]) -> Vec<String> {
        all.iter().map(|&n| n.to_owned()).collect()
    }

    fn group(state: State) -> Group {
        let members = [("v", "s1"), ("w", "s2")].map(|(v, s)| (v.to_owned(), s.to_owned()));
        Group { id: "g".to_owned(), name: "g".to_owned(), state, members: members.into(), taken: (1, 2) }
    }

    #[test]
    fn a_group_is_taken_found_or_refused() {
        let (there, half) = (group(State::Ready), group(State::Creating));
        let space = Space { whole: 10 << 30, left: 1 << 30 };
        for (name, existing, of, written, expected) in [
            ("new", None, names(&["v", "w"]), [1 << 20, 1 << 20], Ok(Take::New)),
            ("again", Some(&there), names(&["v", "w"]), [1 << 30, 1 << 30], Ok(Take::Existing)),
            ("of others", Some(&there), names(&["v", "x"]), [0, 0], Err(Code::AlreadyExists)),
            ("of fewer", Some(&there), names(&["v"]), [0, 0], Err(Code::AlreadyExists)),
            ("half made is begun again", Some(&half), names(&["x"]), [0, 0], Ok(Take::New)),
            ("no room for both", None, names(&["v", "w"]), [1 << 29, 1 << 30], Err(Code::ResourceExhausted)),
        ] {
            let got = take(existing, &of, &written, space, "n");
            assert_eq!(got.map_err(|cause| cause.code()), expected, "{name}");
        }
    }

    #[test]
    fn volumes_are_named_once_and_members_all_or_none() {
        assert_eq!(volumes(&names(&["w", "v", "w"])).unwrap(), names(&["v", "w"]));
        for wrong in [names(&[]), names(&["v", ""])] {
            assert_eq!(volumes(&wrong).unwrap_err().code(), Code::InvalidArgument);
        }
        let there = group(State::Ready);
        members(&there, &[]).unwrap();
        members(&there, &names(&["s2", "s1"])).unwrap();
        for wrong in [names(&["s1"]), names(&["s1", "s2", "s3"])] {
            assert_eq!(members(&there, &wrong).unwrap_err().code(), Code::InvalidArgument);
        }
    }
}
