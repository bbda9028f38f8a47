//! What the first bytes of a device say.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::{FilesystemError, Kind};

/// Bytes at the start that must be zero for a device to count as blank.
const LOOKED_AT: usize = 1 << 20;

/// What a device holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// The first MiB (or all, if smaller) reads as zero.
    Blank,
    /// A file system that we make, `bytes` large by its own superblock.
    Ours {
        /// Which.
        kind: Kind,
        /// Its size.
        bytes: u64,
    },
    /// Something else: the name of what its signature says, or "data of an unknown kind".
    Foreign(&'static str),
}

/// Signatures of what we do not make, but can name: (offset, bytes, name).
const SIGNATURES: &[(usize, &[u8], &str)] = &[
    (0, b"LUKS\xba\xbe", "an encrypted (LUKS) volume"),
    (0, b"hsqs", "a squashfs file system"),
    (3, b"NTFS    ", "an NTFS file system"),
    (512, b"EFI PART", "a GPT partition table"),
    (512, b"LABELONE", "an LVM physical volume"),
    (1024, b"\xe2\xe1\xf5\xe0", "an EROFS file system"),
    (1024, b"\x10\x20\xf5\xf2", "an F2FS file system"),
    (4096, b"EFI PART", "a GPT partition table"),
    (4096, b"\xfc\x4e\x2b\xa9", "a member of a software RAID"),
    (4086, b"SWAPSPACE2", "swap space"),
    (32769, b"CD001", "an ISO 9660 file system"),
    (0x10040, b"_BHRfS_M", "a btrfs file system"),
    (510, b"\x55\xaa", "a boot sector or partition table"),
];

/// Reads what `device` holds.
///
/// # Errors
/// [`FilesystemError::Call`] if it cannot be read: an unreadable device is never blank.
pub fn inspect(device: &Path) -> Result<Content, FilesystemError> {
    let read = || -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(LOOKED_AT);
        File::open(device)?.take(LOOKED_AT as u64).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes =
        read().map_err(|source| FilesystemError::Call { call: "read", path: device.to_owned(), source })?;
    Ok(recognise(&bytes))
}

fn recognise(bytes: &[u8]) -> Content {
    if bytes.iter().all(|byte| *byte == 0) {
        return Content::Blank;
    }
    if let Some(bytes) = xfs_size(bytes) {
        return Content::Ours { kind: Kind::Xfs, bytes };
    }
    if let Some(bytes) = ext_size(bytes) {
        return Content::Ours { kind: Kind::Ext4, bytes };
    }
    SIGNATURES
        .iter()
        .find(|(offset, magic, _)| bytes.get(*offset..offset + magic.len()) == Some(*magic))
        .map_or(Content::Foreign("data of an unknown kind"), |(_, _, name)| Content::Foreign(name))
}

/// Size by the XFS superblock: `sb_blocksize` at 4, `sb_dblocks` at 8, big-endian.
fn xfs_size(bytes: &[u8]) -> Option<u64> {
    bytes.starts_with(b"XFSB").then_some(())?;
    let block = u32::from_be_bytes(bytes.get(4..8)?.try_into().ok()?);
    let blocks = u64::from_be_bytes(bytes.get(8..16)?.try_into().ok()?);
    Some(u64::from(block).saturating_mul(blocks))
}

/// Size by the ext2/3/4 superblock at 1024: block count at 4 (high half at 0x150 with the 64-bit feature, 0x80 in
/// the word at 0x60), log2 of the block size minus 10 at 0x18, magic at 0x38.
fn ext_size(bytes: &[u8]) -> Option<u64> {
    let superblock = bytes.get(1024..2048)?;
    let word = |at: usize| {
        superblock.get(at..at + 4).and_then(|w| w.try_into().ok()).map(u32::from_le_bytes).unwrap_or_default()
    };
    (superblock.get(0x38..0x3a)? == b"\x53\xef").then_some(())?;
    let high = if word(0x60) & 0x80 == 0 { 0 } else { word(0x150) };
    let blocks = u64::from(word(4)) | u64::from(high) << 32;
    Some(blocks.saturating_mul(1024_u64.checked_shl(word(0x18))?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filesystem::make;
    use crate::testing;

    #[test]
    fn blank_foreign_and_unknown_bytes_are_told_apart() {
        let mut swap = vec![0; 8192];
        swap[4086..4096].copy_from_slice(b"SWAPSPACE2");
        let mut late = vec![0; 8192];
        late[8191] = 1;
        for (bytes, expected) in [
            (vec![0; 8192], Content::Blank),
            (Vec::new(), Content::Blank),
            (swap, Content::Foreign("swap space")),
            (late, Content::Foreign("data of an unknown kind")),
        ] {
            assert_eq!(recognise(&bytes), expected);
        }
    }

    #[test]
    fn what_we_make_is_recognised_with_its_size() {
        let dir = tempfile::tempdir().unwrap();
        for (kind, size) in [(Kind::Ext4, 32 << 20), (Kind::Xfs, 320 << 20)] {
            if kind.available().is_err() {
                testing::skip("what_we_make_is_recognised_with_its_size", &format!("no mkfs.{kind}"));
                continue;
            }
            let path = dir.path().join(kind.name());
            File::create(&path).unwrap().set_len(size).unwrap();
            assert_eq!(inspect(&path).unwrap(), Content::Blank);
            make(kind, &path).unwrap();
            assert_eq!(inspect(&path).unwrap(), Content::Ours { kind, bytes: size });
        }
    }
}
