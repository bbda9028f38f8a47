//! Trine: Kubernetes in one binary, around the three contracts that make a Pod real.
//!
//! Read on in [`up`] for how the planes are wired, and in ARCHITECTURE.md for the way of a Pod through them.

mod agent;
mod alone;
mod builtin;
mod cli;
mod control;
mod daemon;
mod demo;
#[cfg(debug_assertions)]
mod dies;
mod down;
mod elf;
mod families;
mod identity;
mod layout;
mod leftovers;
mod node;
mod node_words;
mod nodes;
mod once;
mod planes;
mod program;
mod registries;
mod server;
mod settings;
mod sim;
mod steps;
mod storage;
mod telemetry;
mod up;
mod web;

use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::prelude::*;
use trine_kernel::machine::Machine;

use cli::args::DownArgs;
use cli::node_args::AgentArgs;
use cli::{Cli, Command};
use layout::Layout;
use telemetry::{RequestLayer, Spans};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    if let Some(code) = trine_cri::called_otherwise(std::env::args_os()) {
        return code;
    }
    if let Some(code) = trine_networks::called_otherwise(std::env::args_os()) {
        return code;
    }
    #[cfg(debug_assertions)]
    dies::where_a_test_says();
    let cli = Cli::parse();
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        eprintln!("trine: another crypto provider is installed");
    }
    match run(cli.command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("trine: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    match &command {
        Command::Up(args) if args.detach => return up::detach(args),
        Command::Up(args) => log(Some(&Layout::new(&args.data_dir.data_dir)?))?,
        Command::Cri(args) => log(Some(&Layout::new(&args.data_dir.data_dir)?))?,
        Command::CsiDriver(args) => log(Some(&Layout::new(&args.data_dir.data_dir)?))?,
        Command::Kubelet(args) => log(Some(&Layout::new(&args.data_dir.data_dir)?))?,
        Command::Proxy(args) => log(Some(&Layout::new(&args.data_dir.data_dir)?))?,
        Command::Policy(args) => log(Some(&Layout::new(&args.data_dir.data_dir)?))?,
        Command::Server(args) => log(Some(&Layout::new(&args.data_dir.data_dir)?))?,
        // Before there is any thread, too: a process moves as a whole.
        Command::Agent(AgentArgs { place, .. }) | Command::Down(DownArgs { place, .. }) => {
            if let Some(machine) = &place.in_machine {
                Machine::at(machine).enter()?;
            }
            match &command {
                Command::Agent(_) => log(Some(&place.layout()?))?,
                _ => log(None)?,
            }
        }
        Command::Demo(_) => {}
        _ => log(None)?,
    }
    let mut builder = match &command {
        Command::Up(_)
        | Command::Server(_)
        | Command::Agent(_)
        | Command::Demo(_)
        | Command::Web(_)
        | Command::Cri(_)
        | Command::Kubelet(_)
        | Command::Proxy(_)
        | Command::Policy(_)
        | Command::Dns(_)
        | Command::Scheduler(_)
        | Command::Sim(_)
        | Command::Controllers(_)
        | Command::CsiControllers(_)
        | Command::CsiDriver(_) => {
            trine_kernel::memory::give_back()?;
            tokio::runtime::Builder::new_multi_thread()
        }
        _ => tokio::runtime::Builder::new_current_thread(),
    };
    let runtime = builder.enable_all().build()?;
    let code = runtime.block_on(dispatch(command));
    // A blocked read of standard input must not hold the process.
    runtime.shutdown_background();
    code
}

async fn dispatch(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Demo(args) => return demo::run(&args).await,
        Command::Up(args) => up::run(&args).await?,
        Command::Cri(args) => alone::node::cri(&args).await?,
        Command::CsiDriver(args) => alone::node::csi_driver(&args).await?,
        Command::Kubelet(args) => alone::node::kubelet(&args).await?,
        Command::Proxy(args) => alone::node::proxy(&args).await?,
        Command::Policy(args) => alone::node::policy(&args).await?,
        Command::Dns(args) => alone::cluster::dns(args).await?,
        Command::Scheduler(args) => alone::cluster::scheduler(args).await?,
        Command::Controllers(args) => alone::cluster::controllers(args).await?,
        Command::CsiControllers(args) => alone::cluster::csi_controllers(args).await?,
        Command::Cni(command) => alone::plugins::run(&command)?,
        Command::Server(args) => server::run(&args).await?,
        Command::Agent(args) => agent::run(&args).await?,
        Command::Token(command) => cli::token::run(command).await?,
        Command::Down(args) => return down::run(&args).await,
        Command::Status(args) => return cli::status::run(&args).await,
        Command::Get(args) => cli::get::run(args).await?,
        Command::Describe(args) => cli::describe::run(args).await?,
        Command::Apply(args) => cli::apply::run(args).await?,
        Command::Delete(args) => cli::delete::run(args).await?,
        Command::Logs(args) => cli::logs::run(args).await?,
        Command::Exec(args) => return cli::exec::run(args).await,
        Command::Kubeconfig(args) => {
            let path = Layout::new(&args.data_dir)?.kubeconfig();
            print!(
                "{}",
                std::fs::read_to_string(&path).map_err(|e| anyhow::anyhow!("{}: {e}", path.display()))?
            );
        }
        Command::Image(command) => cli::image::run(command).await?,
        Command::Snapshot(command) => cli::snapshot::run(command).await?,
        Command::Trace(args) => cli::trace::run(&args)?,
        Command::Why(args) => return cli::why::run(&args).await,
        Command::Sim(args) => sim::run(args).await?,
        Command::Web(args) => web::serve(args).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Logs to standard error (`RUST_LOG` chooses what); with a data dir the steps of all planes are recorded too.
fn log(layout: Option<&Layout>) -> anyhow::Result<()> {
    let default = if layout.is_some() { "info,trine::step=off" } else { "warn" };
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| default.into());
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_filter(filter);
    let spans = layout.map(|_| Spans::start()).transpose()?.flatten();
    let requests = spans.clone().map(RequestLayer::layer);
    let steps = layout.map(|l| steps::collect(&l.steps(), None, spans)).transpose()?;
    tracing_subscriber::registry().with(lines).with(steps).with(requests).try_init()?;
    Ok(())
}
