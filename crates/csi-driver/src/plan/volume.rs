//! May a volume be made, attached, grown; which ones are on a page.

use crate::error::Cause;
use crate::record::{Published, Record, Source, State, Volume};
use crate::request::Access;
use crate::size::{Bytes, Range};

/// The pool's figures, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// What it could hold if it were empty.
    pub whole: u64,
    /// What is neither written nor promised to a volume.
    pub left: u64,
}

/// What to do about `CreateVolume`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Create {
    /// It is there, and as asked for.
    Existing,
    /// Make it, this many bytes large.
    New(u64),
}

/// Decides about `CreateVolume`, given the volume of that name. `from` is what it is to be copied from, with that one's size.
///
/// # Errors
/// `ALREADY_EXISTS`, `OUT_OF_RANGE`, `RESOURCE_EXHAUSTED`.
pub fn create(
    existing: Option<&Volume>,
    (range, access): (Range, Access),
    from: Option<(&Source, u64)>,
    space: Space,
    node: &str,
) -> Result<Create, Cause> {
    if let Some(volume) = existing.filter(|v| v.state == State::Ready) {
        if !range.contains(volume.bytes) {
            let text = format!("it exists with {}, which is not the size asked for", Bytes(volume.bytes));
            return Err(Cause::Exists(text));
        }
        if volume.access != access {
            return Err(Cause::Exists("it exists with another access type or file system".to_owned()));
        }
        if volume.source.as_ref() != from.map(|(source, _)| source) {
            return Err(Cause::Exists("it exists as a copy of something else, or of nothing".to_owned()));
        }
        return Ok(Create::Existing);
    }
    if let Some((_, least)) = from {
        let bytes = if range.required > least { range.choose()? } else { least };
        if bytes > range.limit {
            let text =
                format!("at most {} asked for, but its source has {}", Bytes(range.limit), Bytes(least));
            return Err(Cause::Size(text));
        }
        fits(bytes, bytes, space, node)?;
        return Ok(Create::New(bytes));
    }
    let bytes = range.choose()?;
    if let Some(kind) = access.filesystem.filter(|kind| bytes < kind.min_bytes()) {
        let least = Bytes(kind.min_bytes());
        return Err(Cause::Size(format!(
            "{} asked for, but {kind} needs at least {least}: ask for more, or name no fsType",
            Bytes(bytes)
        )));
    }
    fits(bytes, bytes, space, node)?;
    Ok(Create::New(bytes))
}

/// Whether `more` bytes can be promised, so that a volume has `bytes` in all.
///
/// # Errors
/// `OUT_OF_RANGE` if no emptying of the pool would help, else `RESOURCE_EXHAUSTED`.
pub fn fits(bytes: u64, more: u64, space: Space, node: &str) -> Result<(), Cause> {
    let node = node.to_owned();
    if bytes > space.whole {
        return Err(Cause::LargerThanPool { asked: bytes, whole: space.whole, node });
    }
    if more > space.left {
        return Err(Cause::PoolFull { asked: more, left: space.left, whole: space.whole, node });
    }
    Ok(())
}

/// Decides about `ControllerPublishVolume`: the fence to write, or none if it stands already.
///
/// # Errors
/// `NOT_FOUND` for another node, `FAILED_PRECONDITION`, `ALREADY_EXISTS`, `RESOURCE_EXHAUSTED`.
pub fn publish(
    volume: &Volume,
    node: &str,
    block: bool,
    ours: &str,
    attached: usize,
    limit: u32,
) -> Result<Option<Published>, Cause> {
    match &volume.published {
        Some(there) if there.node != node => {
            let text = format!("it is attached to node {} and must be detached there first", there.node);
            Err(Cause::Precondition(text))
        }
        _ if node != ours => Err(Cause::NoNode { asked: node.to_owned(), ours: ours.to_owned() }),
        Some(there) if there.block != block => {
            Err(Cause::Exists(format!("it is attached to node {node} with the other access type")))
        }
        Some(_) => Ok(None),
        None if attached >= limit as usize => Err(Cause::NodeFull { node: node.to_owned(), limit }),
        None => Ok(Some(Published { node: node.to_owned(), block })),
    }
}

