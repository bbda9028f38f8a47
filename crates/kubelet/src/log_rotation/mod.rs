//! Logs of containers are kept short: at 10 MiB a log gets another name and the runtime begins a new one; older ones are
//! compressed, and the oldest removed. It is done here alone, whatever runtime writes them.
//!
//! - [`plan`] what is done with the files of one log, purely

pub mod plan;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;
use trine_contracts::cri;

pub use plan::Limits;

use crate::config::Config;
use crate::error::KubeletError;
use crate::periodic::every;
use crate::runtime::{Runtime, labels};
use plan::{Step, plan};

/// How often lengths are looked at (upstream: `containerLogMonitorInterval`).
const PERIOD: Duration = Duration::from_secs(10);

/// Keeps logs short until told to stop.
pub async fn run(config: Arc<Config>, runtime: Runtime, stop: CancellationToken) {
    every(PERIOD, &stop, || async {
        if let Err(error) = turn(&config, &runtime).await {
            tracing::warn!(plane = "kubelet", error = error.chain(), "logs not looked at");
        }
    })
    .await;
}

async fn turn(config: &Config, runtime: &Runtime) -> Result<(), KubeletError> {
    let running = cri::ContainerState::ContainerRunning as i32;
    for container in runtime.containers(None).await?.iter().filter(|c| c.state == running) {
        let Some(log) = log_path(config, container) else { continue };
        let due = match fs::metadata(&log) {
            Ok(meta) => meta.len() > config.logs.max_bytes,
            // A rotation was cut off before the runtime had opened a new one.
            Err(error) if error.kind() == io::ErrorKind::NotFound && has_folder(&log) => {
                runtime.reopen_log(&container.id).await?;
                false
            }
            Err(_) => false,
        };
        if due && let Err(error) = rotate(&log, config.logs, runtime, &container.id).await {
            tracing::warn!(
                plane = "kubelet",
                container = container.id,
                error = error.chain(),
                "log not rotated"
            );
        }
    }
    Ok(())
}

fn has_folder(log: &Path) -> bool {
    log.parent().is_some_and(Path::is_dir)
}

/// Where the kubelet told the runtime to write.
fn log_path(config: &Config, container: &cri::Container) -> Option<PathBuf> {
    let label = |key: &str| container.labels.get(key);
    let (namespace, pod, uid) =
        (label(labels::POD_NAMESPACE)?, label(labels::POD_NAME)?, label(labels::POD_UID)?);
    let metadata = container.metadata.as_ref()?;
    let folder = config.log_root.join(format!("{namespace}_{pod}_{uid}")).join(&metadata.name);
    Some(folder.join(format!("{}.log", metadata.attempt)))
}

async fn rotate(log: &Path, limits: Limits, runtime: &Runtime, id: &str) -> Result<(), KubeletError> {
    let path = log.to_owned();
    let moved = tokio::task::spawn_blocking(move || carry_out(&path, limits)).await;
    let moved =
        moved.map_err(|e| KubeletError::Invalid(e.to_string()))?.map_err(KubeletError::io("rotate", log))?;
    let reopened = runtime.reopen_log(id).await;
    if reopened.is_err() {
        // The container goes on to write into the renamed file: it shall have its name for whoever reads it.
        let _ = fs::rename(moved, log);
    }
    reopened
}

/// All but the runtime's part. Gives the log's new name.
fn carry_out(log: &Path, limits: Limits) -> io::Result<PathBuf> {
    let folder = log.parent().unwrap_or(Path::new("/"));
    let name = log.file_name().unwrap_or_default().to_string_lossy();
    let files: BTreeSet<String> = fs::read_dir(folder)?
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    let stamp = Timestamp::now().strftime("%Y%m%d-%H%M%S").to_string();
    let mut moved = log.to_owned();
    for step in plan(&name, &files, limits, &stamp) {
        match step {
            Step::Remove(file) => fs::remove_file(folder.join(file))?,
            Step::Compress(file) => compress(&folder.join(file))?,
            Step::Rotate(file) => {
                moved = folder.join(file);
                fs::rename(log, &moved)?;
            }
        }
    }
    Ok(moved)
}

/// Replaces `file` with `file.gz`, which is there whole or not at all.
fn compress(file: &Path) -> io::Result<()> {
    let with = |end: &str| {
        let mut name = file.as_os_str().to_owned();
        name.push(end);
        PathBuf::from(name)
    };
    let half = with(".tmp");
    let mut encoder = GzEncoder::new(File::create(&half)?, Compression::default());
    io::copy(&mut File::open(file)?, &mut encoder)?;
    encoder.finish()?;
    fs::rename(&half, with(".gz"))?;
    fs::remove_file(file)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_log_is_rotated_and_the_one_before_compressed() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("0.log");
        fs::write(&log, "new").unwrap();
        fs::write(dir.path().join("0.log.20260101-000000"), "old").unwrap();
        let moved = carry_out(&log, Limits::default()).unwrap();
        assert_eq!((log.exists(), fs::read_to_string(&moved).unwrap().as_str()), (false, "new"));
        let mut names: Vec<_> = fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["0.log.20260101-000000.gz".as_ref(), moved.file_name().unwrap()]);
        let mut text = String::new();
        let packed = File::open(dir.path().join(&names[0])).unwrap();
        flate2::read::GzDecoder::new(packed).read_to_string(&mut text).unwrap();
        assert_eq!(text, "old");
    }
}
