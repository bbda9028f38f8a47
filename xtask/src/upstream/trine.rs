//! Trine, or one of its planes, for as long as a suite runs against it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;

use super::options::Options;
use crate::test::{cargo_command, run_command};

/// How long a plane may take until its socket is there.
const START_DEADLINE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);

/// A started Trine; stopped, with all that it made, when dropped.
pub struct Trine {
    program: PathBuf,
    /// Its data dir.
    pub data_dir: PathBuf,
    log: PathBuf,
    child: Child,
}

/// The program that is tested: the one that was named, or the release build, which is made if need be.
///
/// # Errors
/// If it cannot be built or is not there.
pub fn program(root: &Path, options: &Options) -> anyhow::Result<PathBuf> {
    let program = match &options.program {
        Some(path) => std::path::absolute(path)?,
        None => {
            run_command(cargo_command(root).args(["build", "--release", "--package", "trine", "--quiet"]))?;
            root.join("target/release/trine")
        }
    };
    anyhow::ensure!(program.is_file(), "there is no {}", program.display());
    Ok(program)
}

impl Trine {
    /// Starts `trine WORDS --data-dir D`, and waits for the file `awaited` in D. Its log is `log`.
    ///
    /// # Errors
    /// If it ends, or the file is not there in time.
    pub fn start(
        program: &Path,
        name: &str,
        words: &[&str],
        awaited: &str,
        log: &Path,
    ) -> anyhow::Result<Self> {
        let data_dir = std::env::temp_dir().join(format!("trine-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&data_dir)?;
        let file = File::create(log).with_context(|| log.display().to_string())?;
        let mut command = Command::new(program);
        command.args(words).arg("--data-dir").arg(&data_dir);
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().with_context(|| format!("cannot run {}", program.display()))?;
        let mut trine = Self { program: program.to_owned(), data_dir, log: log.to_owned(), child };
        let since = Instant::now();
        while !trine.data_dir.join(awaited).exists() {
            if let Some(why) = trine.broken() {
                anyhow::bail!("{why}");
            }
            anyhow::ensure!(since.elapsed() < START_DEADLINE, "no {awaited} after {START_DEADLINE:?}");
            std::thread::sleep(POLL);
        }
        Ok(trine)
    }

    /// Why it is not as it was started: it has ended, panicked, or a plane of it was started again. Nothing if it is well.
    pub fn broken(&mut self) -> Option<String> {
        if let Ok(Some(status)) = self.child.try_wait() {
            let said = std::fs::read_to_string(&self.log).unwrap_or_default();
            let last = said.lines().last().unwrap_or("nothing").to_owned();
            return Some(format!("trine has ended with {status}; its last words: {last}"));
        }
        let said = std::fs::read(&self.log).unwrap_or_default();
        let planes = std::fs::read_to_string(self.data_dir.join("run/planes.json")).unwrap_or_default();
        panicked(&String::from_utf8_lossy(&said)).or_else(|| restarted(&planes))
    }
}

/// The first panic in a log.
fn panicked(log: &str) -> Option<String> {
    let line = log.lines().find(|line| line.contains("panicked at"))?;
    Some(format!("trine panicked: {line}"))
}

/// The first plane that was started more than once, by what a running Trine writes about its planes.
fn restarted(planes: &str) -> Option<String> {
    let planes: serde_json::Value = serde_json::from_str(planes).ok()?;
    let (name, plane) =
        planes.as_object()?.iter().find(|(_, p)| p["restarts"].as_u64().unwrap_or_default() > 0)?;
    let why = plane["last_error"].as_str().unwrap_or("no reason is recorded");
    Some(format!("the plane {name} was started again: {why}"))
}

impl Drop for Trine {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
        let mut down = Command::new(&self.program);
        down.arg("down").arg("--purge").arg("--data-dir").arg(&self.data_dir);
        match down.output() {
            Ok(output) if output.status.success() => {}
            Ok(output) => eprint!("{}", String::from_utf8_lossy(&output.stderr)),
            Err(error) => eprintln!("trine down: {error}"),
        }
        let _ = std::fs::remove_dir_all(&self.data_dir);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_and_a_plane_that_came_back_are_told() {
        let log = "INFO started\nthread 'main' panicked at crates/x.rs:1:2:\nboom";
        assert!(panicked(log).unwrap().contains("crates/x.rs:1:2"));
        assert_eq!(panicked("INFO all is well"), None);
        let planes = r#"{"cri": {"restarts": 0}, "proxy": {"restarts": 2, "last_error": "no nft"}}"#;
        assert_eq!(restarted(planes).unwrap(), "the plane proxy was started again: no nft");
        assert_eq!(restarted(r#"{"cri": {"restarts": 0}}"#), None);
        assert_eq!(restarted(""), None);
    }
}
