use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::snapshot::Snapshot;

/// What a Pod asks for, one container each.
type Asked = &'static [&'static [(&'static str, &'static str)]];
/// What a node has, and the Pods on it.
type Holding = (&'static [(&'static str, &'static str)], &'static [Asked]);

const BOTH: &[(&str, i64)] = &[("cpu", 1), ("memory", 1)];
const WEIGHTED: &[(&str, i64)] = &[("memory", 2), ("cpu", 1)];
const WITH_OTHER: &[(&str, i64)] = &[("cpu", 1), ("memory", 1), ("abc.com/xyz", 1)];
const GPU: &[(&str, i64)] = &[("cpu", 1), ("memory", 1), ("nvidia.com/gpu", 1)];
const FOO: &[(&str, i64)] = &[("intel.com/foo", 1)];

/// 3 processors and 5000 bytes, in two containers.
const THREE: Asked = &[&[("cpu", "1000"), ("memory", "2000")], &[("cpu", "2000"), ("memory", "3000")]];
const CPU: Asked = &[&[("cpu", "3000"), ("memory", "0")]];
const CPU_AND_MEMORY: Asked = &[&[("cpu", "3000"), ("memory", "5000")]];

fn quantities(given: &[(&str, &str)]) -> Value {
    given
        .iter()
        .map(|(name, amount)| ((*name).to_owned(), json!(amount)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn pod(node: &str, asked: Asked) -> PodInfo {
    let container = |(at, asked): (usize, &&[(&str, &str)])| json!({"name": format!("c{at}"), "resources": {"requests": quantities(asked)}});
    let containers: Vec<Value> = asked.iter().enumerate().map(container).collect();
    let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": node, "containers": containers}});
    let pod: trine_typed::k8s_openapi::api::core::v1::Pod = serde_json::from_value(pod).unwrap();
    Arc::new(pod).into()
}

/// Nodes that hold Pods.
fn cluster(nodes: &[Holding]) -> Snapshot {
    let mut snapshot = Snapshot::default();
    for (at, (has, pods)) in nodes.iter().enumerate() {
        let name = format!("node{at}");
        let node = json!({"metadata": {"name": name}, "status": {"allocatable": quantities(has)}});
        snapshot.put_node(Arc::new(serde_json::from_value(node).unwrap()));
        snapshot.place(pods.iter().map(|asked| pod(&name, asked).pod));
    }
    snapshot
}

fn shares(given: &[(&str, i64)]) -> Vec<Share> {
    given.iter().map(|(name, weight)| Share::of(name, *weight)).collect()
}

fn scored(nodes: &[Holding], one: impl Fn(&NodeInfo) -> i64) -> Vec<i64> {
    cluster(nodes).nodes.values().map(one).collect()
}

const SMALL: &[(&str, &str)] = &[("cpu", "4000"), ("memory", "10000")];
const SIX: &[(&str, &str)] = &[("cpu", "6000"), ("memory", "10000")];
const LARGE: &[(&str, &str)] = &[("cpu", "10000"), ("memory", "20000")];
const ROOMY: &[(&str, &str)] = &[("cpu", "10000"), ("memory", "50000")];
const TINY: &[(&str, &str)] = &[("cpu", "250m"), ("memory", "1000Mi")];
const WITH_4: &[(&str, &str)] = &[("cpu", "6000"), ("memory", "10000"), ("abc.com/xyz", "4")];
const WITH_10: &[(&str, &str)] = &[("cpu", "6000"), ("memory", "10000"), ("abc.com/xyz", "10")];
const FOO_8: &[(&str, &str)] = &[("cpu", "4000"), ("memory", "10000Mi"), ("intel.com/foo", "8")];
const FOO_4: &[(&str, &str)] = &[("cpu", "4000"), ("memory", "10000Mi"), ("intel.com/foo", "4")];

/// The values that upstream publishes for the strategy.
type Row = (&'static str, Asked, &'static [Holding], &'static [(&'static str, i64)], &'static [i64]);

#[test]
fn most_is_left_where_the_score_is_highest() {
    let rows: &[Row] = &[
        ("nothing", &[], &[(SMALL, &[]), (SMALL, &[])], BOTH, &[100, 100]),
        ("different sizes", THREE, &[(SMALL, &[]), (SIX, &[])], BOTH, &[37, 50]),
        (
            "only the others ask",
            &[],
            &[(LARGE, &[CPU, CPU]), (LARGE, &[CPU, CPU_AND_MEMORY])],
            BOTH,
            &[70, 57],
        ),
        ("all ask", THREE, &[(LARGE, &[CPU]), (LARGE, &[CPU_AND_MEMORY])], BOTH, &[57, 45]),
        ("and differ", THREE, &[(LARGE, &[CPU]), (ROOMY, &[CPU_AND_MEMORY])], BOTH, &[57, 60]),
        ("too much", CPU, &[(SMALL, &[CPU]), (SMALL, &[CPU_AND_MEMORY])], BOTH, &[50, 25]),
        ("nodes without anything", &[], &[(&[], &[CPU]), (&[], &[CPU_AND_MEMORY])], BOTH, &[0, 0]),
        ("weighted", THREE, &[(SMALL, &[]), (SIX, &[])], WEIGHTED, &[41, 50]),
        ("what is not asked for", THREE, &[(SIX, &[]), (WITH_4, &[])], WITH_OTHER, &[50, 50]),
        (
            "what is asked for",
            &[&[("cpu", "3000"), ("memory", "5000"), ("abc.com/xyz", "2")]],
            &[(WITH_4, &[]), (WITH_10, &[])],
            WITH_OTHER,
            &[50, 60],
        ),
    ];
    for (name, asked, nodes, resources, expected) in rows {
        let (pod, shares) = (pod("", asked), shares(resources));
        let found = scored(nodes, |node| score(&Strategy::LeastAllocated, &shares, &pod, node));
        assert_eq!(found, *expected, "{name}");
    }
}

#[test]
fn least_is_left_where_the_score_is_highest() {
    let rows: &[Row] = &[
        ("nothing", &[], &[(SMALL, &[]), (SMALL, &[])], BOTH, &[0, 0]),
        ("different sizes", THREE, &[(SMALL, &[]), (SIX, &[])], BOTH, &[62, 50]),
        (
            "only the others ask",
            &[],
            &[(LARGE, &[CPU, CPU]), (LARGE, &[CPU, CPU_AND_MEMORY])],
            BOTH,
            &[30, 42],
        ),
        ("all ask", THREE, &[(LARGE, &[CPU]), (LARGE, &[CPU_AND_MEMORY])], BOTH, &[42, 55]),
        (
            "all of it",
            &[&[("cpu", "2000"), ("memory", "4000")], &[("cpu", "3000"), ("memory", "5000")]],
            &[(&[("cpu", "5000"), ("memory", "10000")], &[]), (&[("cpu", "10000"), ("memory", "9000")], &[])],
            BOTH,
            &[95, 75],
        ),
        ("weighted", THREE, &[(SMALL, &[]), (SIX, &[])], WEIGHTED, &[58, 50]),
        ("who asks for nothing counts", &[&[]], &[(TINY, &[&[&[]], &[&[]]]), (TINY, &[])], BOTH, &[80, 30]),
        ("what is not asked for", THREE, &[(SIX, &[]), (WITH_4, &[])], WITH_OTHER, &[50, 50]),
        (
            "what is asked for",
            &[&[("cpu", "3000"), ("memory", "5000"), ("abc.com/xyz", "2")]],
            &[(WITH_4, &[]), (WITH_10, &[])],
            WITH_OTHER,
            &[50, 40],
        ),
    ];
    for (name, asked, nodes, resources, expected) in rows {
        let (pod, shares) = (pod("", asked), shares(resources));
        let found = scored(nodes, |node| score(&Strategy::MostAllocated, &shares, &pod, node));
        assert_eq!(found, *expected, "{name}");
    }
}

#[test]
fn a_line_says_how_full_a_node_is_liked() {
    let falling = vec![(0, 100), (100, 0)];
    let rising = vec![(0, 0), (100, 10)];
    const TWO: Asked = &[&[("intel.com/foo", "2")]];
    let rows: &[(&Vec<Point>, Row)] = &[
        (&falling, ("nothing", &[], &[(SMALL, &[&[], &[]]), (SMALL, &[])], BOTH, &[100, 100])),
        (&falling, ("different sizes", THREE, &[(SMALL, &[]), (SIX, &[])], BOTH, &[38, 50])),
        (&falling, ("others", &[], &[(SMALL, &[CPU_AND_MEMORY]), (SIX, &[CPU_AND_MEMORY])], BOTH, &[38, 50])),
        (&rising, ("not asked for", &[], &[(FOO_8, &[]), (FOO_4, &[])], FOO, &[0, 0])),
        (&rising, ("asked for", TWO, &[(FOO_8, &[]), (FOO_4, &[])], FOO, &[2, 5])),
        (&rising, ("used", TWO, &[(FOO_8, &[]), (FOO_4, &[TWO])], FOO, &[2, 10])),
        (&rising, ("more", &[&[("intel.com/foo", "4")]], &[(FOO_8, &[]), (FOO_4, &[])], FOO, &[5, 10])),
    ];
    for (line, (name, asked, nodes, resources, expected)) in rows {
        let (pod, shares) = (pod("", asked), shares(resources));
        let strategy = Strategy::RequestedToCapacityRatio((*line).clone());
        assert_eq!(scored(nodes, |node| score(&strategy, &shares, &pod, node)), *expected, "{name}");
    }
}

#[test]
fn a_line_is_straight_between_its_points_and_flat_beyond_them() {
    type Line = &'static [Point];
    let rows: [(Line, Line); 3] = [
        (
            &[(10, 1), (90, 9)],
            &[
                (-10, 1),
                (0, 1),
                (9, 1),
                (10, 1),
                (15, 1),
                (19, 1),
                (20, 2),
                (89, 8),
                (90, 9),
                (99, 9),
                (110, 9),
            ],
        ),
        (
            &[(0, 2), (40, 10), (100, 0)],
            &[(-10, 2), (0, 2), (20, 6), (30, 8), (40, 10), (70, 5), (100, 0), (110, 0)],
        ),
        (&[(0, 2), (40, 2), (100, 2)], &[(-10, 2), (0, 2), (20, 2), (70, 2), (110, 2)]),
    ];
    for (line, values) in rows {
        for (at, expected) in values {
            assert_eq!(along(line, *at), *expected, "{line:?} at {at}");
        }
    }
}

#[test]
fn a_node_is_liked_whose_resources_a_pod_makes_more_alike() {
    const ASKED: Asked = &[&[("cpu", "1000m"), ("memory", "2000")], &[("cpu", "2000m"), ("memory", "3000")]];
    const CPU: Asked = &[&[("cpu", "1000m")], &[("cpu", "2000m")]];
    const WITH_GPU: Asked = &[
        &[("cpu", "1000m"), ("memory", "2000")],
        &[("cpu", "2000m"), ("memory", "3000"), ("nvidia.com/gpu", "3")],
    ];
    const TEN: &[(&str, &str)] = &[("cpu", "10"), ("memory", "20000")];
    const TEN_MORE: &[(&str, &str)] = &[("cpu", "10"), ("memory", "50000")];
    const THREE_CPU: &[(&str, &str)] = &[("cpu", "3"), ("memory", "5000")];
    const SIX_CPU: &[(&str, &str)] = &[("cpu", "6"), ("memory", "10000")];
    const GPUS: &[(&str, &str)] = &[("cpu", "3500m"), ("memory", "40000"), ("nvidia.com/gpu", "8")];
    const NO_GPUS: &[(&str, &str)] = &[("cpu", "3500m"), ("memory", "40000")];
    let rows: &[Row] = &[
        ("nothing", &[], &[(TEN, &[]), (TEN, &[])], BOTH, &[0, 0]),
        (
            "different sizes",
            ASKED,
            &[(&[("cpu", "4"), ("memory", "10000")], &[]), (SIX_CPU, &[])],
            BOTH,
            &[68, 75],
        ),
        ("used", ASKED, &[(TEN, &[CPU]), (TEN, &[ASKED])], BOTH, &[73, 74]),
        ("used, and different sizes", ASKED, &[(TEN, &[CPU]), (TEN_MORE, &[ASKED])], BOTH, &[73, 70]),
        (
            "from one end to the other",
            &[&[("memory", "2000")], &[("memory", "3000")]],
            &[(THREE_CPU, &[CPU]), (THREE_CPU, &[])],
            BOTH,
            &[100, 50],
        ),
        ("full", CPU, &[(SIX_CPU, &[CPU]), (SIX_CPU, &[ASKED])], BOTH, &[62, 62]),
        (
            "a third resource",
            &[&[("cpu", "0"), ("memory", "0"), ("nvidia.com/gpu", "1")]],
            &[(GPUS, &[WITH_GPU]), (GPUS, &[ASKED])],
            GPU,
            &[75, 76],
        ),
        ("a third that is not asked for", ASKED, &[(GPUS, &[]), (NO_GPUS, &[])], GPU, &[56, 56]),
    ];
    for (name, asked, nodes, resources, expected) in rows {
        let (pod, shares) = (pod("", asked), shares(resources));
        assert_eq!(scored(nodes, |node| evenness(&shares, &pod, node)), *expected, "{name}");
    }
}
