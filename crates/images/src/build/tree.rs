//! A folder as the entries of a layer.

use std::collections::HashMap;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::layer::{Entries, Entry, Kind};
use crate::error::ImageError;

/// All that is below `root`, whose own mode does not matter. Owners are not taken over: who unpacked a folder for an image
/// is rarely who should own it there.
pub(super) fn entries(root: &Path) -> Result<Entries, ImageError> {
    let mut entries = Entries::new();
    // By path, for the first of several names of a file to be the same each time.
    let mut linked: HashMap<(u64, u64), Vec<PathBuf>> = HashMap::new();
    let mut waiting = vec![PathBuf::new()];
    while let Some(folder) = waiting.pop() {
        let here = root.join(&folder);
        for found in std::fs::read_dir(&here).map_err(ImageError::io("list", &here))? {
            let found = found.map_err(ImageError::io("list", &here))?;
            let path = folder.join(found.file_name());
            let from = found.path();
            let stat = from.symlink_metadata().map_err(ImageError::io("look at", &from))?;
            let kind = stat.file_type();
            let kind = if kind.is_dir() {
                waiting.push(path.clone());
                Kind::Folder
            } else if kind.is_symlink() {
                Kind::Link(std::fs::read_link(&from).map_err(ImageError::io("read", &from))?)
            } else if kind.is_file() {
                if stat.nlink() > 1 {
                    linked.entry((stat.dev(), stat.ino())).or_default().push(path.clone());
                }
                Kind::File(from)
            } else {
                let why = io::Error::other("it is no file, folder or link");
                return Err(ImageError::io("copy", &from)(why));
            };
            entries.insert(path, Entry::new(kind, stat.mode() & 0o7777));
        }
    }
    for mut names in linked.into_values() {
        names.sort();
        for other in &names[1..] {
            if let Some(entry) = entries.get_mut(other) {
                entry.kind = Kind::Same(names[0].clone());
            }
        }
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_folder_becomes_entries_with_its_modes_and_links() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        std::fs::create_dir(root.join("b")).unwrap();
        std::fs::write(root.join("b/tool"), "x").unwrap();
        std::fs::set_permissions(root.join("b/tool"), std::fs::Permissions::from_mode(0o4755)).unwrap();
        std::fs::hard_link(root.join("b/tool"), root.join("a")).unwrap();
        std::os::unix::fs::symlink("/nowhere", root.join("link")).unwrap();
        let entries = entries(root).unwrap();
        let paths: Vec<_> = entries.keys().map(|path| path.display().to_string()).collect();
        assert_eq!(paths, ["a", "b", "b/tool", "link"]);
        assert_eq!(entries[Path::new("a")], Entry::new(Kind::File(root.join("a")), 0o4755));
        assert_eq!(entries[Path::new("b/tool")].kind, Kind::Same("a".into()));
        assert_eq!(entries[Path::new("link")].kind, Kind::Link("/nowhere".into()));
    }

    #[test]
    fn what_cannot_be_in_an_image_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("sock")).unwrap();
        let error = entries(dir.path()).unwrap_err();
        assert!(error.to_string().contains("sock"), "{error}");
    }
}
