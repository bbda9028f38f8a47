//! The specs, a few at a time, each in a process of its own.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::progress::Progress;
use super::{Bench, plan};
use crate::upstream::ginkgo;
use crate::upstream::junit::Outcome;
use crate::upstream::suite::Suite;
use crate::upstream::trine::Trine;

/// How often Trine is looked at.
const LOOK: Duration = Duration::from_secs(2);

/// What a worker says.
enum News {
    Begun(String),
    Ended { name: String, outcome: Outcome, deadline: Duration, took: Duration },
}

/// Runs specs and notes their ends; what broke in Trine meanwhile, with the specs that ran then.
///
/// # Errors
/// If Trine has ended, with the specs that ran then; what was done till then is noted.
pub fn run(
    bench: &Bench,
    trine: &mut Trine,
    names: &[String],
    progress: &mut Progress,
) -> anyhow::Result<Vec<String>> {
    let (beside, alone) = plan::order(names);
    let since = Instant::now();
    let mut broken = Vec::new();
    for (names, workers) in [(beside, bench.options.procs), (alone, 1)] {
        broken.extend(several(bench, trine, &names, workers, since, progress)?);
    }
    Ok(broken)
}

/// Where specs find the cluster.
struct Folders {
    kubeconfig: PathBuf,
    kubelet: PathBuf,
}

fn several(
    bench: &Bench,
    trine: &mut Trine,
    names: &[String],
    workers: usize,
    since: Instant,
    progress: &mut Progress,
) -> anyhow::Result<Vec<String>> {
    let next = AtomicUsize::new(0);
    let kubelet = match bench.options.suite {
        Suite::Dra => trine.short_kubelet_root()?,
        _ => trine.data_dir.join("kubelet"),
    };
    let folders = Folders { kubeconfig: trine.data_dir.join("kubeconfig"), kubelet };
    let mut broken = Vec::new();
    std::thread::scope(|scope| {
        let (news, told) = mpsc::channel();
        for worker in 0..workers.min(names.len()) {
            let (news, next, folders) = (news.clone(), &next, &folders);
            scope.spawn(move || {
                while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let Some(deadline) = plan::deadline(since.elapsed()) else { return };
                    let begun = Instant::now();
                    let heard = news.send(News::Begun(name.clone()));
                    let outcome = one(bench, worker, folders, name, deadline);
                    let took = begun.elapsed();
                    let ended = News::Ended { name: name.clone(), outcome, deadline, took };
                    if heard.and(news.send(ended)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(news);
        let mut running = BTreeSet::new();
        let mut ended = 0;
        loop {
            match told.recv_timeout(LOOK) {
                Ok(News::Begun(name)) => drop(running.insert(name)),
                Ok(News::Ended { name, outcome, deadline, took }) => {
                    ended += 1;
                    println!("{ended}/{} {} {:.0?} {name}", names.len(), word(&outcome), took);
                    running.remove(&name);
                    if let Some(outcome) = plan::settled(outcome, deadline) {
                        progress.note(&name, outcome)?;
                    }
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return Ok(()),
            }
            let meanwhile = || running.iter().cloned().collect::<Vec<_>>().join("; ");
            for trouble in trine.troubles() {
                println!("TRINE BROKE: {trouble}");
                broken.push(format!("{trouble}, while these ran: {}", meanwhile()));
            }
            if let Some(why) = trine.gone() {
                next.store(names.len(), Ordering::Relaxed);
                anyhow::bail!("{why}, while these ran: {}", meanwhile());
            }
        }
    })?;
    Ok(broken)
}

fn word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Passed => "passed",
        Outcome::Failed(_) => "FAILED",
        Outcome::Skipped(_) => "skipped",
        Outcome::Interrupted | Outcome::NotRun => "BROKEN OFF",
    }
}

/// Runs one spec; its log stays if it has not passed.
fn one(bench: &Bench, worker: usize, folders: &Folders, name: &str, deadline: Duration) -> Outcome {
    let dir = bench.out.join(format!("worker-{worker}"));
    let log = log_of(bench, name);
    if let Err(error) = std::fs::create_dir_all(&dir).and(std::fs::create_dir_all(bench.out.join("logs"))) {
        return Outcome::Failed(error.to_string());
    }
    let mut command = Command::new(&bench.suite);
    command.arg(format!("--kubeconfig={}", folders.kubeconfig.display()));
    command.arg(format!("--kubelet-root-dir={}", folders.kubelet.display()));
    command.arg(format!("--kubectl-path={}", bench.kubectl.display()));
    command.arg(format!("--ginkgo.focus={}", ginkgo::exactly(name)));
    command.arg(format!("--ginkgo.timeout={}s", deadline.as_secs()));
    command.arg(format!("--report-dir={}", dir.display())).args(&bench.words);
    command.args([
        "--provider=skeleton",
        "--ginkgo.no-color",
        "--disable-log-dump",
        "--dump-logs-on-failure=false",
    ]);
    let report = match ginkgo::run(&mut command, &log, &dir.join("junit_01.xml"), deadline, || None) {
        Ok(report) => report,
        Err(error) => return Outcome::Failed(format!("{error:#}")),
    };
    let found = report.cases.into_iter().find(|case| case.name == name).map(|case| case.outcome);
    let outcome = found.unwrap_or(Outcome::NotRun);
    if outcome == Outcome::Passed {
        let _ = std::fs::remove_file(&log);
    }
    match (outcome, report.around.first()) {
        (Outcome::NotRun, Some(around)) => Outcome::Failed(around.clone()),
        (outcome, _) => outcome,
    }
}

/// The file that a spec's words go to.
fn log_of(bench: &Bench, name: &str) -> PathBuf {
    let plain: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    // A file's name may have 255 bytes.
    let start = plain.len().saturating_sub(200);
    bench.out.join("logs").join(format!("{}.log", plain[start..].trim_start_matches('-')))
}
