//! Where an entry of a layer's archive goes, decided by its name alone. Pure.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
const RESERVED: &[u8] = b".wh..wh.";

/// A name in a folder of the layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Spot {
    /// Relative to the layer's root; empty for the root itself.
    pub parent: PathBuf,
    pub name: OsString,
}

impl Spot {
    pub fn path(&self) -> PathBuf {
        self.parent.join(&self.name)
    }
}

/// What an entry's name means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// The layer's root itself.
    Root,
    /// A file of any kind.
    Entry(Spot),
    /// Hides what lower layers have under this name.
    Whiteout(Spot),
    /// Hides all that lower layers have in this folder.
    Opaque(PathBuf),
    /// An older union file system's own bookkeeping.
    Ignore,
}

/// Why no layer may hold such an entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathFault {
    /// `..` in a name.
    #[error("climbs out of the layer with \"..\"")]
    Climbs,
    /// A NUL byte in a name.
    #[error("has a NUL byte in its name")]
    Nul,
    /// `.wh.` with nothing, `.` or `..` behind it.
    #[error("is a whiteout of nothing")]
    EmptyWhiteout,
    /// A file in a folder named like a whiteout.
    #[error("lies below a whiteout")]
    BelowWhiteout,
    /// A hard link with `..` in its target.
    #[error("is a hard link to outside of the layer: {0:?}")]
    LinkClimbs(String),
    /// A hard link without a target.
    #[error("is a link without a target")]
    LinkEmpty,
    /// A hard link to something that is not there.
    #[error("is a hard link to {0:?}, which is not in the layer")]
    LinkAbsent(String),
    /// A folder on the way is a file or a link that leads nowhere.
    #[error("has a parent {0:?} that is not a folder")]
    Parent(String),
    /// A device that overlayfs would take for a whiteout.
    #[error("is the device 0:0, which overlayfs takes for a whiteout")]
    WhiteoutDevice,
    /// A kind of archive entry that is not known.
    #[error("is of a kind ({0:?}) that is not known")]
    Kind(char),
    /// A sparse file in a form that is not read.
    #[error("is a sparse file in a form that is not supported")]
    Sparse,
    /// Something else is needed in the root's place.
    #[error("would replace the layer's root")]
    Root,
}

/// Splits a name into its parts without `.` and doubled slashes. A leading slash means the layer's root.
fn parts(raw: &[u8]) -> Result<Vec<&[u8]>, PathFault> {
    if raw.contains(&0) {
        return Err(PathFault::Nul);
    }
    let parts: Vec<&[u8]> =
        raw.split(|b| *b == b'/').filter(|part| !part.is_empty() && *part != b".").collect();
    if parts.contains(&b"..".as_slice()) {
        return Err(PathFault::Climbs);
    }
    Ok(parts)
}

fn join(parts: &[&[u8]]) -> PathBuf {
    parts.iter().map(|part| OsString::from_vec(part.to_vec())).collect()
}

/// What the entry `raw` means.
pub(crate) fn place(raw: &[u8]) -> Result<Place, PathFault> {
    let parts = parts(raw)?;
    let Some((last, above)) = parts.split_last() else { return Ok(Place::Root) };
    if above.iter().any(|part| part.starts_with(RESERVED)) {
        return Ok(Place::Ignore);
    }
    if above.iter().any(|part| part.starts_with(WHITEOUT)) {
        return Err(PathFault::BelowWhiteout);
    }
    let parent = join(above);
    if *last == OPAQUE {
        return Ok(Place::Opaque(parent));
    }
    if last.starts_with(RESERVED) {
        return Ok(Place::Ignore);
    }
    match last.strip_prefix(WHITEOUT) {
        Some(b"" | b"." | b"..") => Err(PathFault::EmptyWhiteout),
        Some(hidden) => Ok(Place::Whiteout(Spot { parent, name: OsString::from_vec(hidden.to_vec()) })),
        None => Ok(Place::Entry(Spot { parent, name: OsString::from_vec(last.to_vec()) })),
    }
}

