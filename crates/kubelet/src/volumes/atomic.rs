//! Files of a volume, all exchanged at once: readers see the old set or the new one.
//!
//! ```text
//! key      -> ..data/key          what containers open
//! ..data   -> ..20260101.1        one rename exchanges everything
//! ..20260101.1/key                the files
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{PermissionsExt, lchown, symlink};
use std::path::{Component, Path};

use super::metadata::absent_is_fine;
use crate::error::KubeletError;

/// The link that is exchanged.
const DATA: &str = "..data";
const FRESH: &str = "..data_tmp";

/// One file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its permission bits.
    pub mode: u32,
    /// Whose it is, if not root's.
    pub owner: Option<u32>,
}

/// Files by relative path.
pub type Files = BTreeMap<String, Content>;

/// Makes `dir` hold exactly `files`; does nothing if it does already. `stamp` names the new set. Files go to
/// `group` if there is one, readable for it.
///
/// # Errors
/// [`KubeletError::Invalid`] if a path leads outside; [`KubeletError::Io`].
pub fn write(dir: &Path, files: &Files, stamp: &str, group: Option<u32>) -> Result<bool, KubeletError> {
    for path in files.keys() {
        check(path)?;
    }
    let current = fs::read_link(dir.join(DATA)).ok();
    if current.as_ref().is_some_and(|c| same(&dir.join(c), files, group)) {
        link_all(dir, files)?;
        return Ok(false);
    }
    let name = format!("..{stamp}");
    let fresh = dir.join(&name);
    fs::create_dir_all(&fresh).map_err(KubeletError::io("create folder", &fresh))?;
    set_mode(&fresh, 0o755)?;
    for (path, content) in files {
        write_one(&fresh, path, content, group)?;
    }
    let temporary = dir.join(FRESH);
    absent_is_fine("remove", &temporary, fs::remove_file(&temporary))?;
    symlink(&name, &temporary).map_err(KubeletError::io("link", &temporary))?;
    let data = dir.join(DATA);
    fs::rename(&temporary, &data).map_err(KubeletError::io("exchange", &data))?;
    link_all(dir, files)?;
    remove_old(dir, files, &name)?;
    Ok(true)
}

fn check(path: &str) -> Result<(), KubeletError> {
    let mut components = Path::new(path).components();
    let normal = components.clone().all(|c| matches!(c, Component::Normal(_)));
    let first = components.next().map(|c| c.as_os_str().to_string_lossy().into_owned()).unwrap_or_default();
    if !normal || first.is_empty() || first.starts_with("..") {
        return Err(KubeletError::Invalid(format!("{path:?} is not a path within the volume")));
    }
    Ok(())
}

fn set_mode(path: &Path, mode: u32) -> Result<(), KubeletError> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .map_err(KubeletError::io("change the mode of", path))
}

fn effective(mode: u32, group: Option<u32>) -> u32 {
    if group.is_some() { mode | 0o440 } else { mode }
}

fn write_one(fresh: &Path, path: &str, content: &Content, group: Option<u32>) -> Result<(), KubeletError> {
    let file = fresh.join(path);
    if let Some(parent) = file.parent() {
        fs::create_dir_all(parent).map_err(KubeletError::io("create folder", parent))?;
    }
    fs::write(&file, &content.bytes).map_err(KubeletError::io("write", &file))?;
    if group.is_some() || content.owner.is_some() {
        lchown(&file, content.owner, group).map_err(KubeletError::io("change the owner of", &file))?;
    }
    set_mode(&file, effective(content.mode, group))
}

