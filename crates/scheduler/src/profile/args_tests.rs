use serde_json::json;

use super::*;

fn read(name: &str, args: Value) -> Result<Args, Vec<String>> {
    let config = serde_json::from_value(json!({"name": name, "args": args})).unwrap();
    Args::of(&[config], "profiles[0].pluginConfig")
}

#[test]
fn what_is_not_said_is_as_upstream_has_it() {
    let names = [
        "NodeResourcesFit",
        "NodeResourcesBalancedAllocation",
        "NodeAffinity",
        "PodTopologySpread",
        "InterPodAffinity",
        "DefaultPreemption",
        "VolumeBinding",
        "DynamicResources",
    ];
    for name in names {
        let said = json!({"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": format!("{name}Args")});
        assert_eq!(read(name, said), Ok(Args::default()), "{name}");
        assert_eq!(read(name, Value::Null), Ok(Args::default()), "{name}");
    }
}

#[test]
fn each_plugin_is_set_by_its_args() {
    let constraint = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"});
    let affinity = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms":
        [{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["fast"]}]}]}});
    let ratio = json!({"scoringStrategy": {"type": "RequestedToCapacityRatio",
        "resources": [{"name": "cpu", "weight": 5}, {"name": "x.io/gpu"}],
        "requestedToCapacityRatio": {"shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]}}});
    type Row = (&'static str, Value, fn(&Args) -> bool);
    let rows: [Row; 10] = [
        ("DynamicResources", json!({"filterTimeout": "5s", "bindingTimeout": "1m30s"}), |a| {
            a.devices_timeout == Duration::from_secs(90)
        }),
        ("NodeResourcesFit", ratio, |a| {
            a.strategy == Strategy::RequestedToCapacityRatio(vec![(0, 0), (100, 100)])
                && a.shares == [Share::of("cpu", 5), Share::of("x.io/gpu", 1)]
        }),
        ("NodeResourcesFit", json!({"scoringStrategy": {"type": "MostAllocated"}}), |a| {
            a.strategy == Strategy::MostAllocated && a.shares == Args::default().shares
        }),
        (
            "NodeResourcesFit",
            json!({"ignoredResources": ["x.io/a"], "ignoredResourceGroups": ["y.io"]}),
            |a| a.ignored.names == ["x.io/a"] && a.ignored.groups == ["y.io"],
        ),
        ("NodeResourcesBalancedAllocation", json!({"resources": [{"name": "x.io/gpu"}]}), |a| {
            a.balanced == [Share::of("x.io/gpu", 1)]
        }),
        ("NodeAffinity", json!({"addedAffinity": affinity}), |a| a.added_affinity.is_some()),
        ("PodTopologySpread", json!({"defaultConstraints": [constraint], "defaultingType": "List"}), |a| {
            a.spread.as_ref().is_some_and(|list| list.len() == 1)
        }),
        ("PodTopologySpread", json!({"defaultingType": "List"}), |a| a.spread == Some(Vec::new())),
        (
            "InterPodAffinity",
            json!({"hardPodAffinityWeight": 0, "ignorePreferredTermsOfExistingPods": true}),
            |a| a.hard_affinity_weight == 0 && !a.heeds_existing,
        ),
        (
            "DefaultPreemption",
            json!({"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 5}),
            |a| (a.candidates_percentage, a.candidates_absolute) == (0, 5),
        ),
    ];
    for (name, args, holds) in rows {
        let read = read(name, args.clone()).unwrap();
        assert!(holds(&read), "{name} {args}: {read:?}");
    }
}

#[test]
fn what_a_plugin_cannot_be_told_is_refused_in_upstreams_words() {
    let strategy = |strategy: Value| json!({"scoringStrategy": strategy});
    let constraint = |more: Value| {
        let mut constraint =
            json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"});
        json_patch::merge(&mut constraint, &more);
        json!({"defaultConstraints": [constraint], "defaultingType": "List"})
    };
    let rows = [
        (
            "NodeResourcesFit",
            strategy(json!({"type": "Fullest"})),
            "scoringStrategy.type: Unsupported value: \"Fullest\": supported values: \"LeastAllocated\", \"MostAllocated\", \
             \"RequestedToCapacityRatio\"",
        ),
        (
            "NodeResourcesFit",
            strategy(json!({"type": "LeastAllocated", "resources": [{"name": "cpu", "weight": 101}]})),
            "scoringStrategy.resources[0].weight: Invalid value: 101: resource weight of cpu not in valid range (0, 100]",
        ),
        (
            "NodeResourcesFit",
            strategy(json!({"type": "RequestedToCapacityRatio"})),
            "scoringStrategy.requestedToCapacityRatio: Required value: must be specified when type is \
             RequestedToCapacityRatio",
        ),
        (
            "NodeResourcesFit",
            strategy(json!({"type": "RequestedToCapacityRatio", "requestedToCapacityRatio": {"shape": [
                {"utilization": 50, "score": 1}, {"utilization": 50, "score": 2}]}})),
            "scoringStrategy.requestedToCapacityRatio.shape[1].utilization: Invalid value: 50: values must be sorted in \
             increasing order",
        ),
        (
            "NodeResourcesFit",
            strategy(json!({"type": "RequestedToCapacityRatio", "requestedToCapacityRatio": {"shape": [
                {"utilization": 0, "score": 11}]}})),
            "scoringStrategy.requestedToCapacityRatio.shape[0].score: Invalid value: 11: not in valid range [0, 10]",
        ),
        (
            "NodeResourcesFit",
            json!({"ignoredResourceGroups": ["a/b"]}),
            "ignoredResourceGroups[0]: Invalid value: \"a/b\": resource group name can't contain '/'",
        ),
        (
            "NodeResourcesBalancedAllocation",
            json!({"resources": [{"name": "cpu", "weight": 2}]}),
            "resources[0].weight: Invalid value: 2: must be 1",
        ),
        (
            "InterPodAffinity",
            json!({"hardPodAffinityWeight": 120}),
            "hardPodAffinityWeight: Invalid value: 120: not in valid range [0, 100]",
        ),
        (
            "DefaultPreemption",
            json!({"minCandidateNodesPercentage": -1}),
            "minCandidateNodesPercentage: Invalid value: -1: not in valid range [0, 100]",
        ),
        (
            "PodTopologySpread",
            json!({"defaultConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]}),
            "defaultingType: Invalid value: \"System\": when .defaultConstraints are not empty",
        ),
        (
            "PodTopologySpread",
            constraint(json!({"maxSkew": 0})),
            "defaultConstraints[0].maxSkew: Invalid value: 0: not in valid range (0, inf)",
        ),
        (
            "PodTopologySpread",
            constraint(json!({"labelSelector": {}})),
            "defaultConstraints[0].labelSelector: Forbidden: constraint must not define a selector, as they deduced for \
             each pod",
        ),
    ];
    for (name, args, expected) in rows {
        let expected = format!("profiles[0].pluginConfig[0].args.{expected}");
        assert_eq!(read(name, args.clone()), Err(vec![expected]), "{name} {args}");
    }
    let both =
        read("DefaultPreemption", json!({"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 0}));
    assert_eq!(both.map_err(|wrong| wrong.len()), Err(2));
    for args in [json!({"kind": "NodeAffinityArgs"}), json!({"weight": 1})] {
        let refused = read("InterPodAffinity", args.clone()).unwrap_err();
        assert!(refused[0].contains("decoding args for plugin InterPodAffinity"), "{args}: {refused:?}");
    }
}
