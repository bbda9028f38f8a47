//! Against what the API says of policies, read word by word, over clusters that chance made.

use serde_json::{Value, json};
use trine_typed::k8s_openapi::api::core::v1::Pod;
use trine_typed::k8s_openapi::api::networking::v1::NetworkPolicy;

use super::*;
use crate::model::PodFacts;
use crate::verdict::Talk;

const NODE: &str = "n1";

/// Numbers that look random and are the same each time.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }

    fn of<T: Clone>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())].clone()
    }
}

fn key(namespace: &str, name: &str) -> Key {
    (namespace.to_owned(), name.to_owned())
}

fn address(number: usize) -> IpAddr {
    IpAddr::from([10, 0, 0, u8::try_from(number).unwrap()])
}

fn selector(chance: &mut Chance) -> Value {
    match chance.below(4) {
        0 => json!({}),
        1 => json!({"matchLabels": {"a": chance.of(&["0", "1"])}}),
        2 => json!({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}),
        _ => json!({"matchExpressions": [{"key": "b", "operator": chance.of(&["Exists", "DoesNotExist"])}]}),
    }
}

fn peer(chance: &mut Chance) -> Value {
    match chance.below(4) {
        0 => json!({"podSelector": selector(chance)}),
        1 => json!({"namespaceSelector": selector(chance)}),
        2 => json!({"namespaceSelector": selector(chance), "podSelector": selector(chance)}),
        _ => {
            json!({"ipBlock": {"cidr": chance.of(&["10.0.0.0/29", "0.0.0.0/0", "10.0.0.4/30"]), "except": chance.of(&[json!([]), json!(["10.0.0.2/31"]), json!(["10.0.0.5/32", "10.0.0.0/30"])])}})
        }
    }
}

fn port(chance: &mut Chance) -> Value {
    let protocol = chance.of(&["TCP", "UDP", "SCTP"]);
    match chance.below(4) {
        0 => json!({"protocol": protocol}),
        1 => json!({"protocol": protocol, "port": chance.of(&[80, 81])}),
        2 => json!({"protocol": protocol, "port": "web"}),
        _ => json!({"protocol": protocol, "port": 80, "endPort": chance.of(&[80, 82])}),
    }
}

fn rules(chance: &mut Chance, ends: &str) -> Value {
    let rules: Vec<Value> = (0..chance.below(3))
        .map(|_| {
            let mut rule = json!({});
            let (peers, ports) = (chance.below(3), chance.below(4));
            if chance.below(4) > 0 {
                rule[ends] = (0..peers).map(|_| peer(chance)).collect();
            }
            if chance.below(2) > 0 {
                rule["ports"] = (0..ports).map(|_| port(chance)).collect();
            }
            rule
        })
        .collect();
    json!(rules)
}

fn policy(chance: &mut Chance, namespace: &str) -> Value {
    let mut spec = json!({"podSelector": selector(chance)});
    if chance.below(2) > 0 {
        spec["ingress"] = rules(chance, "from");
    }
    if chance.below(2) > 0 {
        spec["egress"] = rules(chance, "to");
    }
    if chance.below(2) > 0 {
        spec["policyTypes"] =
            chance.of(&[json!(["Ingress"]), json!(["Egress"]), json!(["Ingress", "Egress"])]);
    }
    json!({"metadata": {"namespace": namespace, "name": "p"}, "spec": spec})
}

fn pod(chance: &mut Chance, number: usize, namespace: &str) -> Value {
    let port = |name: &str, port: usize, proto: &str| json!({"name": name, "containerPort": port, "protocol": proto});
    let mut labels = json!({"a": chance.of(&["0", "1"])});
    if chance.below(2) > 0 {
        labels["b"] = json!("");
    }
    json!({
        "metadata": {"namespace": namespace, "name": format!("p{number}"), "uid": format!("u{number}"), "labels": labels},
        "spec": {
            "nodeName": chance.of(&[NODE, "n2"]),
            "hostNetwork": chance.below(9) == 0,
            "containers": [{"name": "c", "ports": [port("web", chance.of(&[80, 81]), chance.of(&["TCP", "UDP"]))]}],
        },
        "status": {"podIPs": [{"ip": address(number)}], "phase": if chance.below(9) == 0 { "Succeeded" } else { "Running" }},
    })
}

