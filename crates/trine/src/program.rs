//! An image made of programs of this machine: each file with the shared libraries that it needs, found from its own
//! ELF header, so that nothing has to be fetched.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Context;
use trine_images::BuildSpec;

/// An image of `files` (source, place in the image) and the libraries of those that are programs. Without an
/// `entrypoint` the first file is it.
///
/// # Errors
/// If a library is missing on this machine.
pub fn spec(
    reference: &str,
    files: &[(PathBuf, PathBuf)],
    entrypoint: Vec<String>,
) -> anyhow::Result<BuildSpec> {
    let place = |path: &Path| path.display().to_string();
    let mut all: Vec<(PathBuf, String)> = files.iter().map(|(from, to)| (from.clone(), place(to))).collect();
    let mut libraries = BTreeSet::new();
    for (source, _) in files {
        libraries.extend(libraries_of(source)?);
    }
    all.extend(libraries.into_iter().map(|path| (path.clone(), place(&path))));
    let first = files.first().map(|(_, to)| to.display().to_string());
    let entrypoint = if entrypoint.is_empty() { first.into_iter().collect() } else { entrypoint };
    Ok(BuildSpec { reference: reference.to_owned(), files: all, entrypoint, ..BuildSpec::default() })
}

/// The ELF interpreter and the shared libraries of a program, transitively; nothing for a static program or a file that
/// is no program.
///
/// # Errors
/// If a library is not found in the folders where the dynamic linker looks.
pub fn libraries_of(program: &Path) -> anyhow::Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    let mut waiting = vec![program.to_owned()];
    while let Some(file) = waiting.pop() {
        let bytes = std::fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let Some(needs) = crate::elf::needs(&bytes) else { continue };
        let interpreter = needs.interpreter.into_iter().map(PathBuf::from);
        let libraries = needs.libraries.iter().map(|name| locate(name, &needs.search));
        for path in interpreter.map(Ok).chain(libraries) {
            let path = path?;
            if found.insert(path.clone()) {
                waiting.push(path);
            }
        }
    }
    Ok(found)
}

/// Where the dynamic linker of Debian, Fedora and their kin looks when nothing is configured.
const LIBRARY_DIRS: [&str; 8] = [
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
];

fn locate(name: &str, search: &[String]) -> anyhow::Result<PathBuf> {
    let dirs = search.iter().map(String::as_str).filter(|d| d.starts_with('/')).chain(LIBRARY_DIRS);
    let found = dirs.map(|dir| Path::new(dir).join(name)).find(|path| path.exists());
    found.with_context(|| format!("the shared library {name} is in none of {}", LIBRARY_DIRS.join(" ")))
}
