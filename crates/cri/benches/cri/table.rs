//! The page.

use std::fmt::Write;
use std::time::Duration;

use crate::life::Times;
use crate::peers::Stage;
use crate::phases::{All, Seen};

/// The calls in their order, and what the sums are called.
const ROWS: [(&str, &str); 8] = [
    ("RunPodSandbox", "RunPodSandbox"),
    ("CreateContainer", "CreateContainer"),
    ("StartContainer", "StartContainer"),
    ("start", "**Pod start**, the three"),
    ("StopContainer", "StopContainer"),
    ("StopPodSandbox", "StopPodSandbox"),
    ("RemovePodSandbox", "RemovePodSandbox"),
    ("stop", "**Pod stop**, the three"),
];

/// The page for what was seen.
#[must_use]
pub fn page(stage: &Stage, all: &All) -> String {
    let mut page = String::from("# `cargo xtask bench cri`\n\nWritten by the command. ");
    let _ = writeln!(
        page,
        "The same image and the same network ({}) for all; a Pod of one is followed by a Pod of the\nnext. \
         Trine's runtime is a release build with nothing else of Trine in it. The calls are our own client's: `critest -benchmark`\n\
         measures one runtime a run, so not in turns, and lists no hundred containers. Containers are killed at once (no grace).\n\
         Load average at the beginning {}, at the end {}, on {} cores. Times in ms: p50 / p90 / p99.\n",
        stage.network,
        all.load.0,
        all.load.1,
        std::thread::available_parallelism().map_or(0, usize::from),
    );
    for left_out in &stage.left_out {
        let _ = writeln!(page, "Not measured here: {left_out}\n");
    }
    let names: Vec<&str> = stage.peers.iter().map(|peer| peer.name.as_str()).collect();
    let serial = |seen: &Seen, call: &str| times(&seen.serial, call);
    part(&mut page, "One Pod after the other", &names, &all.seen, serial);
    let parallel = |seen: &Seen, call: &str| times(&seen.parallel, call);
    part(&mut page, "Ten at a time", &names, &all.seen, parallel);
    let mut rows: Vec<(&str, Vec<String>)> = Vec::new();
    let each = |what: &dyn Fn(&Seen) -> String| all.seen.iter().map(what).collect::<Vec<_>>();
    rows.push(("Pods started in a second, ten at a time", each(&|seen| rate(seen, |r| r.0))));
    rows.push(("Pods stopped in a second, ten at a time", each(&|seen| rate(seen, |r| r.1))));
    rows.push(("ListContainers with 100 running", each(&|seen| times(&seen.lists, "ListContainers"))));
    rows.push(("daemon, idle: resident (private dirty), MiB", each(&|s| daemon(s.idle))));
    rows.push(("daemon, with 100 Pods", each(&|s| daemon(s.full))));
    rows.push((
        "each of the helpers that hold them, private dirty (resident), MiB",
        each(&|s| helper(s.full)),
    ));
    head(&mut page, "Rates and memory", &names);
    for (name, cells) in rows {
        let _ = writeln!(page, "| {name} | {} |", cells.join(" | "));
    }
    page
}

fn head(page: &mut String, title: &str, names: &[&str]) {
    let _ = writeln!(page, "## {title}\n\n| | {} |\n|---|{}", names.join(" | "), "---|".repeat(names.len()));
}

fn part(page: &mut String, title: &str, names: &[&str], seen: &[Seen], cell: impl Fn(&Seen, &str) -> String) {
    head(page, title, names);
    for (call, name) in ROWS {
        let cells: Vec<String> = seen.iter().map(|seen| cell(seen, call)).collect();
        let _ = writeln!(page, "| {name} | {} |", cells.join(" | "));
    }
    page.push('\n');
}

fn times(times: &Times, call: &str) -> String {
    let mut all = times.0.get(call).cloned().unwrap_or_default();
    all.sort_unstable();
    let at = |share: usize| {
        let place = (all.len() * share / 100).min(all.len().saturating_sub(1));
        let took = all.get(place).copied().unwrap_or_default();
        ms(took)
    };
    format!("{} / {} / {}", at(50), at(90), at(99))
}

fn ms(took: Duration) -> String {
    let ms = took.as_secs_f64() * 1000.0;
    if ms < 10.0 { format!("{ms:.1}") } else { format!("{ms:.0}") }
}

/// The median turn's.
fn rate(seen: &Seen, which: impl Fn(&(f64, f64)) -> f64) -> String {
    let mut all: Vec<f64> = seen.rates.iter().map(which).collect();
    all.sort_by(f64::total_cmp);
    format!("{:.1}", all.get(all.len() / 2).copied().unwrap_or_default())
}

fn mib(kb: u64) -> String {
    format!("{:.1}", kb as f64 / 1024.0)
}

fn daemon(memory: crate::memory::Memory) -> String {
    format!("{} ({})", mib(memory.daemon), mib(memory.daemon_dirty))
}

fn helper(memory: crate::memory::Memory) -> String {
    let each = |sum: u64| format!("{:.2}", sum as f64 / 1024.0 / memory.helpers.max(1) as f64);
    format!("{} ({}), {} of them", each(memory.helpers_dirty), each(memory.helpers_resident), memory.helpers)
}
