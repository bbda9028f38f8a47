//! What is measured, one after the other on one cluster.

use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::json;
use trine_typed::k8s_openapi::api::apps::v1::Deployment;
use trine_typed::kube::Api;
use trine_typed::kube::api::{Patch, PatchParams, PostParams};

use crate::Size;
use crate::decide;
use crate::load::{self, Kind};
use crate::seen::Seen;
use crate::stage::Stage;
use crate::table::Row;

const DEADLINE: Duration = Duration::from_secs(600);
const POLL: Duration = Duration::from_millis(50);
/// The name by which Pods ask for the scheduler that is started when they are all there.
const LATER: &str = "bench";
/// Pods a second for the latency: what upstream's scheduler is held to.
const RATE: u32 = 250;

/// Measures everything.
pub async fn run(size: &Size) -> anyhow::Result<Vec<Row>> {
    let few = (size.pods / 6).max(1);
    let mut rows = vec![
        decide::run(size, Kind::Plain, size.pods)?,
        decide::run(size, Kind::Apart, few)?,
        decide::run(size, Kind::Spread, few)?,
    ];
    let stage = Stage::set(size.nodes).await?;
    rows.push(Row::figure("server's memory, nodes alone", stage.server.memory()?, "MiB"));
    rows.extend(steady(&stage, size).await?);
    rows.extend(rollout(&stage, size.nodes).await?);
    rows.extend(backlog(&stage, size, Kind::Apart, few).await?);
    rows.extend(backlog(&stage, size, Kind::Spread, few).await?);
    rows.extend(backlog(&stage, size, Kind::Plain, size.pods).await?);
    rows.push(Row::figure("memory of the hollow nodes' process", stage.sim.memory()?, "MiB"));
    let troubles = stage.troubles();
    anyhow::ensure!(troubles.is_empty(), "not all went well: {troubles:#?}");
    Ok(rows)
}

/// How long a Pod waits for its node when they come one after the other, by the server's own scheduler.
async fn steady(stage: &Stage, size: &Size) -> anyhow::Result<Vec<Row>> {
    let count = (size.pods / 10).max(1);
    load::namespace(&stage.client, "steady").await?;
    let seen = Seen::start(&stage.client, "steady");
    let pause = Duration::from_secs(1) / RATE;
    let since = Instant::now();
    load::create(&stage.client, "steady", count, Some(pause), |n| {
        Kind::Plain.pod(n, "default-scheduler", size.nodes)
    })
    .await?;
    let rate = f64::from(count) / since.elapsed().as_secs_f64();
    seen.until("bound", DEADLINE, |(_, bound, _)| bound == count as usize).await?;
    let waits = seen.waits();
    let at = |share: usize| waits.get((waits.len() - 1) * share / 100).copied().unwrap_or_default();
    let row = |what: &str, share: usize, goal: f64| {
        let what = format!("created to bound, {what}, {count} Pods at {rate:.0}/s");
        Row::goal(&what, at(share).as_secs_f64() * 1000.0, "ms", goal, false)
    };
    let rows = vec![row("p50", 50, 20.0), row("p99", 99, 200.0)];
    empty(stage, "steady", &seen).await?;
    Ok(rows)
}

/// How long a Deployment takes to come up and to get another template.
async fn rollout(stage: &Stage, replicas: u32) -> anyhow::Result<Vec<Row>> {
    load::namespace(&stage.client, "rollout").await?;
    let api: Api<Deployment> = Api::namespaced(stage.client.clone(), "rollout");
    let labels = json!({"app": "web"});
    let deployment: Deployment = serde_json::from_value(json!({
        "metadata": {"name": "web"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels},
            "spec": {"containers": [{"name": "c", "image": "hollow:1",
                "resources": {"requests": {"cpu": "10m"}}}]}}}}))?;
    let since = Instant::now();
    api.create(&PostParams::default(), &deployment).await?;
    rolled(&api, replicas).await?;
    let up = since.elapsed().as_secs_f64();
    let since = Instant::now();
    let patch = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "hollow:2"}]}}}});
    api.patch("web", &PatchParams::default(), &Patch::Strategic(patch)).await?;
    rolled(&api, replicas).await?;
    let again = since.elapsed().as_secs_f64();
    let seen = Seen::start(&stage.client, "rollout");
    api.patch("web", &PatchParams::default(), &Patch::Merge(json!({"spec": {"replicas": 0}}))).await?;
    seen.until("none left", DEADLINE, |(there, _, _)| there == 0).await?;
    Ok(vec![
        Row::figure(&format!("a Deployment of {replicas} replicas comes up"), up, "s"),
        Row::figure("it is rolled (25 % surge, 25 % unavailable)", again, "s"),
    ])
}