/// Where a hard link's target is.
pub(crate) fn link_target(raw: &[u8]) -> Result<Spot, PathFault> {
    let parts = parts(raw).map_err(|fault| match fault {
        PathFault::Climbs => PathFault::LinkClimbs(String::from_utf8_lossy(raw).into_owned()),
        other => other,
    })?;
    let (last, above) = parts.split_last().ok_or(PathFault::LinkEmpty)?;
    Ok(Spot { parent: join(above), name: OsString::from_vec(last.to_vec()) })
}

/// True for extended attributes that a layer may carry; those of overlayfs itself would let it reach other layers.
pub(crate) fn attribute_allowed(name: &[u8]) -> bool {
    !name.starts_with(b"trusted.overlay.") && !name.starts_with(b"user.overlay.") && !name.is_empty()
}

/// Reads the seconds and nanoseconds of a pax time (`1700000000.25`).
pub(crate) fn pax_time(text: &[u8]) -> Option<(i64, i64)> {
    let text = std::str::from_utf8(text).ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = whole.parse().ok()?;
    if !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let nanos: i64 = digits.parse().ok()?;
    match whole.starts_with('-') && nanos > 0 {
        true => Some((seconds - 1, 1_000_000_000 - nanos)),
        false => Some((seconds, nanos)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spot(parent: &str, name: &str) -> Spot {
        Spot { parent: parent.into(), name: name.into() }
    }

    #[test]
    fn names_are_placed_below_the_root_or_refused() {
        for (raw, expected) in [
            ("./", Ok(Place::Root)),
            ("/", Ok(Place::Root)),
            ("", Ok(Place::Root)),
            ("a", Ok(Place::Entry(spot("", "a")))),
            ("./a//b/./c", Ok(Place::Entry(spot("a/b", "c")))),
            ("/etc/passwd", Ok(Place::Entry(spot("etc", "passwd")))),
            ("a..b/..c", Ok(Place::Entry(spot("a..b", "..c")))),
            ("../x", Err(PathFault::Climbs)),
            ("a/../../x", Err(PathFault::Climbs)),
            ("a/..", Err(PathFault::Climbs)),
            ("a\0b", Err(PathFault::Nul)),
            ("a/.wh.b", Ok(Place::Whiteout(spot("a", "b")))),
            ("a/.wh..wh..opq", Ok(Place::Opaque("a".into()))),
            (".wh..wh..opq", Ok(Place::Opaque("".into()))),
            (".wh..wh.plnk", Ok(Place::Ignore)),
            (".wh..wh.plnk/1.2", Ok(Place::Ignore)),
            (".wh.", Err(PathFault::EmptyWhiteout)),
            ("a/.wh..", Err(PathFault::EmptyWhiteout)),
            ("a/.wh...", Err(PathFault::EmptyWhiteout)),
            (".wh.a/b", Err(PathFault::BelowWhiteout)),
        ] {
            assert_eq!(place(raw.as_bytes()), expected, "{raw:?}");
        }
    }

    #[test]
    fn hard_links_point_into_the_layer_or_are_refused() {
        assert_eq!(link_target(b"/a/b"), Ok(spot("a", "b")));
        assert_eq!(link_target(b"../b"), Err(PathFault::LinkClimbs("../b".into())));
        assert_eq!(link_target(b"./"), Err(PathFault::LinkEmpty));
    }

    #[test]
    fn overlay_attributes_are_left_out() {
        assert!(attribute_allowed(b"security.capability"));
        assert!(attribute_allowed(b"user.mine"));
        assert!(!attribute_allowed(b"trusted.overlay.redirect"));
        assert!(!attribute_allowed(b"user.overlay.opaque"));
    }

    #[test]
    fn pax_times_keep_their_fraction() {
        assert_eq!(pax_time(b"1700000000.25"), Some((1_700_000_000, 250_000_000)));
        assert_eq!(pax_time(b"5"), Some((5, 0)));
        assert_eq!(pax_time(b"-1.5"), Some((-2, 500_000_000)));
        assert_eq!(pax_time(b"x"), None);
    }
}
