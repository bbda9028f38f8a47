//! How a volume becomes a device with a file system, mounted at its staging path.

use std::path::Path;

use trine_kernel::filesystem::{Content as Found, Kind};
use trine_kernel::mountpoint::Mounted;

use crate::error::Cause;
use crate::record::{Content, Volume};

/// Whether the volume may be staged here at all.
///
/// # Errors
/// `FAILED_PRECONDITION` if it is not attached to `node`, or in the other way.
pub fn fence(volume: &Volume, node: &str, block: bool) -> Result<(), Cause> {
    match &volume.published {
        None => Err(Cause::Precondition(format!(
            "it is not attached to node {node} (ControllerPublishVolume comes first)"
        ))),
        Some(there) if there.node != node => {
            Err(Cause::Precondition(format!("it is attached to node {}, this is {node}", there.node)))
        }
        Some(there) if there.block != block => {
            Err(Cause::Precondition("it is attached with the other access type".to_owned()))
        }
        Some(_) => Ok(()),
    }
}

/// What to do at the staging path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// Mount there.
    Mount,
    /// It is mounted there.
    Done,
}

/// Decides by what is `mounted` at `staging`; `device` is the volume's.
///
/// # Errors
/// `FAILED_PRECONDITION` if something else is there.
pub fn at(mounted: &[Mounted], device: &Path, staging: &Path) -> Result<At, Cause> {
    match mounted.iter().rfind(|m| m.target == staging) {
        None => Ok(At::Mount),
        Some(m) if m.source == device && m.root == Path::new("/") => Ok(At::Done),
        Some(m) => {
            let text = format!("{} is mounted at {}", m.source.display(), staging.display());
            Err(Cause::Precondition(text))
        }
    }
}

/// Which mkfs programs there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Programs {
    /// mkfs.xfs.
    pub xfs: bool,
    /// mkfs.ext4.
    pub ext4: bool,
}

/// The file system for a volume whose claim names none: XFS, which grows while mounted; ext4 where XFS is too
/// large or its mkfs missing.
#[must_use]
pub fn default_kind(bytes: u64, programs: Programs) -> Kind {
    let xfs = bytes >= Kind::Xfs.min_bytes() && (programs.xfs || !programs.ext4);
    if xfs { Kind::Xfs } else { Kind::Ext4 }
}

/// What to do about the file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// It is there.
    Keep(Kind),
    /// Make one: on the blank device, or over what an interrupted mkfs left before anybody saw the volume.
    Make(Kind),
}

/// Decides about the file system. Only a device that this driver never formatted, that it never handed out raw
/// and that reads as zero is formatted: anything else could be somebody's data.
///
/// # Errors
/// `FAILED_PRECONDITION`, `INVALID_ARGUMENT`.
pub fn format(
    volume: &Volume,
    named: Option<Kind>,
    found: &Found,
    programs: Programs,
) -> Result<Format, Cause> {
    let named = named.or(volume.access.filesystem);
    let kind = named.unwrap_or_else(|| default_kind(volume.bytes, programs));
    let refuse = |text: String| Err(Cause::Precondition(text));
    match (volume.content, found) {
        (Content::Formatted(has), _) if named.is_some_and(|named| named != has) => {
            Err(Cause::Invalid(format!("it is formatted as {has}, and fsType {kind} is asked for")))
        }
        (Content::Formatted(has), Found::Ours { kind, .. }) if *kind == has => Ok(Format::Keep(has)),
        (Content::Formatted(has), found) => refuse(format!(
            "it was formatted as {has}, but now holds {}; it is not formatted again",
            describe(found)
        )),
        (Content::Raw, _) => refuse("it was in use as a raw device and is not formatted over".to_owned()),
        (Content::Formatting(_), _) => Ok(Format::Make(kind)),
        (Content::Untouched, Found::Blank) => Ok(Format::Make(kind)),
        (Content::Untouched, found) => {
            refuse(format!("it was never formatted, yet holds {}; it is not formatted over", describe(found)))
        }
    }
}

fn describe(found: &Found) -> String {
    match found {
        Found::Blank => "nothing".to_owned(),
        Found::Ours { kind, .. } => format!("an {kind} file system"),
        Found::Foreign(name) => (*name).to_owned(),
    }
}

/// The mount options: the user's, and what the file system needs. A clone of an XFS has its source's UUID, so the
/// kernel's check for duplicates has to go.
#[must_use]
pub fn mount_options(kind: Kind, asked: &[String]) -> Vec<String> {
    let mut options = asked.to_vec();
    if kind == Kind::Xfs && !options.iter().any(|o| o == "nouuid") {
        options.push("nouuid".to_owned());
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::volume::tests::volume;
    use crate::record::Published;
    use tonic::Code;

    const BOTH: Programs = Programs { xfs: true, ext4: true };

    #[test]
    fn only_a_blank_device_that_was_never_handed_out_is_formatted() {
        let xfs = Found::Ours { kind: Kind::Xfs, bytes: 1 << 30 };
        let foreign = Found::Foreign("swap space");
        let (x, e) = (Some(Kind::Xfs), Some(Kind::Ext4));
        for (name, content, named, found, expected) in [
            ("blank", Content::Untouched, None, &Found::Blank, Ok(Format::Make(Kind::Xfs))),
            ("blank, named", Content::Untouched, e, &Found::Blank, Ok(Format::Make(Kind::Ext4))),
            ("not blank", Content::Untouched, None, &foreign, Err(Code::FailedPrecondition)),
            ("ours without a record", Content::Untouched, None, &xfs, Err(Code::FailedPrecondition)),
            ("raw", Content::Raw, None, &Found::Blank, Err(Code::FailedPrecondition)),
            ("interrupted", Content::Formatting(Kind::Xfs), x, &xfs, Ok(Format::Make(Kind::Xfs))),
            ("formatted", Content::Formatted(Kind::Xfs), None, &xfs, Ok(Format::Keep(Kind::Xfs))),
            ("formatted otherwise", Content::Formatted(Kind::Xfs), e, &xfs, Err(Code::InvalidArgument)),
            ("now blank", Content::Formatted(Kind::Xfs), x, &Found::Blank, Err(Code::FailedPrecondition)),
            ("now foreign", Content::Formatted(Kind::Ext4), None, &xfs, Err(Code::FailedPrecondition)),
        ] {
            let volume = Volume { content, ..volume("v") };
            let got = format(&volume, named, found, BOTH);
            assert_eq!(got.map_err(|cause| cause.code()), expected, "{name}");
        }
    }

    #[test]
    fn the_default_file_system_follows_size_and_programs() {
        let only = |xfs, ext4| Programs { xfs, ext4 };
        for (bytes, programs, expected) in [
            (1 << 30, BOTH, Kind::Xfs),
            (300 << 20, BOTH, Kind::Xfs),
            (299 << 20, BOTH, Kind::Ext4),
            (1 << 30, only(false, true), Kind::Ext4),
            (1 << 30, only(false, false), Kind::Xfs),
            (1 << 20, only(true, false), Kind::Ext4),
        ] {
            assert_eq!(default_kind(bytes, programs), expected, "{bytes} {programs:?}");
        }
    }

    #[test]
    fn staging_needs_the_fence_of_this_node() {
        let at = |node: &str, block| Volume {
            published: Some(Published { node: node.to_owned(), block }),
            ..volume("v")
        };
        fence(&at("n", true), "n", true).unwrap();
        for refused in [volume("v"), at("m", false), at("n", true)] {
            assert_eq!(fence(&refused, "n", false).unwrap_err().code(), Code::FailedPrecondition);
        }
    }
}
