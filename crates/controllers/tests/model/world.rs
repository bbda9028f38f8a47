//! A cluster in one thread whose time is made: API server, controllers, machines and users, and the order in which they act.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use trine_apiserver::ApiServer;
use trine_typed::k8s_openapi::jiff::{SignedDuration, Timestamp};
use trine_typed::kube::Client;

use crate::dice::Dice;
use crate::hand::Hand;
use crate::machines::Machines;
use crate::memory::Memory;
use crate::settled::{complaints, floor};
use crate::transport::{Faults, Rates, Way};
use crate::truth::Truth;
use crate::users::{Snapshot, Users};

/// How long the cluster may take to be as it should once nothing goes wrong: a Job waits ten minutes after its failures, and a
/// clock that jumped has to come back.
const PATIENCE: Duration = Duration::from_secs(3600);
/// What may be frozen.
const RESOURCES: [&str; 10] = [
    "pods",
    "nodes",
    "replicasets",
    "deployments",
    "statefulsets",
    "daemonsets",
    "jobs",
    "poddisruptionbudgets",
    "controllerrevisions",
    "leases",
];
/// The longest freeze.
const FREEZE: Duration = Duration::from_secs(20);

/// What came of a seed.
#[derive(Debug)]
pub struct Came {
    /// Steps done.
    pub steps: u32,
    /// Writes to the store.
    pub writes: u64,
    /// A number that follows from all of them.
    pub digest: u64,
    /// Time that passed in the cluster.
    pub passed: Duration,
    /// What was broken, with what happened before it.
    pub broken: Option<String>,
}

struct World {
    dice: Dice,
    truth: Arc<Mutex<Truth>>,
    faults: Arc<Faults>,
    offset: Arc<AtomicI64>,
    server: ApiServer,
    machines: Machines,
    users: Users,
    life: u32,
    stop: CancellationToken,
    steps: u32,
    _dir: tempfile::TempDir,
}

/// Lives through the story of a seed.
pub fn live(seed: u64, steps: u32) -> Came {
    trine_kernel::testing::seed_chance(seed);
    fastrand::seed(seed);
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async move {
        let begin = Instant::now();
        let mut world = World::begin(seed).await;
        let broken = world.run(steps).await.err();
        let truth = world.truth();
        let broken = broken.map(|why| {
            let story: Vec<&str> = truth.story.iter().map(String::as_str).collect();
            format!("{}\n{why}", story.join("\n"))
        });
        Came {
            steps: world.steps,
            writes: truth.writes,
            digest: truth.digest,
            passed: begin.elapsed(),
            broken,
        }
    })
}

impl World {
    async fn begin(seed: u64) -> Self {
        let dice = Dice::new(seed);
        let offset = Arc::new(AtomicI64::new(0));
        let (begin, jumped) = (Instant::now(), Arc::clone(&offset));
        // The thread lives as long as the story.
        std::mem::forget(trine_clock::set(move || {
            let passed = SignedDuration::try_from(begin.elapsed()).unwrap();
            let jumped = SignedDuration::from_secs(jumped.load(Ordering::Relaxed));
            Timestamp::from_second(1_800_000_000).unwrap() + passed + jumped
        }));
        let truth = Arc::new(Mutex::new(Truth::new()));
        let seen = Arc::clone(&truth);
        let store = Memory::new(Box::new(move |revision, key, value| {
            seen.lock().unwrap_or_else(PoisonError::into_inner).written(revision, key, value);
        }));
        let dir = tempfile::tempdir().unwrap();
        let config = trine_apiserver::Config {
            data_dir: dir.path().to_owned(),
            bind: "127.0.0.1:0".parse().unwrap(),
            advertise: "127.0.0.1".parse().unwrap(),
            service_cidr: "10.96.0.0/16".to_owned(),
            audit: trine_apiserver::AuditConfig::default(),
            runtime_config: trine_apiserver::RuntimeConfig::default(),
        };
        let server = trine_apiserver::start(config, Arc::new(store)).await.unwrap();
        let hand = Hand::new(server.service("admin", &["system:masters"]));
        let mut machines = Machines::new(hand.clone(), dice.clone());
        for node in ["n1", "n2", "n3", "n4"] {
            machines.join(node).await;
        }
        let mut world = Self {
            faults: Arc::new(Faults::new(dice.clone())),
            users: Users::new(hand, dice.clone()),
            machines,
            dice,
            truth,
            offset,
            server,
            life: 0,
            stop: CancellationToken::new(),
            steps: 0,
            _dir: dir,
        };
        world.restart();
        world.rest(Duration::from_secs(5)).await;
        world
    }

    fn truth(&self) -> MutexGuard<'_, Truth> {
        self.truth.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The controllers end as if they were killed, and begin anew.
    fn restart(&mut self) {
        self.stop.cancel();
        self.stop = CancellationToken::new();
        self.life += 1;
        self.faults.live(self.life);
        let (faults, life) = (Arc::clone(&self.faults), self.life);
        let client = move |server| Client::new(Way { server, faults: Arc::clone(&faults), life }, "default");
        let accounts = self.server.accounts();
        let read = client(self.server.service("system:kube-controller-manager", &[]));
        let clients = trine_controllers::Clients::new(read, move |name: &str| {
            client(accounts.service("kube-system", name))
        });
        let config = trine_controllers::Config {
            ca_pem: "ca".to_owned(),
            pod_cidr: "10.244.0.0/16".to_owned(),
            node_prefix: (24, 64),
            signer: None,
        };
        tokio::spawn(trine_controllers::run(clients, config, self.stop.clone()));
    }

