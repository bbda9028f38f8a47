//! Starting everything, in the order in which it is needed, and ending it when told to.

use std::collections::BTreeMap;
use std::os::unix::fs::DirBuilderExt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use trine_typed::event::Recorder;
use trine_typed::k8s_openapi::api::core::v1::{Pod, Service};
use trine_typed::kube::runtime::watcher;
use trine_typed::kube::{Api, Client};
use trine_typed::mirror::Mirror;

use crate::api;
use crate::config::Config;
use crate::container::fields::NodeFacts;
use crate::container::quantity;
use crate::devices::slices::Slices;
use crate::devices::{DeviceDrivers, Devices};
use crate::error::KubeletError;
use crate::events::Events;
use crate::eviction::{Evictor, Orders, Pressures};
use crate::log_rotation;
use crate::node::{Machine, NodeStatusManager, lease, object};
use crate::plugins::csinode::Cluster;
use crate::plugins::watcher::Known;
use crate::plugins::{Drivers, watcher as registrations};
use crate::pod::Context;
use crate::pod::manager::Manager;
use crate::probes::Probes;
use crate::runtime::{Runtime, events};
use crate::users::Users;
use crate::volumes::VolumeManager;
use crate::volumes::operations::Operations;
use crate::wake::Wakers;

/// Changes of the runtime that wait for the manager.
const CHANGES: usize = 256;
/// First and longest pause between attempts to register the node.
const REGISTER: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

/// Runs the kubelet until `stop`. Pods live on after it.
///
/// # Errors
/// [`KubeletError`] if it cannot start: folders, certificates, port, mount table.
pub async fn run(config: Config, client: Client, stop: CancellationToken) -> Result<(), KubeletError> {
    let config = Arc::new(config);
    make_folders(&config)?;
    let listening = api::listen(&config).await?;
    let runtime = Runtime::new(&config.cri_socket);
    let wakers = Wakers::default();
    let recorder = Arc::new(Recorder::new(client.clone(), "kubelet", Some(&config.node_name)));
    let events = Events::start(recorder.clone());
    let pressures = Arc::new(Pressures::new(config.clone()));
    let node = Arc::new(NodeStatusManager::new(
        config.clone(),
        pressures.clone(),
        runtime.clone(),
        client.clone(),
        listening.port,
    ));
    let drivers = Drivers::default();
    let device_drivers = DeviceDrivers::default();
    let devices = Arc::new(Devices::new(client.clone(), device_drivers.clone(), &config.root)?);
    let slices = Slices::new(client.clone(), &config.node_name, device_drivers.clone(), stop.clone());
    let facts = facts(&config, node.machine());
    let operations = Operations {
        config: config.clone(),
        client: client.clone(),
        drivers: drivers.clone(),
        node: node.clone(),
        facts: facts.clone(),
        tokens: Arc::default(),
        certificates: Arc::default(),
    };
    let volumes = Arc::new(VolumeManager::new(operations, recorder, wakers.clone())?);
    let probes = Arc::new(Probes::new(runtime.clone(), events.clone(), wakers.clone()));
    let changed = Arc::new(Notify::new());
    let ours = watcher::Config::default().fields(&format!("spec.nodeName={}", config.node_name));
    let pods: Mirror<Pod> = Mirror::start(Api::all(client.clone()), ours, changed.clone(), stop.clone());
    let services: Mirror<Service> = Mirror::start(
        Api::all(client.clone()),
        watcher::Config::default(),
        Arc::new(Notify::new()),
        stop.clone(),
    );
    let ctx = Arc::new(Context {
        network_ready: node.network_ready(),
        memory: node.machine().memory,
        cgroup_2: node.machine().cgroup_2,
        config: config.clone(),
        client: client.clone(),
        runtime: runtime.clone(),
        volumes: volumes.clone(),
        devices: devices.clone(),
        users: Users::new(&config.root),
        probes: probes.clone(),
        events,
        node: node.clone(),
        pressures,
        evictions: Orders::default(),
        wakers: wakers.clone(),
        services,
        facts,
    });
    let server = api::server::Server {
        config: config.clone(),
        client: client.clone(),
        runtime: runtime.clone(),
        pods: pods.clone(),
        machine: node.machine().clone(),
        probes,
        volumes: volumes.clone(),
    };
    let mut tasks = JoinSet::new();
    tasks.spawn(listening.serve(server, stop.clone()));
    tasks.spawn(crate::volumes::grow::run(Arc::clone(&volumes), stop.clone()));
    tasks.spawn(volumes.run(stop.clone()));
    let Some(uid) = register(&node, &stop).await else { return Ok(()) };
    let (sender, receiver) = mpsc::channel(CHANGES);
    tasks.spawn(devices.watch_health(wakers.clone(), stop.clone()));
    tasks.spawn(log_rotation::run(config.clone(), runtime.clone(), stop.clone()));
    tasks.spawn(events::run(runtime, sender, stop.clone()));
    tasks.spawn(Evictor::new(ctx.clone(), pods.clone()).run(stop.clone()));
    tasks.spawn(Manager::new(ctx, pods, changed, stop.clone()).run(receiver));
    tasks.spawn(node.run(stop.clone()));
    tasks.spawn(lease::run(client.clone(), config.node_name.clone(), uid.clone(), stop.clone()));
    slices.begin();
    let cluster = Cluster::new(client, config.node_name.clone(), uid);
    tasks.spawn(registrations::run(
        config.root.join("plugins_registry"),
        Known { drivers, cluster, devices: device_drivers, slices },
        wakers,
        stop.clone(),
    ));
    supervise(tasks, &stop).await
}

