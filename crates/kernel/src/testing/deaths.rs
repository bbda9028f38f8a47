//! A process that a test lets die by `kill -9`: at a [`failpoint`](super::failpoint) that the test names, in a folder that both know.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::Path;

/// Where to die: `place<TAB>occurrence`.
const ARMED: &str = "armed";
/// The same, once somebody has.
const DIED: &str = "died";
/// Names of all places that were reached, one a line, while it is there.
const VISITED: &str = "visited";

/// Lets whoever obeys `folder`, now or when it is started, die when it reaches `place` for the `occurrence`th time from then on.
///
/// # Errors
/// What the file system says.
pub fn arm(folder: &Path, place: &str, occurrence: usize) -> io::Result<()> {
    let new = folder.join("armed.new");
    std::fs::write(&new, format!("{place}\t{occurrence}"))?;
    std::fs::rename(new, folder.join(ARMED))
}

/// Whether somebody has died where it was told to, since this was asked last.
///
/// # Errors
/// What the file system says.
pub fn died(folder: &Path) -> io::Result<bool> {
    match std::fs::remove_file(folder.join(DIED)) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// From now on whoever obeys `folder` writes down where it has been.
///
/// # Errors
/// What the file system says.
pub fn watch(folder: &Path) -> io::Result<()> {
    std::fs::write(folder.join(VISITED), "")
}

/// Where it has been since then, and how often. It writes no more.
///
/// # Errors
/// What the file system says.
pub fn visited(folder: &Path) -> io::Result<BTreeMap<String, usize>> {
    let text = std::fs::read_to_string(folder.join(VISITED))?;
    std::fs::remove_file(folder.join(VISITED))?;
    let mut visited = BTreeMap::new();
    text.lines().for_each(|line| *visited.entry(line.to_owned()).or_default() += 1);
    Ok(visited)
}

#[cfg(debug_assertions)]
pub use obey::obey;

#[cfg(debug_assertions)]
mod obey {
    use std::io::Write;
    use std::path::PathBuf;
    use std::sync::{Mutex, OnceLock, PoisonError};

    use rustix::process::{Signal, getpid, kill_process};

    use super::{ARMED, DIED, VISITED};

    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    /// How often the place was reached since it was armed.
    static REACHED: Mutex<(String, usize)> = Mutex::new((String::new(), 0));

    /// From now on this process dies where `folder` says. The first call counts.
    pub fn obey(folder: PathBuf) {
        if FOLDER.set(folder).is_ok() {
            super::super::on_failpoint(reached);
        }
    }

    fn reached(place: &'static str) {
        let Some(folder) = FOLDER.get() else { return };
        if let Ok(mut file) = std::fs::File::options().append(true).open(folder.join(VISITED)) {
            let _ = file.write_all(format!("{place}\n").as_bytes());
        }
        let Ok(armed) = std::fs::read_to_string(folder.join(ARMED)) else { return };
        let Some((wanted, occurrence)) = armed.split_once('\t') else { return };
        if wanted != place {
            return;
        }
        let mut count = REACHED.lock().unwrap_or_else(PoisonError::into_inner);
        if count.0 != armed {
            *count = (armed.clone(), 0);
        }
        count.1 += 1;
        if Ok(count.1) == occurrence.parse() {
            let _ = std::fs::rename(folder.join(ARMED), folder.join(DIED));
            let _ = kill_process(getpid(), Signal::KILL);
        }
    }
}