async fn rolled(api: &Api<Deployment>, replicas: u32) -> anyhow::Result<()> {
    let since = Instant::now();
    loop {
        let deployment = api.get("web").await?;
        let status = deployment.status.unwrap_or_default();
        let all = |count: Option<i32>| count.and_then(|c| u32::try_from(c).ok()) == Some(replicas);
        if status.observed_generation == deployment.metadata.generation
            && [status.replicas, status.updated_replicas, status.available_replicas].into_iter().all(all)
        {
            return Ok(());
        }
        anyhow::ensure!(since.elapsed() < DEADLINE, "not rolled after {DEADLINE:?}: {status:?}");
        tokio::time::sleep(POLL).await;
    }
}

/// How fast Pods are bound that are all there when their scheduler starts.
async fn backlog(stage: &Stage, size: &Size, kind: Kind, count: u32) -> anyhow::Result<Vec<Row>> {
    let name = format!("{kind:?}").to_lowercase();
    load::namespace(&stage.client, &name).await?;
    let seen = Seen::start(&stage.client, &name);
    let since = Instant::now();
    load::create(&stage.client, &name, count, None, |n| kind.pod(n, LATER, size.nodes)).await?;
    let created = f64::from(count) / since.elapsed().as_secs_f64();
    seen.until("made", DEADLINE, |(there, ..)| there == count as usize).await?;
    let before = (stage.server.processor()?, stage.sim.processor()?);
    let scheduler = stage.scheduler(LATER)?;
    seen.until("bound", DEADLINE, |(_, bound, _)| bound == count as usize)
        .await
        .with_context(|| name.clone())?;
    let took = seen.binding().as_secs_f64();
    let cost = |then: f64, now: f64| (now - then) * 1000.0 / f64::from(count);
    let costs = [
        ("server", cost(before.0, stage.server.processor()?)),
        ("scheduler", cost(0.0, scheduler.processor()?)),
        ("hollow nodes", cost(before.1, stage.sim.processor()?)),
    ];
    eprintln!(
        "{name}: created {created:.0}/s, half bound after {:.1} s, all after {took:.1} s; processor time a Pod, ms: {costs:.2?}",
        seen.share_bound(50).as_secs_f64(),
    );
    seen.until("running", DEADLINE, |(.., running)| running == count as usize).await?;
    let mut rows = vec![Row::goal(
        &format!("{count} Pods {}, bound", kind.name()),
        f64::from(count) / took.max(0.001),
        "Pods/s",
        2000.0,
        true,
    )];
    if kind == Kind::Plain {
        for (who, milliseconds) in costs {
            rows.push(Row::figure(
                &format!("processor time a Pod until all are bound: {who}"),
                milliseconds,
                "ms",
            ));
        }
        rows.push(Row::figure("creations before that", created, "Pods/s"));
        rows.push(Row::goal(
            &format!("server's memory, {count} Pods running"),
            stage.server.memory()?,
            "MiB",
            600.0,
            false,
        ));
        rows.push(Row::figure("memory of the scheduler's process", scheduler.memory()?, "MiB"));
    } else {
        empty(stage, &name, &seen).await?;
    }
    Ok(rows)
}

/// Removes the Pods of a namespace.
async fn empty(stage: &Stage, namespace: &str, seen: &Seen) -> anyhow::Result<()> {
    load::delete(&stage.client, namespace).await?;
    seen.until("none left", DEADLINE, |(there, ..)| there == 0).await
}
