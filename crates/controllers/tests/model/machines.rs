//! The nodes with their kubelets, and the scheduler.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::dice::Dice;
use crate::hand::Hand;
use crate::rules::node_of;
use crate::truth::{is_active, is_going, is_over, is_ready, name, owner, text, uid};

/// An image that never becomes ready, as long as things go wrong.
pub const BROKEN: &str = "broken";
/// How often a kubelet says that it is there.
const BEAT: Duration = Duration::from_secs(10);
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

/// A machine.
#[derive(Debug, Clone)]
struct Machine {
    /// Whether its kubelet works.
    works: bool,
    beat: Option<Instant>,
}

/// All machines.
pub struct Machines {
    hand: Hand,
    dice: Dice,
    all: BTreeMap<String, Machine>,
    /// Whether Pods fail, and machines break.
    pub rough: bool,
}

impl Machines {
    /// None yet.
    pub fn new(hand: Hand, dice: Dice) -> Self {
        Self { hand, dice, all: BTreeMap::new(), rough: false }
    }

    /// A new machine joins.
    pub async fn join(&mut self, node: &str) {
        let object = json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": node, "labels": {"kubernetes.io/hostname": node}}});
        let made = self.hand.post("/api/v1/nodes", &object).await;
        assert!(made.is_ok() || matches!(made, Err((409, _))), "{made:?}");
        self.all.insert(node.to_owned(), Machine { works: true, beat: None });
    }