    async fn run(&mut self, steps: u32) -> Result<(), String> {
        while self.steps < steps {
            self.rough(self.dice.between(40, 160).unsigned_abs() as u32).await?;
            self.settle().await?;
            self.drain(self.dice.between(20, 50).unsigned_abs() as u32).await?;
            self.settle().await?;
        }
        Ok(())
    }

    fn nodes(&self) -> Vec<Arc<Value>> {
        self.truth().all("/core/nodes/").cloned().collect()
    }

    /// Machines do what there is to do; then time passes, unless something was broken.
    async fn machines(&mut self, eager: f64, time: Duration) -> Result<(), String> {
        let pods: Vec<Arc<Value>> = self.truth().all("/core/pods/").cloned().collect();
        let nodes = self.nodes();
        self.machines.work(&pods, &nodes, eager).await;
        let nodes = self.nodes();
        self.machines.beat(&nodes).await;
        self.rest(time).await;
        let broken = self.truth().broken.join("\n");
        if broken.is_empty() { Ok(()) } else { Err(broken) }
    }

    async fn rest(&self, time: Duration) {
        sleep(time).await;
    }

    fn tell(&self, line: impl Into<String>) {
        self.truth().tell(format!("-- {}", line.into()));
    }

    fn rates(&self) -> Rates {
        let one = || if self.dice.chance(0.3) { 0.0 } else { self.dice.between(0, 100) as f64 / 1000.0 };
        Rates {
            refused: one(),
            dropped: one(),
            lost: one(),
            late: one(),
            conflict: one(),
            cut: one() / 10.0,
            expired: one() / 10.0,
            latency: self.dice.time(Duration::from_millis(200)),
        }
    }

    /// Everything goes wrong.
    async fn rough(&mut self, steps: u32) -> Result<(), String> {
        let rates = self.rates();
        self.tell(format!("step {}: rough, {rates:?}", self.steps));
        self.faults.set(rates);
        self.machines.rough = true;
        for _ in 0..steps {
            self.steps += 1;
            let line = match self.dice.below(20) {
                0..=9 => {
                    let truth = Arc::clone(&self.truth);
                    let look = move || Snapshot::of(&truth.lock().unwrap_or_else(PoisonError::into_inner));
                    self.users.act(look).await
                }
                10 => {
                    let nodes = self.nodes();
                    self.machines.befall(&nodes).await
                }
                11 | 12 => self.freeze(),
                13 if self.dice.chance(0.4) => {
                    self.restart();
                    "controllers begin anew".to_owned()
                }
                14 if self.dice.chance(0.3) => {
                    let by = self.dice.between(-300, 600);
                    self.offset.fetch_add(by, Ordering::Relaxed);
                    format!("the clock jumps by {by} s")
                }
                _ => "nothing".to_owned(),
            };
            self.tell(line);
            let time = self.dice.time(Duration::from_secs(4));
            self.machines(0.4, time).await?;
        }
        Ok(())
    }

    fn freeze(&self) -> String {
        let resource = *self.dice.pick(&RESOURCES).unwrap();
        let time = self.dice.time(FREEZE);
        self.faults.freeze(resource, time);
        format!("{resource} are not told of for {time:?}")
    }

    /// Nothing goes wrong any more: all has to come to what is wanted.
    async fn settle(&mut self) -> Result<(), String> {
        self.tell(format!("step {}: nothing goes wrong any more", self.steps));
        self.truth().floors = None;
        self.faults.set(Rates { latency: Duration::from_millis(5), ..Rates::default() });
        self.faults.thaw();
        self.machines.rough = false;
        let nodes = self.nodes();
        self.machines.mend(&nodes).await;
        let (since, mut well, mut turn) = (Instant::now(), 0, 0);
        while well < 3 {
            if turn % 10 == 0 {
                let now = Snapshot::of(&self.truth());
                self.users.tidy(&now).await;
            }
            turn += 1;
            self.machines(0.9, Duration::from_secs(if well == 0 { 3 } else { 1 })).await?;
            let missing = complaints(&self.truth());
            well = if missing.is_empty() { well + 1 } else { 0 };
            if since.elapsed() > PATIENCE {
                return Err(format!("after {PATIENCE:?} without faults:\n  {}", missing.join("\n  ")));
            }
        }
        self.tell(format!("settled after {:?}", since.elapsed()));
        Ok(())
    }

    /// Pods are evicted while the network fails, and nothing else happens: no budget may be broken.
    async fn drain(&mut self, steps: u32) -> Result<(), String> {
        let rates = self.rates();
        self.tell(format!("step {}: evictions, {rates:?}", self.steps));
        self.faults.set(rates);
        {
            let mut truth = self.truth();
            let budgets: Vec<(String, i64)> = truth
                .objects
                .iter()
                .filter(|(key, _)| key.starts_with("/policy/"))
                .map(|(key, budget)| {
                    (key.clone(), floor(&truth, budget).min(crate::rules::healthy(&truth, budget)))
                })
                .collect();
            truth.floors = Some(budgets.into_iter().collect());
        }
        for _ in 0..steps {
            self.steps += 1;
            if self.dice.chance(0.15) {
                let line = self.freeze();
                self.tell(line);
            }
            if self.dice.chance(0.04) {
                self.restart();
                self.tell("controllers begin anew");
            }
            let now = Snapshot::of(&self.truth());
            let some = self.dice.below(4);
            let evictions = (0..some).map(|_| self.users.evict(&now));
            for line in futures::future::join_all(evictions).await {
                self.tell(line);
            }
            let time = self.dice.time(Duration::from_secs(3));
            self.machines(0.5, time).await?;
        }
        Ok(())
    }
}
