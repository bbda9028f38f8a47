//! Who calls when: one Pod after the other, ten at a time, and a hundred that run.

use std::time::{Duration, Instant};

use crate::Outcome;
use crate::life::{self, Running, Times};
use crate::memory::{self, Memory};
use crate::peers::{Peer, Stage};

/// Pods before anything is counted: caches, lazily made folders, the first use of code.
/// How long a daemon has nothing to do before its memory is read: what it still needs, not what its last call took.
const IDLE: Duration = Duration::from_secs(15);
const WARM_UP: usize = 3;
/// Pods that are started or stopped at a time.
const PARALLEL: usize = 10;
/// Turns of the parallel phase, each runtime's one after the other's.
const TURNS: usize = 4;
/// Pods of a turn.
const PODS: usize = 30;
/// Pods that run while lists are measured.
const HUNDRED: usize = 100;
/// Lists.
const LISTS: usize = 50;

/// What was seen of one runtime.
#[derive(Debug, Default)]
pub struct Seen {
    /// One by one.
    pub serial: Times,
    /// Ten at a time.
    pub parallel: Times,
    /// Pods started, and stopped, in a second, by turn.
    pub rates: Vec<(f64, f64)>,
    /// Memory before the first Pod, and with a hundred.
    pub idle: Memory,
    /// With a hundred Pods.
    pub full: Memory,
    /// ListContainers with a hundred.
    pub lists: Times,
}

/// Everything, and the machine's load at its beginning and end.
#[derive(Debug, Default)]
pub struct All {
    /// By runtime, in the order of the stage's.
    pub seen: Vec<Seen>,
    /// `/proc/loadavg`, before and after.
    pub load: (String, String),
}

/// Has each runtime run a Pod: one that cannot on this machine is left out, and said why.
pub async fn try_out(stage: &mut Stage) {
    for peer in std::mem::take(&mut stage.peers) {
        match one_by_one(&peer, "try", 1, &mut Times::default()).await {
            Ok(()) => stage.peers.push(peer),
            Err(error) => stage.left_out.push(format!("{}: {error}", peer.name)),
        }
    }
}

/// Runs all phases.
///
/// # Errors
/// The first call that fails.
pub async fn run(stage: &Stage, rounds: usize) -> Outcome<All> {
    let mut all = All { seen: stage.peers.iter().map(|_| Seen::default()).collect(), ..All::default() };
    all.load.0 = load();
    tokio::time::sleep(IDLE).await;
    for (peer, seen) in stage.peers.iter().zip(&mut all.seen) {
        seen.idle = memory::of(peer);
        one_by_one(peer, "warm", WARM_UP, &mut Times::default()).await?;
    }
    for round in 0..rounds {
        for (peer, seen) in stage.peers.iter().zip(&mut all.seen) {
            one_by_one(peer, &format!("one{round}"), 1, &mut seen.serial).await?;
        }
    }
    for turn in 0..TURNS {
        for (peer, seen) in stage.peers.iter().zip(&mut all.seen) {
            let begun = Instant::now();
            let running = start_many(peer, &format!("many{turn}"), PODS, &mut seen.parallel).await?;
            let started = begun.elapsed();
            let begun = Instant::now();
            stop_many(peer, running, &mut seen.parallel).await?;
            seen.rates.push((rate(started), rate(begun.elapsed())));
        }
    }
    for (peer, seen) in stage.peers.iter().zip(&mut all.seen) {
        let running = start_many(peer, "hundred", HUNDRED, &mut Times::default()).await?;
        let mut client = peer.client();
        for _ in 0..LISTS {
            life::list(&mut client, HUNDRED, &mut seen.lists).await?;
        }
        tokio::time::sleep(IDLE).await;
        seen.full = memory::of(peer);
        stop_many(peer, running, &mut Times::default()).await?;
    }
    all.load.1 = load();
    Ok(all)
}

fn rate(took: Duration) -> f64 {
    PODS as f64 / took.as_secs_f64()
}

fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

async fn one_by_one(peer: &Peer, name: &str, count: usize, times: &mut Times) -> Outcome<()> {
    for number in 0..count {
        let running = life::start(peer, &format!("{name}-{number}"), times).await?;
        life::stop(peer, running, times).await?;
    }
    Ok(())
}

/// Starts `count` Pods, [`PARALLEL`] at a time: as soon as one runs, the next begins.
async fn start_many(peer: &Peer, name: &str, count: usize, times: &mut Times) -> Outcome<Vec<Running>> {
    let mut tasks = Vec::new();
    for worker in 0..PARALLEL {
        let (peer, name) = (peer.clone(), name.to_owned());
        tasks.push(tokio::spawn(async move {
            let (mut times, mut running) = (Times::default(), Vec::new());
            for number in (worker..count).step_by(PARALLEL) {
                running.push(life::start(&peer, &format!("{name}-{number}"), &mut times).await?);
            }
            Outcome::Ok((times, running))
        }));
    }
    let mut all = Vec::new();
    for task in tasks {
        let (own, running) = task.await??;
        times.join(own);
        all.extend(running);
    }
    Ok(all)
}

async fn stop_many(peer: &Peer, running: Vec<Running>, times: &mut Times) -> Outcome<()> {
    let mut shares: Vec<Vec<Running>> = (0..PARALLEL).map(|_| Vec::new()).collect();
    for (number, pod) in running.into_iter().enumerate() {
        shares[number % PARALLEL].push(pod);
    }
    let mut tasks = Vec::new();
    for share in shares {
        let peer = peer.clone();
        tasks.push(tokio::spawn(async move {
            let mut times = Times::default();
            for pod in share {
                life::stop(&peer, pod, &mut times).await?;
            }
            Outcome::Ok(times)
        }));
    }
    for task in tasks {
        times.join(task.await??);
    }
    Ok(())
}
