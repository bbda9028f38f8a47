//! Snapshots and copies: may one be taken, and what a copy holds.

use trine_kernel::filesystem::{Content as Found, Kind};

use super::volume::{Space, fits};
use crate::error::Cause;
use crate::record::{Content, Snapshot, State, Volume};
use crate::request::Access;

/// What to do about `CreateSnapshot`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Take {
    /// It is there.
    Existing,
    /// Take it.
    New,
}

/// Decides about `CreateSnapshot`, given the snapshot of that name; `written` are the bytes that the volume has on the disk. These
/// stay when the volume is written to again, so there must be room for them, even where the copy itself takes none.
///
/// # Errors
/// `ALREADY_EXISTS` if it is of another volume, `RESOURCE_EXHAUSTED`.
pub fn take(
    existing: Option<&Snapshot>,
    volume: &Volume,
    written: u64,
    space: Space,
    node: &str,
) -> Result<Take, Cause> {
    match existing.filter(|s| s.state == State::Ready) {
        Some(there) if there.volume == volume.id => Ok(Take::Existing),
        Some(there) => Err(Cause::Exists(format!("it exists as a snapshot of volume {}", there.volume))),
        None => {
            fits(written.min(volume.bytes), written, Space { whole: u64::MAX, ..space }, node)?;
            Ok(Take::New)
        }
    }
}

/// What a copy holds, by what its source held; `found` is asked what the bytes say, where only they know.
///
/// # Errors
/// `INVALID_ARGUMENT` if the copy is to be mounted with another file system, or has none that could be.
pub fn content(
    source: Content,
    access: Access,
    found: impl FnOnce() -> Result<Found, Cause>,
) -> Result<Content, Cause> {
    let named = |kind: Kind| match access.filesystem {
        Some(asked) if asked != kind => {
            Err(Cause::Invalid(format!("its source is formatted as {kind}, and fsType {asked} is asked for")))
        }
        _ => Ok(Content::Formatted(kind)),
    };
    match source {
        Content::Untouched => Ok(Content::Untouched),
        // What it holds is its user's affair.
        Content::Formatted(_) | Content::Raw if !access.mount => Ok(Content::Raw),
        Content::Formatted(kind) => named(kind),
        Content::Formatting(_) if !access.mount => Ok(Content::Raw),
        Content::Formatting(kind) => named(kind).map(|_| Content::Formatting(kind)),
        Content::Raw => match found()? {
            Found::Ours { kind, .. } => named(kind),
            _ => Err(Cause::Invalid(
                "its source was in use as a raw device and holds no file system of this driver's".to_owned(),
            )),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::volume::tests::volume;
    use tonic::Code;

    fn snapshot(id: &str, of: &str) -> Snapshot {
        let volume = volume(of);
        Snapshot {
            id: id.to_owned(),
            name: id.to_owned(),
            volume: of.to_owned(),
            bytes: volume.bytes,
            state: State::Ready,
            content: volume.content,
            access: volume.access,
            data: 1 << 20,
            taken: (1, 2),
            group: None,
        }
    }

    #[test]
    fn a_snapshot_is_taken_found_or_refused() {
        let there = snapshot("s", "v");
        let half = Snapshot { state: State::Creating, ..there.clone() };
        let space = Space { whole: 10 << 30, left: 1 << 30 };
        for (name, existing, of, written, expected) in [
            ("new", None, "v", 1 << 20, Ok(Take::New)),
            ("again", Some(&there), "v", 1 << 20, Ok(Take::Existing)),
            ("again, without room", Some(&there), "v", 2 << 30, Ok(Take::Existing)),
            ("of another volume", Some(&there), "w", 1 << 20, Err(Code::AlreadyExists)),
            ("half made is begun again", Some(&half), "v", 1 << 20, Ok(Take::New)),
            ("no room", None, "v", 2 << 30, Err(Code::ResourceExhausted)),
        ] {
            let got = take(existing, &volume(of), written, space, "n");
            assert_eq!(got.map_err(|cause| cause.code()), expected, "{name}");
        }
    }

    #[test]
    fn a_copy_holds_what_its_source_held() {
        let access = |mount: bool, filesystem| Access { block: !mount, mount, filesystem };
        let (raw, any) = (access(false, None), access(true, None));
        let (xfs, ext4) = (access(true, Some(Kind::Xfs)), access(true, Some(Kind::Ext4)));
        let formatted = Content::Formatted(Kind::Xfs);
        let ours = Found::Ours { kind: Kind::Ext4, bytes: 1 };
        for (name, source, access, found, expected) in [
            ("nothing written", Content::Untouched, ext4, Found::Blank, Ok(Content::Untouched)),
            ("mounted", formatted, any, Found::Blank, Ok(formatted)),
            ("mounted, named", formatted, xfs, Found::Blank, Ok(formatted)),
            ("mounted, named otherwise", formatted, ext4, Found::Blank, Err(Code::InvalidArgument)),
            ("handed out raw", formatted, raw, Found::Blank, Ok(Content::Raw)),
            ("raw stays raw", Content::Raw, raw, Found::Blank, Ok(Content::Raw)),
            ("raw with a file system", Content::Raw, any, ours, Ok(Content::Formatted(Kind::Ext4))),
            ("raw without", Content::Raw, any, Found::Blank, Err(Code::InvalidArgument)),
            (
                "half formatted",
                Content::Formatting(Kind::Xfs),
                any,
                Found::Blank,
                Ok(Content::Formatting(Kind::Xfs)),
            ),
            ("half formatted, raw", Content::Formatting(Kind::Xfs), raw, Found::Blank, Ok(Content::Raw)),
        ] {
            let got = content(source, access, || Ok(found));
            assert_eq!(got.map_err(|cause| cause.code()), expected, "{name}");
        }
    }
}
