//! Who makes which calls when: one side's after the other's, so that a busy machine is as slow for one as for the other.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use trine_kernel::netlink::Route;
use trine_kernel::netns::Netns;

use crate::sides::Side;
use crate::{Asked, Machine, Outcome};

/// Attachments at once.
pub const MANY: usize = 32;
/// Turns of that; and rounds with the large store, which the reference reads whole each time.
const TURNS: usize = 3;

/// What was measured: phase, side, call; times.
pub type Calls = BTreeMap<(&'static str, &'static str, &'static str), Vec<Duration>>;

/// The phases, in the order of the table.
pub const PHASES: [&str; 4] =
    ["1 in use, one by one", "1 in use, 32 at once", "many in use, one by one", "many in use, 32 at once"];
/// The sides, in the order of the table.
pub const SIDES: [&str; 3] = ["Trine, in process", "Trine, executed", "reference"];

fn sides(asked: &Asked, machine: &Machine, large: bool) -> Outcome<Vec<Side>> {
    let dir = machine.dir.path();
    let size = if large { "large" } else { "small" };
    let mut sides = vec![Side {
        name: SIDES[0],
        programs: None,
        data: dir.join(size).join("own"),
        bridge: "br-in",
        range: 64,
    }];
    {
        let trine = asked.trine.clone().map_or_else(std::env::current_exe, Ok)?;
        let programs = dir.join("bin");
        std::fs::create_dir_all(&programs)?;
        for kind in ["bridge", "host-local", "portmap"] {
            let _ = std::os::unix::fs::symlink(&trine, programs.join(kind));
        }
        let programs = Some(programs);
        sides.push(Side {
            name: SIDES[1],
            programs,
            data: dir.join(size).join("exec"),
            bridge: "br-ex",
            range: 65,
        });
    }
    if let Some(reference) = &asked.reference {
        let programs = Some(reference.clone());
        sides.push(Side {
            name: SIDES[2],
            programs,
            data: dir.join(size).join("ref"),
            bridge: "br-re",
            range: 66,
        });
    }
    Ok(sides)
}

/// Runs all of them.
///
/// # Errors
/// The first call that fails.
pub fn run(asked: &Asked) -> Outcome<Calls> {
    let machine = Machine::new(MANY)?;
    let mut calls = Calls::new();
    for large in [false, true] {
        let sides = sides(asked, &machine, large)?;
        let in_use = if large { asked.in_use } else { 1 };
        for side in &sides {
            side.fill(in_use)?;
            // What is there is taken over before anything is timed.
            one(&machine, side, 0)?;
        }
        let rounds = if large { asked.rounds.min(10) } else { asked.rounds };
        let phase = PHASES[usize::from(large) * 2];
        for round in 0..rounds {
            for side in &sides {
                let (add, del) = one(&machine, side, round)?;
                calls.entry((phase, side.name, "ADD")).or_default().push(add);
                calls.entry((phase, side.name, "DEL")).or_default().push(del);
            }
        }
        let phase = PHASES[usize::from(large) * 2 + 1];
        for turn in 0..if large { 1 } else { TURNS } {
            for side in &sides {
                for (add, del) in many(&machine, side, turn)? {
                    calls.entry((phase, side.name, "ADD")).or_default().push(add);
                    calls.entry((phase, side.name, "DEL")).or_default().push(del);
                }
            }
        }
        eprintln!("{in_use} in use: done");
    }
    Ok(calls)
}

fn one(machine: &Machine, side: &Side, round: usize) -> Outcome<(Duration, Duration)> {
    let pod = machine.pods[0].path().to_owned();
    let times = machine.host.run(|| {
        let (attached, add) = side.add(&format!("c{round}"), &pod, 9000)?;
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>((add, side.del(attached)?))
    })??;
    calm(&machine.host)?;
    Ok(times)
}

fn many(machine: &Machine, side: &Side, turn: usize) -> Outcome<Vec<(Duration, Duration)>> {
    let pods: Vec<PathBuf> = machine.pods.iter().map(|pod| pod.path().to_owned()).collect();
    let attach = |n: usize| -> Outcome<_> {
        let port = 9000 + u16::try_from(n)?;
        machine.host.run(|| side.add(&format!("m{turn}.{n}"), &pods[n], port))?
    };
    let added: Vec<_> = std::thread::scope(|scope| {
        let attach = &attach;
        let threads: Vec<_> = (0..pods.len()).map(|n| scope.spawn(move || attach(n))).collect();
        threads.into_iter().map(|thread| thread.join().map_err(|_| "a thread panicked")).collect::<Vec<_>>()
    });
    let added = added.into_iter().map(|result| result?).collect::<Outcome<Vec<_>>>()?;
    let times: Vec<Duration> = added.iter().map(|(_, add)| *add).collect();
    let detached: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = added
            .into_iter()
            .map(|(attached, _)| {
                scope.spawn(move || -> Outcome<Duration> { machine.host.run(|| side.del(attached))? })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().map_err(|_| "a thread panicked")).collect::<Vec<_>>()
    });
    let detached = detached.into_iter().map(|result| result?).collect::<Outcome<Vec<_>>>()?;
    calm(&machine.host)?;
    Ok(times.into_iter().zip(detached).collect())
}

/// Waits until no link is left that somebody still removes: that must not be the next one's time.
fn calm(host: &Netns) -> Outcome<()> {
    let mut route = Route::open_in(host)?;
    while route.links()?.iter().any(|link| link.kind.as_deref() == Some("veth")) {
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
