//! `trine demo`: a cluster in a temporary place, a web app of two Pods with a volume behind a Service, its trace; then
//! nothing of it is left. Exit code 0 only if all held.
//!
//! - [`app`] the manifests
//! - [`requests`] HTTP to the app through its virtual address
//! - [`show`] what is printed, live

mod app;
mod requests;
mod show;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::Context;
use tracing_subscriber::prelude::*;
use trine_images::{ImageStore, Options};
use trine_typed::k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use trine_typed::kube::api::{DeleteParams, PostParams};
use trine_typed::kube::{Api, Client};

use crate::cli::args::DemoArgs;
use crate::identity::Identity;
use crate::layout::Layout;
use crate::leftovers::leftovers;
use crate::up::{Cluster, Wanted};
use crate::{down, program, steps};
use show::Show;

/// How long each wait of the demo may take.
const DEADLINE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(2);
/// What is written to the volume.
const NOTE: &str = "kept on the volume";
/// Columns of the trace's bars.
const WIDTH: usize = 40;

/// Runs the demo and removes it, whatever happened.
///
/// # Errors
/// If no temporary folder can be made. What failed in the demo is printed and gives exit code 1.
pub async fn run(args: &DemoArgs) -> anyhow::Result<ExitCode> {
    let layout = temporary()?;
    let (to, seen) = mpsc::channel();
    let collector = steps::collect(&layout.steps(), Some(to), None)?;
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "off".into());
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_filter(filter);
    tracing_subscriber::registry().with(lines).with(collector).try_init()?;
    let show = Show::start(seen);
    show.say(&format!("a cluster in {}", layout.root().display()));
    let outcome = tokio::select! {
        outcome = play(layout.clone(), &show) => outcome,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
    };
    if let Err(error) = &outcome {
        show.fail(&format!("{error:#}"));
    }
    let clean = clean_up(&layout, args.keep, &show).await;
    Ok(if outcome.is_ok() && clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn temporary() -> anyhow::Result<Layout> {
    let mut bytes = [0u8; 4];
    getrandom::fill(&mut bytes).map_err(|e| anyhow::anyhow!("no random numbers: {e}"))?;
    let dir = std::env::temp_dir().join(format!("trine-demo-{}", hex::encode(bytes)));
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    Layout::new(&dir)
}

async fn play(layout: Layout, show: &Show) -> anyhow::Result<()> {
    let begin = Instant::now();
    let cluster = Cluster::start(layout, Wanted::default()).await?;
    show.done("API server answers", begin);
    cluster.ready().await?;
    show.done("node is Ready", begin);
    let told = tell(&cluster, show).await;
    cluster.stop().await;
    told
}

async fn tell(cluster: &Cluster, show: &Show) -> anyhow::Result<()> {
    build_image(cluster, show)?;
    let client = &cluster.client;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let since = Instant::now();
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(client.clone());
    claims.create(&PostParams::default(), &app::claim()).await.context("cannot create the claim")?;
    let services: Api<Service> = Api::default_namespaced(client.clone());
    let service = services.create(&PostParams::default(), &app::service()).await.context("no Service")?;
    for name in ["web-0", "web-1"] {
        pods.create(&PostParams::default(), &app::pod(name))
            .await
            .with_context(|| format!("no Pod {name}"))?;
    }
    show.done("claim, Service and two Pods are accepted", since);
    for name in ["web-0", "web-1"] {
        wait_running(&pods, name).await?;
        show.done(&format!("Pod {name} is Running and Ready"), since);
    }
    let address = service.spec.and_then(|s| s.cluster_ip).context("the Service got no address")?;
    let address = format!("{address}:80");

    let since = Instant::now();
    let answered = requests::from_each(&address, &["web-0", "web-1"], DEADLINE).await?;
    show.done(&format!("{answered} requests to http://{address}, both Pods answered"), since);
    let since = Instant::now();
    requests::put(&address, "/note", NOTE).await.context("the note was not written")?;
    show.done("a note is written to the volume", since);

    let since = Instant::now();
    for name in ["web-0", "web-1"] {
        pods.delete(name, &DeleteParams::default()).await?;
    }
    for name in ["web-0", "web-1"] {
        wait_gone(&pods, name).await?;
    }
    show.done("both Pods are deleted, the volume is let go", since);
    let since = Instant::now();
    pods.create(&PostParams::default(), &app::pod("web-2")).await?;
    wait_running(&pods, "web-2").await?;
    requests::from_each(&address, &["web-2"], DEADLINE).await?;
    let note = requests::get(&address, "/note").await?;
    anyhow::ensure!(note == NOTE, "the volume gave {note:?} back, not {NOTE:?}");
    show.done("another Pod reads the note back from the volume", since);

    show.trace(&cluster.layout, &["web-0", "web-2"], WIDTH)?;
    remove_app(client, &pods).await?;
    show.say("the app is deleted");
    Ok(())
}

fn build_image(cluster: &Cluster, show: &Show) -> anyhow::Result<()> {
    let since = Instant::now();
    let store = ImageStore::open(cluster.layout.images(), Options::default())?;
    let exe = std::env::current_exe()?;
    let files = [(exe, PathBuf::from("/trine"))];
    store.build(&program::spec(app::IMAGE, &files, vec!["/trine".to_owned(), "web".to_owned()])?)?;
    show.done("an image is made of this very program", since);
    Ok(())
}

async fn remove_app(client: &Client, pods: &Api<Pod>) -> anyhow::Result<()> {
    pods.delete("web-2", &DeleteParams::default()).await?;
    wait_gone(pods, "web-2").await?;
    let services: Api<Service> = Api::default_namespaced(client.clone());
    services.delete(app::NAME, &DeleteParams::default()).await?;
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(client.clone());
    claims.delete(app::CLAIM, &DeleteParams::default()).await?;
    // With the claim its volume goes too, down to the file.
    let volumes: Api<trine_typed::k8s_openapi::api::core::v1::PersistentVolume> = Api::all(client.clone());
    let since = Instant::now();
    while since.elapsed() < DEADLINE {
        if volumes.list(&Default::default()).await?.items.is_empty() {
            return Ok(());
        }
        tokio::time::sleep(POLL).await;
    }
    anyhow::bail!("the volume is not removed after {DEADLINE:?}")
}

async fn wait_running(pods: &Api<Pod>, name: &str) -> anyhow::Result<()> {
    let since = Instant::now();
    let mut last = String::new();
    while since.elapsed() < DEADLINE {
        let status = pods.get(name).await?.status.unwrap_or_default();
        let ready = |t: &str| {
            let conditions = status.conditions.as_deref().unwrap_or_default();
            conditions.iter().any(|c| c.type_ == t && c.status == "True")
        };
        if status.phase.as_deref() == Some("Running") && ready("Ready") {
            return Ok(());
        }
        last = serde_json::to_string(&status)?;
        tokio::time::sleep(POLL).await;
    }
    anyhow::bail!("Pod {name} is not Running after {DEADLINE:?}: {last}")
}

async fn wait_gone(pods: &Api<Pod>, name: &str) -> anyhow::Result<()> {
    let since = Instant::now();
    while since.elapsed() < DEADLINE {
        if pods.get_opt(name).await?.is_none() {
            return Ok(());
        }
        tokio::time::sleep(POLL).await;
    }
    anyhow::bail!("Pod {name} is not gone after {DEADLINE:?}")
}

/// Removes the cluster; true if nothing is left of it.
async fn clean_up(layout: &Layout, keep: bool, show: &Show) -> bool {
    let since = Instant::now();
    let identity = Identity::load(layout).ok().flatten();
    let mut problems = down::tear_down(layout, !keep).await;
    if let Some(identity) = identity {
        let left = leftovers(layout, &identity, !keep).into_iter().map(|l| format!("left behind: {l}"));
        problems.extend(left);
    }
    problems.dedup();
    for problem in &problems {
        show.fail(problem);
    }
    if problems.is_empty() {
        show.done(
            "nothing is left of it: process, mount, namespace, link, route, table, cgroup, loop device",
            since,
        );
    }
    if keep {
        show.say(&format!("files are kept in {}", layout.root().display()));
    }
    problems.is_empty()
}
