//! Pods from the API server to their processes, network and data, all parts real. The program runs itself again
//! in a network namespace of its own; started with `keeper` it is the runtime's keeper.

#![allow(clippy::unwrap_used)]

mod cluster;
mod devices;
mod scenes;
mod shortage;

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// Set in the program that runs inside the namespace.
const INSIDE: &str = "TRINE_POD_LIFE_INSIDE";
const NAME: &str = "pods_live_and_go_with_all_parts_real";

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let first = arguments.next().unwrap_or_default();
    if first == "keeper" {
        return trine_cri::keeper::main(arguments);
    }
    let all: Vec<String> = std::env::args().skip(1).collect();
    if all.iter().any(|a| a == "--list") {
        println!("{NAME}: test");
        return ExitCode::SUCCESS;
    }
    let filter = all.iter().find(|a| !a.starts_with('-'));
    if filter.is_some_and(|f| !NAME.contains(f.as_str())) {
        return ExitCode::SUCCESS;
    }
    let possible = trine_kernel::testing::root(NAME)
        && ["unshare", "busybox", "mkfs.ext4"].iter().all(|p| trine_kernel::testing::program(NAME, p));
    if !possible {
        return ExitCode::SUCCESS;
    }
    if std::env::var_os(INSIDE).is_none() {
        let exe = std::env::current_exe().unwrap();
        let error = Command::new("unshare").arg("--net").arg(exe).args(&all).env(INSIDE, "1").exec();
        panic!("unshare: {error}");
    }
    if let Ok(filter) = std::env::var("RUST_LOG") {
        let spans = tracing_subscriber::fmt::format::FmtSpan::CLOSE;
        tracing_subscriber::fmt().with_env_filter(filter).with_span_events(spans).init();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(scenes::all());
    println!("test {NAME} ... ok");
    ExitCode::SUCCESS
}
