//! The page of the results.

use std::fmt::Write;
use std::time::Duration;

use crate::calls::Times;
use crate::io::Gave;

/// The load average now.
pub fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

fn short(milliseconds: f64) -> String {
    if milliseconds < 10.0 { format!("{milliseconds:.1}") } else { format!("{milliseconds:.0}") }
}

fn spread(times: Option<&Vec<Duration>>) -> String {
    let mut times: Vec<f64> = times.into_iter().flatten().map(|t| t.as_secs_f64() * 1000.0).collect();
    times.sort_by(f64::total_cmp);
    let at =
        |share: usize| times.get(times.len().saturating_sub(1) * share / 100).copied().unwrap_or_default();
    format!("{} / {}", short(at(50)), short(at(90)))
}

fn turns(all: &[f64]) -> String {
    all.iter().map(|v| format!("{v:.0}")).collect::<Vec<_>>().join(", ")
}

/// The whole page; `kinds` are files first, the disk second.
pub fn write(before: &str, kinds: &[Times], io: &[Gave]) -> String {
    let mut text = String::new();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let after = load();
    let build = if cfg!(debug_assertions) { "a debug build" } else { "a release build" };
    let rounds = kinds[0].get("CreateVolume").map_or(0, Vec::len);
    let _ = write!(
        text,
        "# `cargo xtask bench csi`\n\nWritten by the command. The driver alone, {build}, over its socket; XFS volumes of 1 GiB, \
         {rounds} times each, one after the other. What is copied is mounted and has 500 MiB of data. Where the host's file system lets \
         files share their blocks both columns are instant copies; where it does not, files are copied byte by byte.\n\
         Load average at the beginning {before}, at the end {after}, on {cores} cores. Times in ms: p50 / p90.\n\n\
         | | volumes as files | on a disk of their own |\n|---|---|---|\n"
    );
    for name in kinds[1].keys() {
        let _ =
            writeln!(text, "| {name} | {} | {} |", spread(kinds[0].get(name)), spread(kinds[1].get(name)));
    }
    text.push_str(
        "\n## What the file system gives\n\nDirect I/O on a file of 256 MiB, one request at a time, in each of three turns: MiB/s by \
         1 MiB, and blocks of 4 KiB in a second at random places.\n\n\
         | | write, MiB/s | read, MiB/s | write, 4 KiB | read, 4 KiB | write and fdatasync, 4 KiB |\n|---|---|---|---|---|---|\n",
    );
    for gave in io {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} |",
            gave.name,
            turns(&gave.write),
            turns(&gave.read),
            turns(&gave.random_write),
            turns(&gave.random_read),
            turns(&gave.synced_write)
        );
    }
    text
}
