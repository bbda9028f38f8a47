//! The runtime as a program of its own, with nothing else of Trine in it, for measurements; in the product it is `trine cri`.
//!
//! - `serve DIR INSTANCE RANGE` on `DIR/cri.sock`, with the built-in network, until SIGTERM; Pods run on after it
//! - `import DIR ARCHIVE` an image
//! - `end DIR INSTANCE` stops and removes all Pods
//! - `network DIR INSTANCE RANGE` prints the built-in network's configuration
//! - called by a plugin's name, or `keeper`, it is that

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use tokio_util::sync::CancellationToken;
use trine_cri::Config;
use trine_images::ImageStore;

// As the product has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Outcome = Result<(), Box<dyn Error>>;

fn main() -> ExitCode {
    if let Some(code) = trine_cri::called_otherwise(std::env::args_os()) {
        return code;
    }
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["serve", dir, instance, range] => serve(Path::new(dir), instance, range),
        ["import", dir, archive] => import(Path::new(dir), Path::new(archive)),
        ["end", dir, instance] => end(Path::new(dir), instance),
        ["network", dir, instance, range] => {
            network(Path::new(dir), instance, range).map(|text| println!("{text}"))
        }
        _ => {
            Err("serve DIR INSTANCE RANGE, import DIR ARCHIVE, end DIR INSTANCE, network DIR INSTANCE RANGE"
                .into())
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("trine-runtime: {error}");
            ExitCode::FAILURE
        }
    }
}

fn config(dir: &Path, instance: &str) -> Config {
    Config {
        socket: dir.join("cri.sock"),
        state_dir: dir.join("cri"),
        images_dir: dir.join("images"),
        cni_conf_dir: dir.join("net.d"),
        cni_bin_dirs: vec![dir.join("bin")],
        cni_state_dir: dir.join("cni"),
        instance: instance.to_owned(),
        ..Config::default()
    }
}

fn network(dir: &Path, instance: &str, range: &str) -> Result<String, Box<dyn Error>> {
    let data_dir = dir.join("cni");
    let network =
        trine_cni::DefaultNetwork { instance, pod_cidrs: &[range.parse()?], data_dir: &data_dir, mtu: None };
    Ok(trine_cni::default_network(&network).to_string())
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()
}

fn serve(dir: &Path, instance: &str, range: &str) -> Outcome {
    let config = config(dir, instance);
    std::fs::create_dir_all(&config.cni_conf_dir)?;
    // What somebody has put there stays: another network.
    let file = config.cni_conf_dir.join("90-trine.conflist");
    std::fs::write(file, network(dir, instance, range)?)?;
    trine_kernel::memory::give_back()?;
    let stop = CancellationToken::new();
    runtime()?.block_on(async {
        let mut term = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        let ended = stop.clone();
        tokio::spawn(async move {
            term.recv().await;
            ended.cancel();
        });
        Ok(trine_cri::serve(config, stop).await?)
    })
}

fn import(dir: &Path, archive: &Path) -> Outcome {
    let config = config(dir, "");
    for image in ImageStore::open(&config.images_dir, config.images)?.import(archive)? {
        println!("{} {}", image.id, image.repo_tags.join(" "));
    }
    Ok(())
}

fn end(dir: &Path, instance: &str) -> Outcome {
    Ok(runtime()?.block_on(trine_cri::teardown(&config(dir, instance)))?)
}