/// What a token for the page after volume `id` looks like.
const TOKEN: &str = "after:";

/// Those of one page and the token of the next. A token names the last one given out, so what comes or goes between two pages
/// neither shifts the next page nor spoils the token.
///
/// # Errors
/// `ABORTED` for a token that is not ours, `INVALID_ARGUMENT` for a negative count.
pub fn page<'a, R: Record>(
    all: impl Iterator<Item = &'a R>,
    token: &str,
    count: i32,
) -> Result<(Vec<&'a R>, String), Cause> {
    let count =
        usize::try_from(count).map_err(|_| Cause::Invalid(format!("max_entries is negative ({count})")))?;
    let after = match (token, token.strip_prefix(TOKEN)) {
        ("", _) => "",
        (_, Some(id)) => id,
        _ => return Err(Cause::Token(token.to_owned())),
    };
    let mut rest = all.filter(|r| r.state() == State::Ready && r.id() > after);
    if count == 0 {
        return Ok((rest.collect(), String::new()));
    }
    let page: Vec<&R> = rest.by_ref().take(count).collect();
    let next = match (rest.next(), page.last()) {
        (Some(_), Some(last)) => format!("{TOKEN}{}", last.id()),
        _ => String::new(),
    };
    Ok((page, next))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::record::Content;
    use std::collections::BTreeMap;
    use tonic::Code;
    use trine_kernel::filesystem::Kind;

    pub(crate) fn volume(id: &str) -> Volume {
        Volume {
            id: id.to_owned(),
            name: id.to_owned(),
            bytes: 1 << 30,
            state: State::Ready,
            content: Content::Untouched,
            access: Access { block: false, mount: true, filesystem: None },
            published: None,
            source: None,
        }
    }

    fn range(required: u64) -> Range {
        Range { required, limit: u64::MAX }
    }

    #[test]
    fn a_volume_is_made_found_or_refused() {
        let there = volume("v");
        let unfinished = Volume { state: State::Creating, ..volume("v") };
        let mount = there.access;
        let block = Access { block: true, mount: false, filesystem: None };
        let xfs = Access { filesystem: Some(Kind::Xfs), ..mount };
        let space = Space { whole: 10 << 30, left: 2 << 30 };
        for (name, existing, required, access, expected) in [
            ("new", None, 1 << 30, mount, Ok(Create::New(1 << 30))),
            ("the same again", Some(&there), 1 << 30, mount, Ok(Create::Existing)),
            ("smaller is satisfied", Some(&there), 1 << 20, mount, Ok(Create::Existing)),
            ("larger is not", Some(&there), 2 << 30, mount, Err(Code::AlreadyExists)),
            ("other access", Some(&there), 1 << 30, block, Err(Code::AlreadyExists)),
            ("other file system", Some(&there), 1 << 30, xfs, Err(Code::AlreadyExists)),
            ("unfinished is begun again", Some(&unfinished), 2 << 30, mount, Ok(Create::New(2 << 30))),
            ("beside the others too large", None, 3 << 30, mount, Err(Code::ResourceExhausted)),
            ("larger than the disk", None, 11 << 30, mount, Err(Code::OutOfRange)),
            ("too small for the named xfs", None, 100 << 20, xfs, Err(Code::OutOfRange)),
            ("small without a name", None, 100 << 20, mount, Ok(Create::New(100 << 20))),
        ] {
            let got = create(existing, (range(required), access), None, space, "n");
            assert_eq!(got.map_err(|cause| cause.code()), expected, "{name}");
        }
    }

    #[test]
    fn a_copy_is_as_large_as_its_source_or_larger() {
        let snapshot = Source::Snapshot("s".to_owned());
        let copy = Volume { source: Some(snapshot.clone()), ..volume("v") };
        let plain = volume("v");
        let other = Source::Volume("s".to_owned());
        let space = Space { whole: 10 << 30, left: 4 << 30 };
        for (name, existing, required, limit, source, expected) in [
            ("as large", None, 1 << 30, 0, &snapshot, Ok(Create::New(1 << 30))),
            ("nothing said", None, 0, 0, &snapshot, Ok(Create::New(1 << 30))),
            ("less is satisfied by more", None, 1 << 20, 0, &snapshot, Ok(Create::New(1 << 30))),
            ("at most less", None, 0, 1 << 29, &snapshot, Err(Code::OutOfRange)),
            ("larger", None, 2 << 30, 0, &snapshot, Ok(Create::New(2 << 30))),
            ("no room", None, 5 << 30, 0, &snapshot, Err(Code::ResourceExhausted)),
            ("the same again", Some(&copy), 1 << 30, 0, &snapshot, Ok(Create::Existing)),
            ("of something else", Some(&copy), 1 << 30, 0, &other, Err(Code::AlreadyExists)),
            ("of nothing", Some(&plain), 1 << 30, 0, &snapshot, Err(Code::AlreadyExists)),
        ] {
            let range = Range { required, limit: if limit == 0 { u64::MAX } else { limit } };
            let got = create(existing, (range, plain.access), Some((source, 1 << 30)), space, "n");
            assert_eq!(got.map_err(|cause| cause.code()), expected, "{name}");
        }
        let got = create(Some(&copy), (range(1 << 30), plain.access), None, space, "n");
        assert_eq!(
            got.map_err(|cause| cause.code()),
            Err(Code::AlreadyExists),
            "a copy, but none is asked for"
        );
    }

    #[test]
    fn a_volume_is_attached_to_one_node_in_one_way() {
        let free = volume("v");
        let fence = Published { node: "n".to_owned(), block: false };
        let held = Volume { published: Some(fence.clone()), ..volume("v") };
        let other =
            Volume { published: Some(Published { node: "m".to_owned(), block: false }), ..volume("v") };
        for (name, volume, node, block, attached, expected) in [
            ("free", &free, "n", false, 0, Ok(Some(fence))),
            ("unknown node", &free, "x", false, 0, Err(Code::NotFound)),
            ("node full", &free, "n", false, 2, Err(Code::ResourceExhausted)),
            ("the same again", &held, "n", false, 2, Ok(None)),
            ("the other way", &held, "n", true, 1, Err(Code::AlreadyExists)),
            ("elsewhere", &held, "x", false, 1, Err(Code::FailedPrecondition)),
            ("from elsewhere", &other, "n", false, 1, Err(Code::FailedPrecondition)),
        ] {
            let got = publish(volume, node, block, "n", attached, 2);
            assert_eq!(got.map_err(|cause| cause.code()), expected, "{name}");
        }
    }

    #[test]
    fn pages_hold_while_volumes_come_and_go() {
        let mut volumes: BTreeMap<_, _> =
            ["a", "b", "c", "d"].map(|id| (id.to_owned(), volume(id))).into_iter().collect();
        let ids = |page: Vec<&Volume>| page.iter().map(|v| v.id.clone()).collect::<Vec<_>>();
        let (first, token) = page(volumes.values(), "", 2).unwrap();
        assert_eq!(ids(first), ["a", "b"]);
        volumes.remove("b");
        volumes.insert("aa".to_owned(), volume("aa"));
        let (second, end) = page(volumes.values(), &token, 2).unwrap();
        assert_eq!((ids(second), end.as_str()), (vec!["c".to_owned(), "d".to_owned()], ""));
        assert_eq!(page(volumes.values(), "", 0).unwrap().0.len(), 4);
        assert_eq!(page(volumes.values(), "invalid", 0).unwrap_err().code(), Code::Aborted);
        assert_eq!(page(volumes.values(), "", -1).unwrap_err().code(), Code::InvalidArgument);
    }
}
