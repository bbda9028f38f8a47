//! Where the files of the volumes lie: on the host's file system, or on a disk of the pool's own.

use crate::config::PoolKind;
use crate::error::Cause;
use crate::record::State;

/// What is known before a pool is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// How far the making of a disk of its own has come; none was begun.
    pub made: Option<State>,
    /// The folder has volumes or snapshots as plain files.
    pub volumes: bool,
    /// Files of the host's file system can share their blocks.
    pub shares: bool,
    /// mkfs.xfs is installed.
    pub able: bool,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Plain files in the folder.
    Files,
    /// The disk that is there.
    Existing,
    /// Make one. Where it cannot be made after all, plain files will do unless it `must` be.
    Make {
        /// It was asked for by name.
        must: bool,
    },
}

/// Decides where the volumes lie. What is there stays as it is: nobody's data is moved.
///
/// # Errors
/// `FAILED_PRECONDITION` if what is asked for is not what is there.
pub fn decide(asked: PoolKind, facts: Facts) -> Result<Decision, Cause> {
    let refuse = |text: &str| Err(Cause::Precondition(text.to_owned()));
    match (asked, facts.made) {
        (PoolKind::Files, Some(State::Ready)) => {
            refuse("its volumes lie on a disk of its own, not as files on the host's file system")
        }
        (_, Some(State::Ready)) => Ok(Decision::Existing),
        (PoolKind::Files, _) => Ok(Decision::Files),
        (PoolKind::Disk, _) if facts.volumes => {
            refuse("its volumes lie as files on the host's file system, not on a disk of its own")
        }
        (PoolKind::Disk, _) => Ok(Decision::Make { must: true }),
        (PoolKind::Auto, _) if facts.volumes || facts.shares || !facts.able => Ok(Decision::Files),
        (PoolKind::Auto, _) => Ok(Decision::Make { must: false }),
    }
}

/// The disk's size, bytes, for a host's file system of `host` bytes: with what the XFS keeps for itself added, so that the host's
/// is the one that fills. The file is sparse and takes no room for it.
#[must_use]
pub fn size(host: u64) -> u64 {
    (host.saturating_add(host / 32).saturating_add(512 << 20)) / 4096 * 4096
}

/// Whether a disk of `has` bytes is to grow to `wanted`: not for a trifle, as each growth adds to the XFS's bookkeeping.
#[must_use]
pub fn grows(has: u64, wanted: u64) -> bool {
    wanted > has.saturating_add(has / 64)
}

/// What of a disk of its own can still be promised, bytes. `inside` and `host` are what both file systems have left;
/// `unwritten` is what was promised of the host's, of which `set_aside` has its place inside already. A hundredth of that is kept
/// for the bookkeeping of both.
#[must_use]
pub fn left(inside: u64, host: u64, unwritten: u64, set_aside: u64) -> u64 {
    let inside = inside.saturating_sub(unwritten.saturating_sub(set_aside));
    let host = host.saturating_sub(unwritten);
    let left = inside.min(host);
    left.saturating_sub(left / 100 + unwritten / 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_stays_and_a_disk_is_made_where_it_helps() {
        let facts = |made, volumes, shares, able| Facts { made, volumes, shares, able };
        let (auto, files, disk) = (PoolKind::Auto, PoolKind::Files, PoolKind::Disk);
        let (made, half) = (Some(State::Ready), Some(State::Creating));
        for (name, asked, facts, expected) in [
            ("fresh", auto, facts(None, false, false, true), Some(Decision::Make { must: false })),
            ("the host shares", auto, facts(None, false, true, true), Some(Decision::Files)),
            ("no mkfs", auto, facts(None, false, false, false), Some(Decision::Files)),
            ("volumes as files", auto, facts(None, true, false, true), Some(Decision::Files)),
            ("half made", auto, facts(half, false, false, true), Some(Decision::Make { must: false })),
            ("there", auto, facts(made, false, true, false), Some(Decision::Existing)),
            ("files", files, facts(None, false, false, true), Some(Decision::Files)),
            ("files, a disk is there", files, facts(made, false, false, true), None),
            ("files, a disk was begun", files, facts(half, false, false, true), Some(Decision::Files)),
            ("disk", disk, facts(None, false, true, false), Some(Decision::Make { must: true })),
            ("disk, there", disk, facts(made, true, false, true), Some(Decision::Existing)),
            ("disk, volumes as files", disk, facts(None, true, false, true), None),
        ] {
            assert_eq!(decide(asked, facts).ok(), expected, "{name}");
        }
    }

    #[test]
    fn the_host_fills_before_the_disk_and_neither_is_promised_twice() {
        assert!(size(250 << 30) > 252 << 30 && size(250 << 30).is_multiple_of(4096));
        assert!(!grows(100 << 30, 101 << 30) && grows(100 << 30, 102 << 30));
        let gib = 1 << 30;
        for (name, inside, host, unwritten, set_aside, expected) in [
            ("empty", 200 * gib, 100 * gib, 0, 0, 99 * gib),
            ("promised", 200 * gib, 100 * gib, 50 * gib, 0, 49 * gib),
            ("the disk is smaller", 60 * gib, 100 * gib, 50 * gib, 0, 10 * gib - gib / 10 - gib / 2),
            ("set aside inside", 10 * gib, 100 * gib, 50 * gib, 50 * gib, 10 * gib - gib / 10 - gib / 2),
            ("full", 0, 0, 0, 0, 0),
            ("more promised than there is", gib, gib, 5 * gib, 0, 0),
        ] {
            let got = left(inside, host, unwritten, set_aside);
            assert!(got.abs_diff(expected) < 4, "{name}: {got}, not {expected}");
        }
    }
}