/// A cluster as the API server tells of it.
#[derive(Default)]
struct Told {
    pods: BTreeMap<usize, Value>,
    namespaces: BTreeMap<&'static str, Value>,
    policies: BTreeMap<(&'static str, usize), Value>,
}

const NAMESPACES: [&str; 3] = ["x", "y", "z"];

impl Told {
    fn change(&mut self, chance: &mut Chance, model: &mut Model) {
        let namespace = chance.of(&NAMESPACES);
        match chance.below(8) {
            0 => {
                let labels = chance.of(&[json!({"a": "0"}), json!({"a": "1", "b": ""}), json!({})]);
                self.namespaces.insert(namespace, labels);
            }
            1 | 2 => {
                let policy = policy(chance, namespace);
                self.policies.insert((namespace, chance.below(2)), policy);
            }
            3 => drop(self.policies.remove(&(namespace, chance.below(2)))),
            4 => drop(self.pods.remove(&chance.below(8))),
            _ => {
                let number = chance.below(8);
                let of = NAMESPACES[number % 3];
                self.pods.insert(number, pod(chance, number, of));
            }
        }
        self.tell(model);
    }

    /// As lists do.
    fn tell(&self, model: &mut Model) {
        let mut listed = [BTreeSet::new(), BTreeSet::new(), BTreeSet::new()];
        for (name, labels) in &self.namespaces {
            model.set_namespace(name, serde_json::from_value(labels.clone()).unwrap());
            listed[0].insert(key("", name));
        }
        for (number, pod) in &self.pods {
            let pod: Pod = serde_json::from_value(pod.clone()).unwrap();
            let of = key(NAMESPACES[number % 3], &format!("p{number}"));
            model.set_pod(&of, Some(PodFacts::from_api(&pod)));
            listed[1].insert(of);
        }
        for ((namespace, number), policy) in &self.policies {
            let policy: NetworkPolicy = serde_json::from_value(policy.clone()).unwrap();
            let of = key(namespace, &number.to_string());
            model.set_policy(&of, Policy::from_api(&policy));
            listed[2].insert(of);
        }
        let [namespaces, pods, policies] = listed;
        model.keep_namespaces(&namespaces);
        model.keep_pods(&pods);
        model.keep_policies(&policies);
    }

    /// A Pod that has an address of its own.
    fn owner(&self, address: IpAddr) -> Option<&Value> {
        let text = address.to_string();
        self.pods.values().find(|pod| {
            let has = pod["status"]["podIPs"][0]["ip"] == text.as_str();
            has && pod["spec"]["hostNetwork"] == false && pod["status"]["phase"] == "Running"
        })
    }

    fn allows(&self, talk: &Talk) -> bool {
        talk.source == talk.destination
            || self.lets("egress", talk.source, talk.destination, talk)
                && self.lets("ingress", talk.destination, talk.source, talk)
    }

    fn lets(&self, direction: &str, own: IpAddr, other: IpAddr, talk: &Talk) -> bool {
        let Some(pod) = self.owner(own).filter(|pod| pod["spec"]["nodeName"] == NODE) else { return true };
        let mut isolated = false;
        for policy in self.policies.values() {
            let spec = &policy["spec"];
            let judges = match spec["policyTypes"].as_array() {
                Some(types) => types.iter().any(|t| t.as_str().unwrap().to_lowercase() == direction),
                None => {
                    direction == "ingress" || spec["egress"].as_array().is_some_and(|rules| !rules.is_empty())
                }
            };
            let same = policy["metadata"]["namespace"] == pod["metadata"]["namespace"];
            if !judges || !same || !fits(&spec["podSelector"], &pod["metadata"]["labels"]) {
                continue;
            }
            isolated = true;
            let ends = if direction == "ingress" { "from" } else { "to" };
            for rule in spec[direction].as_array().into_iter().flatten() {
                let empty = |list: &Value| list.as_array().is_none_or(Vec::is_empty);
                let all = |name: &str| rule[name].as_array().into_iter().flatten();
                let peer = empty(&rule[ends])
                    || all(ends).any(|peer| self.peer(peer, other, &pod["metadata"]["namespace"]));
                if peer && (empty(&rule["ports"]) || all("ports").any(|port| self.port(port, talk))) {
                    return true;
                }
            }
        }
        !isolated
    }

