//! Finds what is said of a registry.

use std::io;
use std::path::{Path, PathBuf};

use super::plan::{self, Host};
use crate::pull::error::RegistryError;

const FILE: &str = "hosts.toml";

/// The hosts of `registry`, in the order in which they are tried; never none. `plain`: the registry speaks HTTP unless
/// something else is said of it.
pub(crate) fn of_registry(
    registry: &str,
    plain: bool,
    dir: Option<&Path>,
) -> Result<Vec<Host>, RegistryError> {
    let folder = dir
        .and_then(|dir| plan::folders(registry).into_iter().map(|name| dir.join(name)).find(|f| f.is_dir()));
    let Some(folder) = folder else { return Ok(vec![Host::origin(registry, plain)]) };
    let path = folder.join(FILE);
    let refused = |why: String| RegistryError::Hosts { path: path.clone(), why };
    match std::fs::read_to_string(&path) {
        Ok(text) => plan::read(&text, registry, plain, &folder).map_err(refused),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            certificates_alone(registry, plain, &folder).map_err(|e| refused(e.to_string()))
        }
        Err(e) => Err(refused(e.to_string())),
    }
}

/// A folder without the file, as docker's: `*.crt` are trusted, `X.cert` with `X.key` is shown.
fn certificates_alone(registry: &str, plain: bool, folder: &Path) -> io::Result<Vec<Host>> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    files.sort();
    let ends = |file: &PathBuf, ending: &str| file.extension().is_some_and(|have| have == ending);
    let shown = files.iter().find(|file| ends(file, "cert"));
    let client = shown.map(|certificate| (certificate.clone(), Some(certificate.with_extension("key"))));
    let ca = files.into_iter().filter(|file| ends(file, "crt")).collect();
    Ok(vec![Host { ca, client, ..Host::origin(registry, plain) }])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_folder_that_is_there_speaks_for_a_registry() {
        let dir = tempfile::tempdir().unwrap();
        let bases = |registry: &str| {
            let hosts = of_registry(registry, false, Some(dir.path())).unwrap();
            hosts.into_iter().map(|host| host.base).collect::<Vec<_>>()
        };
        assert_eq!(bases("quay.io"), ["https://quay.io/v2"]);
        std::fs::create_dir(dir.path().join("_default")).unwrap();
        std::fs::write(dir.path().join("_default/hosts.toml"), "server = 'http://all:5000'").unwrap();
        assert_eq!(bases("quay.io"), ["http://all:5000/v2"]);
        std::fs::create_dir(dir.path().join("quay.io")).unwrap();
        std::fs::write(dir.path().join("quay.io/ca.crt"), "").unwrap();
        let hosts = of_registry("quay.io", false, Some(dir.path())).unwrap();
        assert_eq!((hosts[0].base.as_str(), hosts[0].ca.len()), ("https://quay.io/v2", 1));
        assert_eq!(bases("docker.io"), ["http://all:5000/v2"]);
    }

    #[test]
    fn a_broken_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("quay.io")).unwrap();
        std::fs::write(dir.path().join("quay.io/hosts.toml"), "server = ").unwrap();
        let error = of_registry("quay.io", false, Some(dir.path())).unwrap_err().to_string();
        assert!(error.contains("quay.io/hosts.toml"), "{error}");
    }
}
