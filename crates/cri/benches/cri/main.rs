//! `cargo xtask bench cri`: the calls of a Pod's life, on Trine's runtime and on others beside it, in turns, so that a busy machine
//! is as slow for one as for the other. The client is on the same cores.
//!
//! - [`peers`] the daemons; [`life`] the calls; [`phases`] who makes them when
//! - [`memory`] what the daemons and their helpers take; [`table`] the page
//!
//! `--containerd DIR` where `containerd`, its shim and `ctr` are: without it Trine is measured alone. `--runc FILE`, `--crun FILE`.
//! `--rounds N` Pods one by one, 40 unless said; `--out FILE` the page.

mod life;
mod memory;
mod peers;
mod phases;
mod table;

use std::error::Error;
use std::path::PathBuf;

/// Whatever goes wrong ends the run.
pub type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// What is asked for.
#[derive(Debug, Default)]
pub struct Asked {
    containerd: Option<PathBuf>,
    runc: Option<PathBuf>,
    crun: Option<PathBuf>,
    bridge: Option<PathBuf>,
    rounds: usize,
    out: Option<PathBuf>,
}

fn asked() -> Outcome<Asked> {
    let mut asked = Asked { rounds: 40, ..Asked::default() };
    // Cargo's own word.
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word} wants a value"))?;
        match word.as_str() {
            "--containerd" => asked.containerd = Some(value.into()),
            "--runc" => asked.runc = Some(value.into()),
            "--crun" => asked.crun = Some(value.into()),
            "--bridge" => asked.bridge = Some(value.into()),
            "--rounds" => asked.rounds = value.parse()?,
            "--out" => asked.out = Some(value.into()),
            other => return Err(format!("unknown word {other}").into()),
        }
    }
    Ok(asked)
}

fn main() -> Outcome<()> {
    let asked = asked()?;
    // The client is to take little of the cores that it shares.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let page = runtime.block_on(async {
        let mut stage = peers::Stage::start(&asked).await?;
        phases::try_out(&mut stage).await;
        let seen = phases::run(&stage, asked.rounds).await;
        stage.end().await;
        Ok::<_, Box<dyn Error + Send + Sync>>(table::page(&stage, &seen?))
    })?;
    print!("{page}");
    if let Some(file) = &asked.out {
        std::fs::write(file, page)?;
    }
    Ok(())
}
