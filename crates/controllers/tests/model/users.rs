//! What users ask for, and change.

use serde_json::{Value, json};

use crate::dice::Dice;
use crate::hand::Hand;
use crate::machines::{BROKEN, path};
use crate::truth::{Truth, is_going, name, owner, uid};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const REPLICA_SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";
const STATEFUL_SETS: &str = "/apis/apps/v1/namespaces/default/statefulsets";
const DAEMON_SETS: &str = "/apis/apps/v1/namespaces/default/daemonsets";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
const PODS: &str = "/api/v1/namespaces/default/pods";
const IMAGES: [&str; 4] = ["one", "two", "three", BROKEN];

/// Users.
pub struct Users {
    hand: Hand,
    dice: Dice,
}

impl Users {
    /// Without a wish yet.
    pub fn new(hand: Hand, dice: Dice) -> Self {
        Self { hand, dice }
    }

    fn image(&self) -> &'static str {
        self.dice.pick(&IMAGES).copied().unwrap_or("one")
    }

    fn template(&self, app: &str) -> Value {
        json!({"metadata": {"labels": {"app": app}},
            "spec": {"terminationGracePeriodSeconds": 5, "containers": [{"name": "c", "image": self.image()}]}})
    }

    /// Some user does something; what is returned says what.
    pub async fn act(&self, truth: impl Fn() -> Snapshot) -> String {
        let dice = &self.dice;
        match dice.below(13) {
            0 | 1 => self.deployment().await,
            2 => self.replica_set().await,
            3 | 4 => self.stateful_set().await,
            5 => self.daemon_set().await,
            6..=8 => self.job().await,
            9 => self.budget().await,
            10 => self.disturb(&truth()).await,
            11 => self.evict(&truth()).await,
            _ => self.remove(&truth()).await,
        }
    }

    /// Makes an object, or changes it if it is there.
    async fn put(&self, list: &str, object: &Value, change: &Value) -> String {
        let name = name(object);
        match self.hand.post(list, object).await {
            Ok(_) => format!("user makes {list}/{name}: {}", object["spec"]),
            Err((409, _)) => {
                let done = self.hand.merge(&format!("{list}/{name}"), change).await;
                format!("user changes {list}/{name}: {} ({:?})", change["spec"], done.err())
            }
            Err((code, why)) => panic!("{list} {object}: {code} {why}"),
        }
    }

    fn share(&self) -> Value {
        match self.dice.below(3) {
            0 => json!("30%"),
            _ => self.dice.between(0, 2).into(),
        }
    }

    async fn deployment(&self) -> String {
        let dice = &self.dice;
        let name = *dice.pick(&["web", "all"]).unwrap();
        let replicas = dice.between(0, 5);
        let strategy = if name == "all" {
            json!({"type": "Recreate"})
        } else {
            let surge = self.share();
            let unavailable = if surge == 0 || surge == "0" { json!(1) } else { self.share() };
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}})
        };
        let spec = json!({"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "strategy": strategy,
            "minReadySeconds": dice.between(0, 4), "progressDeadlineSeconds": 60, "template": self.template(name)});
        let change = match dice.below(5) {
            0 => json!({"replicas": replicas}),
            1 => json!({"paused": dice.chance(0.3)}),
            2 if name == "web" => json!({"strategy": spec["strategy"]}),
            _ => json!({"template": self.template(name)}),
        };
        self.put(DEPLOYMENTS, &json!({"metadata": {"name": name}, "spec": spec}), &json!({"spec": change}))
            .await
    }

    async fn replica_set(&self) -> String {
        let replicas = self.dice.between(0, 5);
        let spec = json!({"replicas": replicas, "selector": {"matchLabels": {"app": "bare"}}, "template": self.template("bare")});
        self.put(
            REPLICA_SETS,
            &json!({"metadata": {"name": "bare"}, "spec": spec}),
            &json!({"spec": {"replicas": replicas}}),
        )
        .await
    }

    async fn stateful_set(&self) -> String {
        let dice = &self.dice;
        let name = *dice.pick(&["db", "par"]).unwrap();
        let replicas = dice.between(0, 4);
        let policy = if name == "par" { "Parallel" } else { "OrderedReady" };
        let spec = json!({"replicas": replicas, "serviceName": name, "podManagementPolicy": policy,
            "selector": {"matchLabels": {"app": name}}, "minReadySeconds": dice.between(0, 3), "template": self.template(name)});
        let change = match dice.below(4) {
            0 => json!({"replicas": replicas}),
            1 => {
                json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": dice.between(0, 2)}}})
            }
            _ => json!({"template": self.template(name)}),
        };
        self.put(STATEFUL_SETS, &json!({"metadata": {"name": name}, "spec": spec}), &json!({"spec": change}))
            .await
    }

    async fn daemon_set(&self) -> String {
        let dice = &self.dice;
        let (surge, unavailable) = if dice.chance(0.4) { (json!(1), json!(0)) } else { (json!(0), json!(1)) };
        let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}});
        let spec = json!({"selector": {"matchLabels": {"app": "agent"}}, "updateStrategy": strategy, "template": self.template("agent")});
        let change = if dice.chance(0.3) {
            json!({"updateStrategy": strategy})
        } else {
            json!({"template": self.template("agent")})
        };
        self.put(DAEMON_SETS, &json!({"metadata": {"name": "agent"}, "spec": spec}), &json!({"spec": change}))
            .await
    }

    async fn job(&self) -> String {
        let dice = &self.dice;
        let name = format!("job{}", dice.below(4));
        let mut template = self.template(&name);
        template["metadata"]["labels"] = json!({"app": name});
        template["spec"]["restartPolicy"] = "Never".into();
        let parallelism = dice.between(0, 4);
        let mut spec =
            json!({"parallelism": parallelism, "template": template, "backoffLimit": dice.between(0, 6)});
        match dice.below(5) {
            0 => {}
            1 | 2 => spec["completions"] = dice.between(1, 7).into(),
            _ => {
                spec["completions"] = dice.between(1, 7).into();
                spec["completionMode"] = "Indexed".into();
                if dice.chance(0.4) {
                    spec["backoffLimitPerIndex"] = dice.between(0, 2).into();
                }
            }
        }
        if dice.chance(0.3) {
            spec["podReplacementPolicy"] = "Failed".into();
        }
        if dice.chance(0.2) {
            let ignore = json!({"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]});
            spec["podFailurePolicy"] = json!({"rules": [ignore]});
            spec["podReplacementPolicy"] = "Failed".into();
        }
        if dice.chance(0.2) {
            spec["ttlSecondsAfterFinished"] = dice.between(0, 60).into();
        }
        let change = match dice.below(3) {
            0 => json!({"suspend": dice.chance(0.4)}),
            _ => json!({"parallelism": parallelism}),
        };
        self.put(JOBS, &json!({"metadata": {"name": name}, "spec": spec}), &json!({"spec": change})).await
    }

    async fn budget(&self) -> String {
        let name = *self.dice.pick(&["web", "db", "par", "bare"]).unwrap();
        let rule = match self.dice.below(3) {
            0 => json!({"minAvailable": self.dice.between(0, 3)}),
            1 => json!({"minAvailable": "50%"}),
            _ => json!({"maxUnavailable": 1}),
        };
        let mut spec = rule;
        spec["selector"] = json!({"matchLabels": {"app": name}});
        self.put(BUDGETS, &json!({"metadata": {"name": name}, "spec": spec}), &json!({"spec": {}})).await
    }

    /// Somebody else deletes a Pod, or takes its labels away.
    async fn disturb(&self, now: &Snapshot) -> String {
        let Some(pod) = self.dice.pick(&now.pods) else { return "nobody to disturb".to_owned() };
        if self.dice.chance(0.25) && owner(pod).is_some_and(|o| o["kind"] != "Job") {
            let labels = json!({"metadata": {"labels": {"app": null}}});
            let done = self.hand.merge(&path(pod), &labels).await;
            return format!("user takes the label from {} ({:?})", name(pod), done.err());
        }
        let done = self.hand.delete(&path(pod), &json!({})).await;
        format!("user deletes {} ({:?})", name(pod), done.err())
    }

    /// Somebody evicts a Pod.
    pub async fn evict(&self, now: &Snapshot) -> String {
        let Some(pod) = self.dice.pick(&now.pods) else { return "nobody to evict".to_owned() };
        let body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name(pod)}});
        let done = self.hand.post(&format!("{}/eviction", path(pod)), &body).await;
        format!("user evicts {} ({:?})", name(pod), done.err())
    }

    /// Somebody removes a workload, in one of the ways.
    async fn remove(&self, now: &Snapshot) -> String {
        let Some((list, name)) = self.dice.pick(&now.owners) else { return "nothing to remove".to_owned() };
        let policy = *self.dice.pick(&["Background", "Foreground", "Orphan"]).unwrap();
        let done = self.hand.delete(&format!("{list}/{name}"), &json!({"propagationPolicy": policy})).await;
        format!("user removes {list}/{name}, {policy} ({:?})", done.err())
    }

    /// What nobody owns is taken away, so that what is wanted can be seen.
    pub async fn tidy(&self, now: &Snapshot) {
        for pod in now.pods.iter().filter(|pod| owner(pod).is_none() && !is_going(pod)) {
            let _ = self
                .hand
                .delete(&format!("{PODS}/{}", name(pod)), &json!({"preconditions": {"uid": uid(pod)}}))
                .await;
        }
        for set in now.sets.iter().filter(|set| owner(set).is_none() && name(set) != "bare") {
            let _ = self
                .hand
                .delete(&format!("{REPLICA_SETS}/{}", name(set)), &json!({"propagationPolicy": "Background"}))
                .await;
        }
    }
}

/// What there is at a time, for users to choose from.
pub struct Snapshot {
    /// Pods.
    pub pods: Vec<std::sync::Arc<Value>>,
    /// ReplicaSets.
    pub sets: Vec<std::sync::Arc<Value>>,
    /// Workloads: where they are, and their names.
    pub owners: Vec<(&'static str, String)>,
}

impl Snapshot {
    /// Of what is true.
    pub fn of(truth: &Truth) -> Self {
        let kinds = [
            ("/apps/deployments/", DEPLOYMENTS),
            ("/apps/statefulsets/", STATEFUL_SETS),
            ("/apps/daemonsets/", DAEMON_SETS),
            ("/batch/jobs/", JOBS),
        ];
        let all = kinds.iter().flat_map(|(prefix, list)| {
            truth.all(prefix).map(|o| (*list, name(o).to_owned())).collect::<Vec<_>>()
        });
        let mut owners: Vec<_> = all.collect();
        owners.extend(truth.get("/apps/replicasets/default/bare").map(|_| (REPLICA_SETS, "bare".to_owned())));
        Self {
            pods: truth.all("/core/pods/").cloned().collect(),
            sets: truth.all("/apps/replicasets/").cloned().collect(),
            owners,
        }
    }
}