    fn peer(&self, peer: &Value, other: IpAddr, namespace: &Value) -> bool {
        if let Some(cidr) = peer["ipBlock"]["cidr"].as_str() {
            let within = |block: &str| block.parse::<trine_kernel::netlink::Cidr>().unwrap().contains(other);
            let except = peer["ipBlock"]["except"].as_array().unwrap();
            return within(cidr) && !except.iter().any(|block| within(block.as_str().unwrap()));
        }
        let Some(pod) = self.owner(other) else { return false };
        let of = pod["metadata"]["namespace"].as_str().unwrap();
        let namespaces = match peer.get("namespaceSelector") {
            Some(selector) => self.namespaces.get(of).is_some_and(|labels| fits(selector, labels)),
            None => *namespace == of,
        };
        namespaces
            && peer.get("podSelector").is_none_or(|selector| fits(selector, &pod["metadata"]["labels"]))
    }

    fn port(&self, port: &Value, talk: &Talk) -> bool {
        let number = match port["protocol"].as_str().unwrap() {
            "TCP" => 6,
            "UDP" => 17,
            _ => 132,
        };
        let right = number == talk.proto;
        right
            && match &port["port"] {
                Value::Null => true,
                Value::String(name) => self.owner(talk.destination).is_some_and(|pod| {
                    let has = &pod["spec"]["containers"][0]["ports"][0];
                    has["name"] == name.as_str()
                        && has["containerPort"] == talk.port
                        && has["protocol"] == port["protocol"]
                }),
                first => {
                    let first = first.as_u64().unwrap();
                    (first..=port["endPort"].as_u64().unwrap_or(first)).contains(&u64::from(talk.port))
                }
            }
    }
}

fn fits(selector: &Value, labels: &Value) -> bool {
    let equal =
        selector["matchLabels"].as_object().into_iter().flatten().all(|(k, v)| labels.get(k) == Some(v));
    let expressions = selector["matchExpressions"].as_array().into_iter().flatten();
    equal
        && expressions.into_iter().all(|e| {
            let label = labels.get(e["key"].as_str().unwrap());
            match e["operator"].as_str().unwrap() {
                "NotIn" => !label.is_some_and(|label| e["values"].as_array().unwrap().contains(label)),
                "Exists" => label.is_some(),
                _ => label.is_none(),
            }
        })
}

/// Does what the kernel would, and refuses what it would refuse.
fn apply(state: &mut Desired, actions: &[Action]) {
    for action in actions {
        match action.clone() {
            Action::AddSet(name, content) => assert!(state.sets.insert(name, content).is_none()),
            Action::RemoveMembers(name, content) => {
                members_of(state, &name, &content, |set, m| assert!(set.remove(m)))
            }
            Action::AddMembers(name, content) => {
                members_of(state, &name, &content, |set, m| assert!(set.insert(*m)))
            }
            Action::AddChain(name, chain) => {
                if let Chain::Profile(policies) = &chain {
                    assert!(policies.iter().all(|name| state.chains.contains_key(name)));
                }
                assert!(state.chains.insert(name, chain).is_none());
            }
            Action::Free(direction, address, chain) => {
                assert_eq!(state.pods.remove(&(direction, address)), Some(chain));
            }
            Action::Isolate(direction, address, chain) => {
                assert!(state.chains.contains_key(&chain));
                assert_eq!(state.pods.insert((direction, address), chain), None);
            }
            Action::RemoveChain(name) => {
                assert!(state.pods.values().all(|chain| *chain != name), "still led to");
                let used =
                    |chain: &Chain| matches!(chain, Chain::Profile(policies) if policies.contains(&name));
                assert!(!state.chains.values().any(used), "still led to");
                assert!(state.chains.remove(&name).is_some());
            }
            Action::RemoveSet(name) => assert!(state.sets.remove(&name).is_some()),
        }
    }
}

fn members_of(
    state: &mut Desired,
    name: &str,
    content: &Content,
    act: impl Fn(&mut BTreeSet<Member>, &Member),
) {
    let (Some(Content::Pods(set) | Content::Named(set)), Content::Pods(these) | Content::Named(these)) =
        (state.sets.get_mut(name), content)
    else {
        panic!("{name} has no members")
    };
    these.iter().for_each(|member| act(Arc::make_mut(set), member));
}

#[test]
fn what_is_planned_allows_what_the_api_says_however_the_cluster_came_to_be_as_it_is() {
    let mut allowed = 0;
    let mut refused = 0;
    for seed in 0..40 {
        let mut chance = Chance(seed);
        let (mut told, mut model, mut now) = (Told::default(), Model::default(), Desired::default());
        for step in 0..40 {
            told.change(&mut chance, &mut model);
            model.begin_questions();
            let wanted = desired(&mut model, NODE, false).unwrap_or_default();
            model.end_questions();
            let mut fresh = Model::default();
            told.tell(&mut fresh);
            let anew = desired(&mut fresh, NODE, false).unwrap_or_default();
            assert_eq!(wanted, anew, "seed {seed}, step {step}: history must not matter");
            let actions = changes(&now, &wanted);
            apply(&mut now, &actions);
            assert_eq!(now, wanted, "seed {seed}, step {step}");
            for _ in 0..60 {
                let talk = Talk {
                    proto: chance.of(&[6, 17, 132]),
                    source: address(chance.below(9)),
                    destination: address(chance.below(9)),
                    port: chance.of(&[80, 81, 82, 83]),
                };
                let right = told.allows(&talk);
                assert_eq!(
                    now.allows(&talk),
                    right,
                    "seed {seed}, step {step}: {talk:?}\n{:#?}",
                    told.policies
                );
                if right { allowed += 1 } else { refused += 1 }
            }
        }
    }
    assert!(allowed > 1000 && refused > 1000, "{allowed} allowed, {refused} refused: nothing was asked");
}

fn model(pods: &[(&str, &str, PodFacts)], policies: &[Value]) -> Model {
    let mut model = Model::default();
    for (namespace, name, pod) in pods {
        let pod = PodFacts { uid: format!("u-{name}"), node: Some(NODE.to_owned()), ..pod.clone() };
        model.set_pod(&key(namespace, name), Some(pod));
    }
    for (number, policy) in policies.iter().enumerate() {
        let policy: NetworkPolicy =
            serde_json::from_value(json!({"metadata": {"namespace": "x"}, "spec": policy})).unwrap();
        model.set_policy(&key("x", &number.to_string()), Policy::from_api(&policy));
    }
    model
}

fn at(number: usize) -> PodFacts {
    PodFacts { addresses: vec![address(number)], ..PodFacts::default() }
}

#[test]
fn a_policy_that_selects_none_of_the_nodes_pods_costs_it_nothing() {
    let mut elsewhere = model(
        &[("x", "a", at(1))],
        &[json!({"podSelector": {"matchLabels": {"a": "1"}}, "ingress": [{"from": [{"podSelector": {}}]}]})],
    );
    assert_eq!(desired(&mut elsewhere, NODE, false), None);
    let mut host =
        model(&[("x", "a", PodFacts { host_network: true, ..at(1) })], &[json!({"podSelector": {}})]);
    assert_eq!(desired(&mut host, NODE, false), None);
    assert_eq!(
        desired(&mut model(&[("x", "a", at(1))], &[json!({"podSelector": {}})]), NODE, true),
        None,
        "no address of that family"
    );
}

#[test]
fn pods_that_come_and_go_change_elements_alone() {
    let rule = json!({"podSelector": {}, "ingress": [{"from": [{"podSelector": {}}], "ports": [{"port": 80}, {"port": 443}]}]});
    let mut model = model(&[("x", "a", at(1))], &[rule]);
    let before = desired(&mut model, NODE, false).unwrap();
    model.set_pod(&key("x", "b"), Some(PodFacts { uid: "u-b".into(), node: Some(NODE.into()), ..at(2) }));
    let after = desired(&mut model, NODE, false).unwrap();
    let actions = changes(&before, &after);
    assert!(actions.iter().all(|a| matches!(a, Action::AddMembers(..) | Action::Isolate(..))), "{actions:?}");
    assert_eq!(actions.len(), 2);
    let back = changes(&after, &before);
    assert!(back.iter().all(|a| matches!(a, Action::RemoveMembers(..) | Action::Free(..))), "{back:?}");
}

#[test]
fn an_address_that_is_used_again_is_the_new_pods() {
    let old = PodFacts { going: true, labels: [("a".to_owned(), "1".to_owned())].into(), ..at(1) };
    let only =
        json!({"podSelector": {}, "ingress": [{"from": [{"podSelector": {"matchLabels": {"a": "1"}}}]}]});
    let mut model = model(&[("x", "old", old), ("x", "server", at(2))], &[only]);
    let talk = Talk { proto: 6, source: address(1), destination: address(2), port: 80 };
    assert!(desired(&mut model, NODE, false).unwrap().allows(&talk));
    model.set_pod(
        &key("x", "new"),
        Some(PodFacts { uid: "u-new".into(), node: Some(NODE.into()), ..PodFacts::default() }),
    );
    assert!(model.set_addresses("u-new", &[address(1)]), "the plugin tells it before the status does");
    assert!(!desired(&mut model, NODE, false).unwrap().allows(&talk));
    assert!(!model.set_addresses("u-unknown", &[address(3)]));
    // A sandbox that was made anew has another address before the status says so.
    model.set_pod(&key("x", "new"), Some(PodFacts { uid: "u-new".into(), node: Some(NODE.into()), ..at(1) }));
    model.set_addresses("u-new", &[address(4)]);
    assert!(desired(&mut model, NODE, false).unwrap().pods.contains_key(&(Direction::Ingress, address(4))));
    assert!(desired(&mut model, NODE, false).unwrap().allows(&talk), "the old one has it back");
    model.set_pod(&key("x", "new"), None);
    assert!(!desired(&mut model, NODE, false).unwrap().pods.contains_key(&(Direction::Ingress, address(4))));
}

#[test]
fn a_pod_of_a_file_is_known_by_the_uid_that_its_kubelet_gave_it() {
    let mut pod = json!({"metadata": {"name": "a", "namespace": "x", "uid": "of-the-api", "annotations": {"kubernetes.io/config.hash": "of-the-file"}}, "spec": {"containers": [], "nodeName": NODE}});
    let mut model = model(&[], &[json!({"podSelector": {}})]);
    let facts = |pod: &Value| PodFacts::from_api(&serde_json::from_value::<Pod>(pod.clone()).unwrap());
    model.set_pod(&key("x", "a"), Some(facts(&pod)));
    assert!(model.set_addresses("of-the-file", &[address(1)]));
    assert!(desired(&mut model, NODE, false).unwrap().pods.contains_key(&(Direction::Ingress, address(1))));
    pod["status"] = json!({"phase": "Failed", "podIP": address(1)});
    model.set_pod(&key("x", "a"), Some(facts(&pod)));
    assert_eq!(desired(&mut model, NODE, false), None, "its address is free");
}

#[test]
fn who_has_ended_gets_no_address_by_the_plugins_word() {
    let ended = PodFacts { uid: "u-done".into(), node: Some(NODE.into()), ended: true, ..at(1) };
    let mut model = model(&[], &[json!({"podSelector": {}})]);
    model.set_pod(&key("x", "done"), Some(ended));
    assert!(model.set_addresses("u-done", &[address(4)]), "its uid is known");
    assert_eq!(desired(&mut model, NODE, false), None);
}
