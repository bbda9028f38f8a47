//! Trine, or one of its planes, for as long as a suite runs against it.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;

use super::etcd::Etcd;
use super::options::Options;
use super::suite::Suite;
use crate::test::{cargo_command, run_command};

/// How long a plane may take until its socket is there.
const START_DEADLINE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);

/// What the data dirs of runs begin with; the process id of the run ends them.
const PREFIX: &str = "trine-upstream-";

/// What short ways to kubelets' folders begin with; the process id of the run ends them.
const SHORT: &str = "/run/trk-";

/// A started Trine; stopped, with all that it made, when dropped.
pub struct Trine {
    program: PathBuf,
    /// Its data dir.
    pub data_dir: PathBuf,
    log: PathBuf,
    child: Child,
    /// How much of the log has been looked through, bytes, and how often each plane was seen to be started again.
    seen: (usize, BTreeMap<String, u64>),
}

/// The program that is tested: the one that was named, or the release build, which is made if need be.
///
/// # Errors
/// If it cannot be built or is not there.
pub fn program(root: &Path, named: Option<&Path>) -> anyhow::Result<PathBuf> {
    let program = match named {
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
        sweep(program);
        let data_dir = std::env::temp_dir().join(format!("{PREFIX}{name}-{}", std::process::id()));
        std::fs::create_dir_all(&data_dir)?;
        let file = File::create(log).with_context(|| log.display().to_string())?;
        let mut command = Command::new(program);
        command.args(words).arg("--data-dir").arg(&data_dir);
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().with_context(|| format!("cannot run {}", program.display()))?;
        let mut trine = Self {
            program: program.to_owned(),
            data_dir,
            log: log.to_owned(),
            child,
            seen: Default::default(),
        };
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

    /// Starts the cluster that was asked for, on `store` if it is not its own, and waits until its node is Ready. `registries` is
    /// the folder of its registries' settings.
    ///
    /// # Errors
    /// If it ends, or is not Ready in time.
    pub fn cluster(
        (program, registries): (&Path, &str),
        name: &str,
        options: &Options,
        store: Option<&Etcd>,
        log: &Path,
    ) -> anyhow::Result<Self> {
        let nodes = options.nodes.to_string();
        let mut words = vec!["up", "--registry-config", registries];
        if options.nodes > 1 {
            words.extend(["--nodes", &nodes]);
        }
        if options.suite == Suite::DualStack {
            words.extend(["--ip-family", "dual"]);
        }
        // Of the versions that are off by default the specs of devices ask for some.
        if options.suite == Suite::Dra {
            words.extend(["--runtime-config", "api/beta=true"]);
        }
        let store = store.map(|etcd| format!("etcd={}", etcd.url));
        words.extend(store.iter().flat_map(|store| ["--store", store]));
        let mut trine = Self::start(program, name, &words, "kubeconfig", log)?;
        trine.ready()?;
        Ok(trine)
    }

    /// The kubelet's folder, by a way that is no longer than upstream's `/var/lib/kubelet`: some specs choose names of sockets that
    /// fit below that one.
    ///
    /// # Errors
    /// What the file system says.
    pub fn short_kubelet_root(&self) -> anyhow::Result<PathBuf> {
        let short = short();
        let _ = std::fs::remove_file(&short);
        std::os::unix::fs::symlink(self.data_dir.join("kubelet"), &short)?;
        Ok(short)
    }

    /// Waits until its node is Ready.
    ///
    /// # Errors
    /// If it is not in time.
    pub fn ready(&mut self) -> anyhow::Result<()> {
        let since = Instant::now();
        let record = self.data_dir.join("run/daemon.json");
        while !std::fs::read_to_string(&record).is_ok_and(|text| text.contains("\"ready\":true")) {
            if let Some(why) = self.gone() {
                anyhow::bail!("{why}");
            }
            anyhow::ensure!(since.elapsed() < START_DEADLINE, "not Ready after {START_DEADLINE:?}");
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// Why it is not as it was started: it has ended, panicked, or a plane of it was started again. Nothing if it is well.
    pub fn broken(&mut self) -> Option<String> {
        self.gone().or_else(|| self.troubles().into_iter().next())
    }

    /// Its last words, if it has ended.
    pub fn gone(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok()??;
        let said = std::fs::read_to_string(&self.log).unwrap_or_default();
        let last = said.lines().last().unwrap_or("nothing").to_owned();
        Some(format!("trine has ended with {status}; its last words: {last}"))
    }

    /// What went wrong inside it since it was asked last: panics, and planes that were started again.
    pub fn troubles(&mut self) -> Vec<String> {
        let said = std::fs::read(&self.log).unwrap_or_default();
        // A line that is still being written is looked at next time.
        let end = said.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1).max(self.seen.0);
        let mut troubles = panics(&String::from_utf8_lossy(&said[self.seen.0..end]));
        self.seen.0 = end;
        let planes = std::fs::read_to_string(self.data_dir.join("run/planes.json")).unwrap_or_default();
        for (plane, restarts, why) in restarted(&planes) {
            if self.seen.1.insert(plane.clone(), restarts).unwrap_or_default() < restarts {
                troubles.push(format!("the plane {plane} was started again: {why}"));
            }
        }
        troubles
    }
}

fn short() -> PathBuf {
    PathBuf::from(format!("{SHORT}{}", std::process::id()))
}

/// Takes away what runs that were killed have left.
fn sweep(program: &Path) {
    for entry in std::fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(pid) = name.strip_prefix(PREFIX).and_then(|rest| rest.rsplit('-').next()) else { continue };
        if !Path::new("/proc").join(pid).exists() {
            let _ = std::fs::remove_file(format!("{SHORT}{pid}"));
            purge(program, &entry.path());
        }
    }
}

/// Ends what runs in a data dir and removes it.
fn purge(program: &Path, data_dir: &Path) {
    match Command::new(program).args(["down", "--purge", "--data-dir"]).arg(data_dir).output() {
        Ok(output) if output.status.success() => {}
        Ok(output) => eprint!("{}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => eprintln!("trine down: {error}"),
    }
    let _ = std::fs::remove_dir_all(data_dir);
}

/// The panics in a log.
fn panics(log: &str) -> Vec<String> {
    log.lines()
        .filter(|line| line.contains("panicked at"))
        .map(|line| format!("trine panicked: {line}"))
        .collect()
}

/// The planes that were started more than once, how often again, and why, by what a running Trine writes about them.
fn restarted(planes: &str) -> Vec<(String, u64, String)> {
    let planes: serde_json::Value = serde_json::from_str(planes).unwrap_or_default();
    let planes = planes.as_object().into_iter().flatten();
    let again = planes.filter_map(|(name, plane)| {
        let restarts = plane["restarts"].as_u64().filter(|restarts| *restarts > 0)?;
        Some((
            name.clone(),
            restarts,
            plane["last_error"].as_str().unwrap_or("no reason is recorded").to_owned(),
        ))
    });
    again.collect()
}

impl Drop for Trine {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(short());
        purge(&self.program, &self.data_dir);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_and_a_plane_that_came_back_are_told() {
        let log = "INFO started\nthread 'main' panicked at crates/x.rs:1:2:\nboom";
        assert_eq!(panics(log), ["trine panicked: thread 'main' panicked at crates/x.rs:1:2:"]);
        assert!(panics("INFO all is well").is_empty());
        let planes = r#"{"cri": {"restarts": 0}, "proxy": {"restarts": 2, "last_error": "no nft"}}"#;
        assert_eq!(restarted(planes), [("proxy".to_owned(), 2, "no nft".to_owned())]);
        assert!(restarted("").is_empty());
    }
}