    /// All kubelets say that they are there.
    pub async fn beat(&mut self, nodes: &[Arc<Value>]) {
        for (name, machine) in &mut self.all {
            if !machine.works || machine.beat.is_some_and(|at| at.elapsed() < BEAT) {
                continue;
            }
            let Some(node) = nodes.iter().find(|n| crate::truth::name(n) == name) else { continue };
            machine.beat = Some(Instant::now());
            let renew = trine_clock::now().strftime("%FT%T.000000Z").to_string();
            let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
                "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": renew}});
            if let Err((404, _)) = self.hand.merge(&format!("{LEASES}/{name}"), &lease).await {
                let _ = self.hand.post(LEASES, &lease).await;
            }
            if !is_ready(node) {
                let now = trine_clock::now().strftime("%FT%TZ").to_string();
                let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady",
                    "lastHeartbeatTime": now, "lastTransitionTime": now}]}});
                let _ = self.hand.strategic(&format!("/api/v1/nodes/{name}/status"), &ready).await;
            }
        }
    }

    /// Something befalls a machine.
    pub async fn befall(&mut self, nodes: &[Arc<Value>]) -> String {
        let names: Vec<String> = self.all.keys().cloned().collect();
        let Some(name) = self.dice.pick(&names).cloned() else { return String::new() };
        let there = nodes.iter().any(|n| crate::truth::name(n) == name);
        let working = self.all.values().filter(|m| m.works).count();
        let machine = self.all.get_mut(&name).unwrap();
        if !there {
            self.join(&name).await;
            return format!("node {name} joins again");
        }
        if !machine.works {
            machine.works = true;
            return format!("node {name} works again");
        }
        if working < 3 {
            return format!("node {name} stays");
        }
        machine.works = false;
        if self.dice.chance(0.5) {
            return format!("node {name} is silent");
        }
        let _ = self.hand.delete(&format!("/api/v1/nodes/{name}"), &json!({})).await;
        format!("node {name} vanishes")
    }

    /// All machines are there, and work.
    pub async fn mend(&mut self, nodes: &[Arc<Value>]) {
        let names: Vec<String> = self.all.keys().cloned().collect();
        for name in names {
            if nodes.iter().any(|n| crate::truth::name(n) == name) {
                self.all.get_mut(&name).unwrap().works = true;
            } else {
                self.join(&name).await;
            }
        }
    }

    /// Scheduler and kubelets do some of what there is to do: each with this chance.
    pub async fn work(&mut self, pods: &[Arc<Value>], nodes: &[Arc<Value>], eager: f64) {
        for pod in pods {
            if self.dice.chance(eager) {
                match pod["spec"]["nodeName"].as_str() {
                    None => self.place(pod, nodes).await,
                    Some(node) if self.all.get(node).is_some_and(|m| m.works) => {
                        if nodes.iter().any(|n| crate::truth::name(n) == node) {
                            self.play(pod).await;
                        }
                    }
                    Some(_) => {}
                }
            }
        }
    }

    async fn place(&self, pod: &Value, nodes: &[Arc<Value>]) {
        if !is_active(pod) {
            return;
        }
        let tainted = |node: &Value| {
            let taints = node["spec"]["taints"].as_array();
            taints.is_some_and(|all| !all.is_empty()) || !is_ready(node)
        };
        let free: Vec<&str> = match node_of(pod) {
            Some(node) => nodes.iter().map(|n| name(n)).filter(|n| *n == node).collect(),
            None => nodes.iter().filter(|n| !tainted(n)).map(|n| name(n)).collect(),
        };
        let Some(node) = self.dice.pick(&free) else { return };
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name(pod), "uid": uid(pod)},
            "target": {"kind": "Node", "name": node}});
        let _ = self.hand.post(&format!("{}/binding", path(pod)), &binding).await;
    }

    async fn play(&self, pod: &Value) {
        let (rough, dice) = (self.rough, &self.dice);
        if is_going(pod) {
            // A kubelet says how a Pod has ended before it lets it go, also of one that never began.
            if !is_over(pod) {
                return self.say(pod, if dice.chance(0.2) { "Succeeded" } else { "Failed" }, false).await;
            }
            let now = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": uid(pod)}});
            let _ = self.hand.delete(&path(pod), &now).await;
            return;
        }
        let runs_to_end = owner(pod).is_some_and(|o| o["kind"] == "Job");
        let image = text(&pod["spec"]["containers"][0]["image"]);
        match text(&pod["status"]["phase"]) {
            "Succeeded" | "Failed" => {}
            "Running" if runs_to_end => {
                if rough && dice.chance(0.2) {
                    self.say(pod, "Failed", false).await;
                } else if dice.chance(0.5) {
                    self.say(pod, "Succeeded", false).await;
                }
            }
            "Running" if rough && dice.chance(0.03) => self.say(pod, "Failed", false).await,
            "Running" if is_ready(pod) => {
                if rough && dice.chance(0.05) {
                    self.say(pod, "Running", false).await;
                }
            }
            "Running" => {
                if !rough || image != BROKEN {
                    self.say(pod, "Running", true).await;
                }
            }
            _ if rough && dice.chance(0.05) => self.say(pod, "Failed", false).await,
            _ => {
                self.say(pod, "Running", !runs_to_end && (!rough || image != BROKEN) && dice.chance(0.5))
                    .await
            }
        }
    }

    /// What a kubelet says of a Pod, unless somebody else has said something meanwhile.
    async fn say(&self, pod: &Value, phase: &str, ready: bool) {
        let now = trine_clock::now().strftime("%FT%TZ").to_string();
        let before = is_ready(pod) == ready && pod["status"]["conditions"].is_array();
        let ready = if ready { "True" } else { "False" };
        let mut status = json!({"phase": phase});
        if !before {
            status["conditions"] = json!([{"type": "Ready", "status": ready, "lastTransitionTime": now}]);
        }
        if pod["status"]["startTime"].is_null() {
            status["startTime"] = now.clone().into();
        }
        if is_over(&json!({"status": {"phase": phase}})) {
            let ended =
                json!({"exitCode": i32::from(phase == "Failed"), "finishedAt": now, "startedAt": now});
            let container = &pod["spec"]["containers"][0];
            status["containerStatuses"] = json!([{"name": container["name"], "image": container["image"], "imageID": "",
                "ready": false, "restartCount": 0, "state": {"terminated": ended}}]);
        }
        let patch = json!({"metadata": {"uid": uid(pod), "resourceVersion": pod["metadata"]["resourceVersion"]}, "status": status});
        let _ = self.hand.strategic(&format!("{}/status", path(pod)), &patch).await;
    }
}

/// Where a Pod is.
pub fn path(pod: &Value) -> String {
    format!("/api/v1/namespaces/{}/pods/{}", text(&pod["metadata"]["namespace"]), name(pod))
}
