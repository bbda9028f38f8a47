//! `cargo xtask bench pod`: how long a user waits. Medians over fresh clusters and Pods, and where the time of a Pod's
//! start went, per plane. Times of a Pod are from the client's request to the watch event that the client sees.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Context;
use futures::{StreamExt, TryStreamExt};
use trine_tests::Cluster;
use trine_typed::k8s_openapi::api::core::v1::Pod;
use trine_typed::kube::api::{DeleteParams, PostParams, WatchEvent, WatchParams};
use trine_typed::kube::{Api, Client};
use trine_why::trace::{of_pod, read};

/// Fresh clusters that are started.
const CLUSTERS: usize = 5;
/// Pods that are started and deleted one after another.
const PODS: usize = 30;
const DEADLINE: Duration = Duration::from_secs(60);

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut ready = Vec::new();
    for _ in 0..CLUSTERS {
        let cluster = Cluster::prepared();
        let since = Instant::now();
        cluster.start();
        ready.push(since.elapsed());
    }
    print("up -> node Ready (process start to return of `up --detach`)", &mut ready, 1000.0);

    let cluster = Cluster::up();
    build_image(&cluster)?;
    let client = trine_typed::client::from_kubeconfig(&cluster.dir().join("kubeconfig")).await?;
    let (mut started, mut deleted) = (Vec::new(), Vec::new());
    for i in 0..PODS {
        let (up, down) = one(&client, &format!("bench-{i}")).await?;
        started.push(up);
        deleted.push(down);
    }
    print("apply -> Running", &mut started, 100.0);
    print("Running -> deleted", &mut deleted, 100.0);
    breakdown(&cluster)
}

fn build_image(cluster: &Cluster) -> anyhow::Result<()> {
    let program = trine_tests::program().display().to_string();
    let file = format!("{program}:/trine");
    let words =
        ["image", "build", "--tag", "trine.local/web:1", "--entrypoint", "/trine", "--entrypoint", "web"];
    let mut words = words.to_vec();
    words.push(&file);
    let outcome = cluster.trine(&words);
    anyhow::ensure!(outcome.ok, "no image: {}", outcome.err);
    Ok(())
}

/// Starts and deletes one Pod; gives both times.
async fn one(client: &Client, name: &str) -> anyhow::Result<(Duration, Duration)> {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let pod = serde_json::json!({"metadata": {"name": name}, "spec": {"containers": [{
        "name": "web", "image": "trine.local/web:1", "imagePullPolicy": "Never"}]}});
    let pod: Pod = serde_json::from_value(pod)?;
    let params = WatchParams::default().fields(&format!("metadata.name={name}"));
    let mut events = pods.watch(&params, "0").await?.boxed();
    let since = Instant::now();
    pods.create(&PostParams::default(), &pod).await?;
    wait(&mut events, |event| {
        matches!(event, WatchEvent::Added(p) | WatchEvent::Modified(p)
            if p.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Running"))
    })
    .await
    .context("Running")?;
    let up = since.elapsed();
    let since = Instant::now();
    pods.delete(name, &DeleteParams::default()).await?;
    wait(&mut events, |event| matches!(event, WatchEvent::Deleted(_))).await.context("deleted")?;
    Ok((up, since.elapsed()))
}

type Events = futures::stream::BoxStream<'static, Result<WatchEvent<Pod>, trine_typed::kube::Error>>;

async fn wait(events: &mut Events, done: impl Fn(&WatchEvent<Pod>) -> bool) -> anyhow::Result<()> {
    let wait = async {
        while let Some(event) = events.try_next().await? {
            if done(&event) {
                return Ok(());
            }
        }
        anyhow::bail!("the watch ended")
    };
    tokio::time::timeout(DEADLINE, wait).await.context("not in time")?
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

fn print(what: &str, times: &mut [Duration], goal: f64) {
    times.sort();
    let at = |share: usize| milliseconds(times[(times.len() - 1) * share / 100]);
    println!(
        "{what}: p50 {:.1} ms, p90 {:.1}, max {:.1}; goal {goal} ms; n={}",
        at(50),
        at(90),
        at(100),
        times.len()
    );
}

/// Median duration of each step over the benchmarked Pods.
fn breakdown(cluster: &Cluster) -> anyhow::Result<()> {
    let steps = read(&cluster.dir().join("log/steps.jsonl"))?;
    let mut times: BTreeMap<(String, String), Vec<f64>> = BTreeMap::new();
    for i in 0..PODS {
        for step in of_pod(&steps, &format!("default/bench-{i}")) {
            let took = milliseconds(Duration::from_micros(step.duration_us));
            times.entry((step.plane, step.name)).or_default().push(took);
        }
    }
    println!("where it goes (medians; a step contains those that it calls):");
    for ((plane, name), mut times) in times {
        times.sort_by(f64::total_cmp);
        println!("  {plane:<12} {name:<24} {:>8.2} ms", times[times.len() / 2]);
    }
    Ok(())
}
