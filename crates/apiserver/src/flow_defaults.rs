//! How requests are sorted and shares given until somebody says otherwise: the FlowSchemas and PriorityLevelConfigurations that
//! every cluster has. Source: apiserver's `flowcontrol/bootstrap`.

use serde_json::{Value, json};

/// Lets the server bring an object up to date.
const AUTO_UPDATE: &str = "apf.kubernetes.io/autoupdate-spec";

/// The levels: name, shares, percent that others may borrow, and queues, queues for one flow and requests in each if requests
/// may wait.
type Level = (&'static str, i64, i64, Option<[i64; 3]>);
const LEVELS: [Level; 7] = [
    ("catch-all", 5, 0, None),
    ("global-default", 20, 50, Some([128, 6, 50])),
    ("leader-election", 10, 0, Some([16, 4, 50])),
    ("node-high", 40, 25, Some([64, 6, 50])),
    ("system", 30, 33, Some([64, 6, 50])),
    ("workload-high", 40, 50, Some([128, 6, 50])),
    ("workload-low", 100, 90, Some([128, 6, 50])),
];

/// Whom a schema is about.
#[derive(Clone, Copy)]
enum Who {
    Groups(&'static [&'static str]),
    User(&'static str),
    SystemAccounts,
    LeaderElection,
}

/// What requests it is about.
#[derive(Clone, Copy)]
enum What {
    Everything,
    Probes,
    Leases,
    NodeParts,
}

const EVERYBODY: &[&str] = &["system:unauthenticated", "system:authenticated"];
const NODES: &[&str] = &["system:nodes"];
const BY_USER: &str = "ByUser";
const BY_NAMESPACE: &str = "ByNamespace";

/// The schemas: name, level, precedence, what tells flows apart, whom and what they are about.
type Schema = (&'static str, &'static str, i64, &'static str, Who, What);
const SCHEMAS: [Schema; 11] = [
    ("exempt", "exempt", 1, "", Who::Groups(&["system:masters"]), What::Everything),
    ("probes", "exempt", 2, "", Who::Groups(EVERYBODY), What::Probes),
    ("system-leader-election", "leader-election", 100, BY_USER, Who::LeaderElection, What::Leases),
    ("system-node-high", "node-high", 400, BY_USER, Who::Groups(NODES), What::NodeParts),
    ("system-nodes", "system", 500, BY_USER, Who::Groups(NODES), What::Everything),
    (
        "kube-controller-manager",
        "workload-high",
        800,
        BY_NAMESPACE,
        Who::User("system:kube-controller-manager"),
        What::Everything,
    ),
    (
        "kube-scheduler",
        "workload-high",
        800,
        BY_NAMESPACE,
        Who::User("system:kube-scheduler"),
        What::Everything,
    ),
    (
        "kube-system-service-accounts",
        "workload-high",
        900,
        BY_NAMESPACE,
        Who::SystemAccounts,
        What::Everything,
    ),
    (
        "service-accounts",
        "workload-low",
        9000,
        BY_USER,
        Who::Groups(&["system:serviceaccounts"]),
        What::Everything,
    ),
    ("global-default", "global-default", 9900, BY_USER, Who::Groups(EVERYBODY), What::Everything),
    ("catch-all", "catch-all", 10_000, BY_USER, Who::Groups(EVERYBODY), What::Everything),
];

/// The levels, as objects.
#[must_use]
pub fn levels() -> Vec<Value> {
    let exempt = json!({"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}});
    let mut levels = vec![object("exempt", exempt)];
    levels.extend(LEVELS.iter().map(|(name, shares, lendable, queues)| {
        let response = match queues {
            None => json!({"type": "Reject"}),
            Some([queues, hand, length]) => {
                json!({"type": "Queue", "queuing": {"queues": queues, "handSize": hand, "queueLengthLimit": length}})
            }
        };
        let limited =
            json!({"nominalConcurrencyShares": shares, "lendablePercent": lendable, "limitResponse": response});
        object(name, json!({"type": "Limited", "limited": limited}))
    }));
    levels
}

/// The schemas, as objects.
#[must_use]
pub fn schemas() -> Vec<Value> {
    let one = |(name, level, precedence, method, who, what): &Schema| {
        let mut rule = json!({"subjects": subjects(*who)});
        let (resources, paths) = requests(*what);
        for (field, list) in [("resourceRules", resources), ("nonResourceRules", paths)] {
            if !list.is_empty() {
                rule[field] = json!(list);
            }
        }
        let mut spec = json!({"priorityLevelConfiguration": {"name": level}, "matchingPrecedence": precedence,
            "rules": [rule]});
        if !method.is_empty() {
            spec["distinguisherMethod"] = json!({"type": method});
        }
        object(name, spec)
    };
    SCHEMAS.iter().map(one).collect()
}

fn object(name: &str, spec: Value) -> Value {
    json!({"metadata": {"name": name, "annotations": {AUTO_UPDATE: "true"}}, "spec": spec})
}

fn subjects(who: Who) -> Vec<Value> {
    let user = |name: &str| json!({"kind": "User", "user": {"name": name}});
    let accounts =
        || json!({"kind": "ServiceAccount", "serviceAccount": {"name": "*", "namespace": "kube-system"}});
    match who {
        Who::Groups(names) => names.iter().map(|n| json!({"kind": "Group", "group": {"name": n}})).collect(),
        Who::User(name) => vec![user(name)],
        Who::SystemAccounts => vec![accounts()],
        Who::LeaderElection => {
            vec![user("system:kube-controller-manager"), user("system:kube-scheduler"), accounts()]
        }
    }
}

/// The rules about resources, and those about other paths.
fn requests(what: What) -> (Vec<Value>, Vec<Value>) {
    let resource = |verbs: &[&str], group: &str, resources: &[&str], cluster: bool| {
        let mut rule =
            json!({"verbs": verbs, "apiGroups": [group], "resources": resources, "namespaces": ["*"]});
        if cluster {
            rule["clusterScope"] = true.into();
        }
        rule
    };
    let leases = |verbs: &[&str]| resource(verbs, "coordination.k8s.io", &["leases"], false);
    match what {
        What::Everything => (
            vec![resource(&["*"], "*", &["*"], true)],
            vec![json!({"verbs": ["*"], "nonResourceURLs": ["*"]})],
        ),
        What::Probes => (
            Vec::new(),
            vec![json!({"verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz", "/livez"]})],
        ),
        What::Leases => (vec![leases(&["get", "create", "update"])], Vec::new()),
        What::NodeParts => {
            (vec![resource(&["*"], "", &["nodes", "nodes/status"], true), leases(&["*"])], Vec::new())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::hooks;

    #[test]
    fn they_are_complete_and_right() {
        let group = "flowcontrol.apiserver.k8s.io";
        let names: Vec<Value> = levels().iter().map(|l| l["metadata"]["name"].clone()).collect();
        for schema in schemas() {
            let found = hooks(group, "flowschemas").validate(&schema, None);
            assert!(found.is_empty(), "{found:?}");
            assert!(names.contains(&schema["spec"]["priorityLevelConfiguration"]["name"]), "{schema}");
        }
        for level in levels() {
            let found = hooks(group, "prioritylevelconfigurations").validate(&level, None);
            assert!(found.is_empty(), "{found:?}");
        }
    }
}
