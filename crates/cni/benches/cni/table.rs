//! The page.

use std::fmt::Write as _;
use std::time::Duration;

use crate::Asked;
use crate::phases::{Calls, PHASES, SIDES};
use crate::traffic::Measured;

/// A part of all times, in milliseconds.
fn part(times: &[Duration], percent: usize) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort();
    let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(at).map_or(f64::NAN, |time| time.as_secs_f64() * 1000.0)
}

fn cell(times: Option<&Vec<Duration>>) -> String {
    let Some(times) = times else { return "-".to_owned() };
    let digits = |ms: f64| if ms < 10.0 { format!("{ms:.1}") } else { format!("{ms:.0}") };
    format!("{} / {}", digits(part(times, 50)), digits(part(times, 90)))
}

/// The whole page.
pub fn page(asked: &Asked, calls: &Calls, traffic: Option<&[Measured]>, load: &str) -> String {
    let mut page = format!(
        "# `cargo xtask bench cni`\n\nWritten by the command. A chain of `bridge` (with `host-local`) and `portmap` with one port, in a network \
         namespace of its own; one side's call is followed by the next one's. In process, Trine's removes the veth on a thread of its own after DEL, \
         as its runtime has it; executed, a child does so that outlives the answer. {} The reference runs `iptables` for `portmap`, its default. \"Many\" are {} addresses.\n\
         Load average {load}, on 2 cores. Times in ms: p50 / p90.\n\n| | {} |\n|---|{}\n",
        if asked.trine.is_some() {
            "What is executed is the whole program."
        } else {
            "What is executed is the benchmark's own program, which has the plugins alone: the whole one starts 2 ms later."
        },
        asked.in_use,
        SIDES.join(" | "),
        "---|".repeat(SIDES.len()),
    );
    for phase in PHASES {
        for call in ["ADD", "DEL"] {
            let cells: Vec<String> = SIDES.iter().map(|side| cell(calls.get(&(phase, side, call)))).collect();
            let _ = writeln!(page, "| {call}, {phase} | {} |", cells.join(" | "));
        }
    }
    if let Some(traffic) = traffic {
        page.push_str("\n## From Pod to Pod\n\nOne stream of TCP (iperf3), Gbit/s in each turn; a byte by UDP and back, in microseconds: p50 / p99.\n\n| | stream | answer |\n|---|---|---|\n");
        for measured in traffic {
            let streams: Vec<String> =
                measured.streams.iter().map(|bits| format!("{:.1}", bits / 1e9)).collect();
            let micros = |percent| part(&measured.answers, percent) * 1000.0;
            let _ = writeln!(
                page,
                "| {} | {} | {:.0} / {:.0} |",
                measured.name,
                streams.join(", "),
                micros(50),
                micros(99)
            );
        }
    }
    page
}