/// Waits for `stop`. A part that ends before is a fault: the caller starts the kubelet again.
async fn supervise(mut tasks: JoinSet<()>, stop: &CancellationToken) -> Result<(), KubeletError> {
    tokio::select! {
        () = stop.cancelled() => {}
        ended = tasks.join_next() => {
            let why = match ended {
                Some(Err(error)) => error.to_string(),
                _ => "it ended by itself".to_owned(),
            };
            if !stop.is_cancelled() {
                tasks.shutdown().await;
                return Err(KubeletError::Invalid(format!("a part of the kubelet failed: {why}")));
            }
        }
    }
    while tasks.join_next().await.is_some() {}
    Ok(())
}

async fn register(node: &NodeStatusManager, stop: &CancellationToken) -> Option<String> {
    let mut pause = REGISTER.0;
    loop {
        let registered = tokio::select! {
            () = stop.cancelled() => return None,
            registered = node.register() => registered,
        };
        match registered {
            Ok(uid) => return Some(uid),
            Err(error) => tracing::warn!(error = error.chain(), "node not registered"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(REGISTER.1);
    }
}

fn make_folders(config: &Config) -> Result<(), KubeletError> {
    for (dir, mode) in [
        (config.root.clone(), 0o750),
        (config.root.join("pods"), 0o750),
        (config.root.join("plugins"), 0o750),
        (config.root.join("plugins_registry"), 0o750),
        (config.log_root.clone(), 0o755),
    ] {
        let made = std::fs::DirBuilder::new().recursive(true).mode(mode).create(&dir);
        made.map_err(KubeletError::io("create folder", &dir))?;
    }
    Ok(())
}

fn facts(config: &Config, machine: &Machine) -> NodeFacts {
    let (_, allocatable) = object::resources(machine, &config.eviction_hard);
    let milli =
        |(name, q): (String, trine_typed::k8s_openapi::apimachinery::pkg::api::resource::Quantity)| {
            Some((name, quantity::milli(&q.0)?))
        };
    NodeFacts {
        host_ips: config.node_ips().map(|ip| ip.to_string()).collect(),
        pod_ips: Vec::new(),
        allocatable_milli: allocatable.into_iter().filter_map(milli).collect::<BTreeMap<_, _>>(),
    }
}
