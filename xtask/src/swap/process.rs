//! One process of a run: its words, its log, its end.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;

/// How long a process may take to end by itself.
const END_DEADLINE: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(20);

/// A started process; ended when dropped.
pub struct Process {
    /// What it is called in what is said of it.
    pub name: String,
    log: PathBuf,
    child: Child,
}

impl Process {
    /// Starts a command with its words in `log`.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(name: &str, command: &mut Command, log: &Path) -> anyhow::Result<Self> {
        let file = File::create(log).with_context(|| log.display().to_string())?;
        // Ctrl-C is for this program, which then ends it.
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).process_group(0);
        let child = command.spawn().with_context(|| format!("cannot run {name}"))?;
        Ok(Self { name: name.to_owned(), log: log.to_owned(), child })
    }

    /// Its last words, if it has ended.
    pub fn gone(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok()??;
        Some(format!("{} has ended with {status}; its last words: {}", self.name, self.last(1)))
    }

    /// The last lines of its log.
    pub fn last(&self, lines: usize) -> String {
        let said = std::fs::read(&self.log).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        let all: Vec<&str> = said.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.child.id().to_string()).stderr(Stdio::null()).status();
        let since = Instant::now();
        while since.elapsed() < END_DEADLINE {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(POLL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
