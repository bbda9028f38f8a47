use serde_json::{Value, json};
use trine_typed::k8s_openapi::api::core::v1::{Node, Pod};

use super::*;
use crate::plugins::{inter_pod_affinity, pod_topology_spread};
use crate::profile::Profile;
use crate::snapshot::Snapshot;

fn node(name: usize, zone: usize) -> Arc<Node> {
    let node = json!({"metadata": {"name": format!("n{name}"),
        "labels": {"zone": format!("z{zone}"), "host": format!("n{name}")}}});
    Arc::new(serde_json::from_value(node).unwrap())
}

fn term(app: usize, key: &str, more: &Value) -> Value {
    let mut term = json!({"labelSelector": {"matchLabels": {"app": format!("a{app}")}}, "topologyKey": key});
    json_patch::merge(&mut term, more);
    term
}

/// Of several kinds, each with other wishes.
fn pod(uid: usize, kind: usize) -> PodInfo {
    let affinity = match kind % 6 {
        0 => {
            json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term(1, "host", &json!({}))]}})
        }
        1 => {
            json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term(0, "zone", &json!({}))]}})
        }
        2 => json!({"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution":
            [{"weight": 3, "podAffinityTerm": term(3, "zone", &json!({"namespaceSelector": {"matchLabels": {"team": "x"}}}))}]}}),
        _ => json!(null),
    };
    let spread = match kind % 6 {
        3 => json!([{"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "a3"}}}]),
        4 => json!([{"topologyKey": "host", "maxSkew": 2, "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"app": "a4"}}}]),
        _ => json!([]),
    };
    let pod = json!({"metadata": {"name": format!("p{uid}"), "uid": format!("{uid}"),
        "namespace": if uid.is_multiple_of(3) { "other" } else { "d" }, "labels": {"app": format!("a{}", kind % 6)}},
        "spec": {"affinity": affinity, "topologySpreadConstraints": spread, "containers": []}});
    Arc::new(serde_json::from_value::<Pod>(pod).unwrap()).into()
}

/// A row of numbers that is the same for the same seed (xorshift).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap() % limit
    }
}

/// What filters and scores say of all nodes.
fn verdicts(pod: &PodInfo, s: &Snapshot) -> Vec<String> {
    let affinity = inter_pod_affinity::State::of(pod, s, &Profile::default().args);
    let spread = pod_topology_spread::State::of(pod, s, None);
    let verdict = |node: &NodeInfo| {
        let filters = (affinity.filter(pod, node, s), spread.filter(pod, node, s));
        format!("{} {filters:?} {} {:?}", node.name(), affinity.score(node), spread.crowd(node))
    };
    s.nodes.values().map(verdict).collect()
}

#[test]
fn counts_that_are_kept_are_those_that_a_look_at_all_pods_finds() {
    for seed in 1..=20 {
        let mut numbers = Numbers(seed * 7919);
        let mut kept = Snapshot::default();
        let mut placed: Vec<(String, PodInfo)> = Vec::new();
        for step in 0..200 {
            match numbers.below(12) {
                0 | 1 => kept.put_node(node(numbers.below(6), numbers.below(3))),
                2 => {
                    let name = format!("n{}", numbers.below(6));
                    kept.take_node(&name);
                    placed.retain(|(on, _)| *on != name);
                }
                3 => {
                    let labels =
                        (numbers.below(2) == 0).then(|| [("team".to_owned(), "x".to_owned())].into());
                    kept.set_namespace("other", labels);
                }
                4 | 5 if !placed.is_empty() => {
                    let (on, pod) = placed.swap_remove(numbers.below(placed.len()));
                    assert!(kept.remove_from(&on, pod.uid()).is_some());
                }
                _ => {
                    let (on, pod) = (format!("n{}", numbers.below(6)), pod(step, numbers.below(6)));
                    if kept.place_on(&on, pod.clone()).is_ok() {
                        placed.push((on, pod));
                    }
                }
            }
            let asking = pod(1000 + step, numbers.below(6));
            kept.prepare(&asking, &Profile::default());
            let mut anew = Snapshot { namespaces: kept.namespaces.clone(), ..Snapshot::default() };
            for node in kept.nodes.values() {
                anew.put_node(Arc::clone(&node.node));
            }
            for (on, pod) in &placed {
                assert!(anew.place_on(on, pod.clone()).is_ok());
            }
            assert_eq!(verdicts(&asking, &kept), verdicts(&asking, &anew), "seed {seed}, step {step}");
        }
        assert!(kept.index.kept > 0 && !kept.index.places.is_empty());
    }
}

#[test]
fn the_answer_that_was_asked_for_longest_ago_makes_room() {
    let mut index = Index::default();
    let (nodes, namespaces) = (Nodes::default(), Namespaces::new());
    let question = |n: usize| {
        let selector = json!({"matchLabels": {"app": n.to_string()}});
        Question::living(crate::terms::Selection::within("d", serde_json::from_value(selector).unwrap()))
    };
    for n in 0..=KEPT {
        index.keep(&question(0), &nodes, &namespaces);
        index.keep(&question(n), &nodes, &namespaces);
    }
    assert!(index.kept <= KEPT, "{}", index.kept);
    let kept = |n: usize| index.answers["d"].contains_key(question(n).id());
    assert_eq!((kept(0), kept(1), kept(KEPT)), (true, false, true));
}