/// Whether `dir` holds exactly `files`.
fn same(dir: &Path, files: &Files, group: Option<u32>) -> bool {
    let mut found = 0;
    let mut pending = vec![dir.to_owned()];
    while let Some(next) = pending.pop() {
        let Ok(entries) = fs::read_dir(&next) else { return false };
        for entry in entries.flatten() {
            let path = entry.path();
            if path.is_dir() {
                pending.push(path);
                continue;
            }
            let Ok(relative) = path.strip_prefix(dir) else { return false };
            let Some(content) = files.get(relative.to_string_lossy().as_ref()) else { return false };
            let mode = entry.metadata().map(|m| m.permissions().mode() & 0o7777).unwrap_or_default();
            if mode != effective(content.mode, group) || fs::read(&path).ok().as_ref() != Some(&content.bytes)
            {
                return false;
            }
            found += 1;
        }
    }
    found == files.len()
}

fn tops(files: &Files) -> BTreeSet<String> {
    files.keys().filter_map(|path| path.split('/').next()).map(str::to_owned).collect()
}

fn link_all(dir: &Path, files: &Files) -> Result<(), KubeletError> {
    for top in tops(files) {
        let link = dir.join(&top);
        match symlink(Path::new(DATA).join(&top), &link) {
            Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(KubeletError::io("link", link)(e)),
            _ => {}
        }
    }
    Ok(())
}

/// Removes links of files that are gone and older sets, also those of an interrupted write.
fn remove_old(dir: &Path, files: &Files, current: &str) -> Result<(), KubeletError> {
    let tops = tops(files);
    for entry in fs::read_dir(dir).map_err(KubeletError::io("read", dir))?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = entry.path();
        if name == DATA || name == current || tops.contains(&name) {
            continue;
        }
        let removed = if path.is_symlink() { fs::remove_file(&path) } else { fs::remove_dir_all(&path) };
        absent_is_fine("remove", &path, removed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(list: &[(&str, &str)]) -> Files {
        list.iter()
            .map(|(path, text)| {
                ((*path).to_owned(), Content { bytes: text.as_bytes().to_vec(), mode: 0o644, owner: None })
            })
            .collect()
    }

    fn read(dir: &Path, path: &str) -> String {
        fs::read_to_string(dir.join(path)).unwrap_or_else(|_| "-".to_owned())
    }

    #[test]
    fn files_are_exchanged_as_one_and_old_ones_go() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        assert!(write(dir, &files(&[("a", "1"), ("sub/b", "2")]), "1", None).unwrap());
        assert_eq!((read(dir, "a"), read(dir, "sub/b")), ("1".into(), "2".into()));
        assert!(!write(dir, &files(&[("a", "1"), ("sub/b", "2")]), "2", None).unwrap());
        assert!(write(dir, &files(&[("a", "3"), ("c", "4")]), "3", None).unwrap());
        assert_eq!(
            (read(dir, "a"), read(dir, "c"), read(dir, "sub/b")),
            ("3".into(), "4".into(), "-".into())
        );
        assert_eq!(fs::read_link(dir.join("..data")).unwrap(), Path::new("..3"));
        assert!(!dir.join("..1").exists() && !dir.join("sub").is_symlink());
    }

    #[test]
    fn an_interrupted_write_is_finished_by_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        fs::create_dir(dir.join("..0")).unwrap();
        fs::write(dir.join("..0/a"), "torn").unwrap();
        symlink("..0", dir.join("..data_tmp")).unwrap();
        write(dir, &files(&[("a", "1")]), "1", None).unwrap();
        assert_eq!(read(dir, "a"), "1");
        assert!(!dir.join("..0").exists() && !dir.join("..data_tmp").is_symlink());
    }

    #[test]
    fn a_path_out_of_the_volume_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        for bad in ["../x", "/etc/x", "a/../../x", "..data", ""] {
            assert!(write(dir.path(), &files(&[(bad, "")]), "1", None).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_mode_change_alone_is_a_change() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &files(&[("a", "1")]), "1", None).unwrap();
        let strict =
            Files::from([("a".to_owned(), Content { bytes: b"1".to_vec(), mode: 0o400, owner: None })]);
        assert!(write(dir.path(), &strict, "2", None).unwrap());
    }
}
