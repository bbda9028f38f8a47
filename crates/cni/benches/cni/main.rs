//! `cargo xtask bench cni`: ADD and DEL of `bridge`, `host-local` and `portmap`, called in this process, executed, and the reference's,
//! in turns; and what two Pods send each other over the routed network and over a bridge.
//!
//! - [`sides`] who is asked, and how; [`phases`] who makes which calls when; [`traffic`] between Pods; [`table`] the page
//!
//! `--trine FILE` the program to execute, unless it is this one, which has the plugins alone; `--reference DIR` the reference's plugins; `--iperf FILE`. `--rounds N` calls one by one, 30 unless
//! said; `--in-use N` addresses of the large store, 60,000 unless said; `--out FILE` the page.

mod phases;
mod sides;
mod table;
mod traffic;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use trine_kernel::netns::{self, Netns};

/// Whatever goes wrong ends the run.
pub type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// What is asked for.
#[derive(Debug)]
pub struct Asked {
    trine: Option<PathBuf>,
    reference: Option<PathBuf>,
    iperf: Option<PathBuf>,
    rounds: usize,
    in_use: u32,
    out: Option<PathBuf>,
}

fn asked() -> Outcome<Asked> {
    let mut asked =
        Asked { trine: None, reference: None, iperf: None, rounds: 30, in_use: 60_000, out: None };
    // Cargo's own word.
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word} wants a value"))?;
        match word.as_str() {
            "--trine" => asked.trine = Some(value.into()),
            "--reference" => asked.reference = Some(value.into()),
            "--iperf" => asked.iperf = Some(value.into()),
            "--rounds" => asked.rounds = value.parse()?,
            "--in-use" => asked.in_use = value.parse()?,
            "--out" => asked.out = Some(value.into()),
            other => return Err(format!("unknown word {other}").into()),
        }
    }
    Ok(asked)
}

/// A machine of its own: nothing of this machine's network is touched.
pub struct Machine {
    /// Where everything lies.
    pub dir: tempfile::TempDir,
    /// The machine.
    pub host: Netns,
    /// Its Pods.
    pub pods: Vec<Netns>,
}

impl Machine {
    fn new(pods: usize) -> Outcome<Self> {
        let dir = tempfile::tempdir()?;
        let netns = |name: String| Netns::create(&dir.path().join("ns").join(name));
        let host = netns("host".to_owned())?;
        let pods = (0..pods).map(|n| netns(format!("pod{n}"))).collect::<Result<_, _>>()?;
        let machine = Self { dir, host, pods };
        let up = trine_kernel::netlink::LinkChange { up: Some(true), ..Default::default() };
        trine_kernel::netlink::Route::open_in(&machine.host)?.set_link("lo", &up)?;
        Ok(machine)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        for netns in self.pods.iter().chain([&self.host]) {
            let _ = netns::delete(netns.path());
        }
    }
}

fn main() -> ExitCode {
    // Executed as a plugin.
    let called = std::env::args_os().next();
    let called = called.and_then(|name| PathBuf::from(name).file_name()?.to_str().map(str::to_owned));
    if let Some(name) = called.filter(|name| trine_cni::built_in().contains(&name.as_str())) {
        return trine_cni::plugin_main(&name);
    }
    match measure() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn measure() -> Outcome<()> {
    let asked = asked()?;
    let loads = |when: &str| {
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        format!("{when} {}", load.split(' ').take(3).collect::<Vec<_>>().join(" "))
    };
    let before = loads("at the beginning");
    let calls = phases::run(&asked)?;
    let traffic = asked.iperf.as_ref().map(|iperf| traffic::run(iperf)).transpose()?;
    let page = table::page(&asked, &calls, traffic.as_deref(), &format!("{before}, {}", loads("at the end")));
    println!("{page}");
    if let Some(out) = &asked.out {
        std::fs::write(out, page)?;
    }
    Ok(())
}
