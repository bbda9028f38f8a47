use serde_json::{Value, json};

use super::*;

fn pod(more: Value) -> Pod {
    let mut pod = json!({"metadata": {"name": "p", "uid": "1", "namespace": "d"},
        "spec": {"containers": [], "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]}});
    json_patch::merge(&mut pod, &more);
    serde_json::from_value(pod).unwrap()
}

fn claim(more: Value) -> Arc<ResourceClaim> {
    let mut claim = json!({"metadata": {"name": "p-gpu-x", "namespace": "d", "annotations": {POD_CLAIM: "gpu"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1", "controller": true}]},
        "spec": {}});
    json_patch::merge(&mut claim, &more);
    Arc::new(serde_json::from_value(claim).unwrap())
}

fn template(name: &str) -> Option<Arc<ResourceClaimTemplate>> {
    let template = json!({"metadata": {"name": "one-gpu"}, "spec": {
        "metadata": {"labels": {"team": "a"}, "annotations": {"note": "n"}},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}}});
    (name == "one-gpu").then(|| Arc::new(serde_json::from_value(template).unwrap()))
}

fn says(name: Value) -> Value {
    json!({"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": name}]}})
}

#[test]
fn a_claim_is_made_of_its_template_once() {
    let plan = of_pod(&pod(json!({})), &[], template);
    let [(of, made)] = plan.make.as_slice() else { panic!("{plan:?}") };
    assert_eq!(of, "gpu");
    let expected = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"generateName": "p-gpu-", "namespace": "d", "labels": {"team": "a"},
            "annotations": {"note": "n", POD_CLAIM: "gpu"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1", "controller": true}]},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}});
    assert_eq!(serde_json::to_value(made).unwrap(), expected);

    let names = |name: &str| Some(BTreeMap::from([("gpu".to_owned(), name.to_owned())]));
    let other = json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "2",
        "controller": true}]}});
    let rows = [
        ("made, and not yet said", pod(json!({})), vec![claim(json!({}))], 0, names("p-gpu-x")),
        ("made and said", pod(says(json!("p-gpu-x"))), vec![claim(json!({}))], 0, None),
        ("said, and gone", pod(says(json!("p-gpu-x"))), vec![], 1, None),
        ("said, and another is there", pod(says(json!("old"))), vec![claim(json!({}))], 0, names("p-gpu-x")),
        ("not needed", pod(says(Value::Null)), vec![], 0, None),
        ("another Pod's of that name", pod(json!({})), vec![claim(other)], 1, None),
        (
            "on its way out",
            pod(json!({})),
            vec![claim(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}))],
            1,
            None,
        ),
        (
            "a Pod that goes",
            pod(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})),
            vec![],
            0,
            None,
        ),
        ("a Pod at its end", pod(json!({"status": {"phase": "Succeeded"}})), vec![], 0, None),
    ];
    for (name, pod, claims, makes, said) in rows {
        let plan = of_pod(&pod, &claims, template);
        assert_eq!((plan.make.len(), plan.names), (makes, said), "{name}");
    }
}

#[test]
fn a_template_that_is_not_there_is_said() {
    let wants =
        pod(json!({"spec": {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "none"}]}}));
    let (of, why) = of_pod(&wants, &[], template).failed.unwrap();
    assert_eq!(of, "gpu");
    assert!(why.starts_with("resource claim template \"none\":"), "{why}");
}

#[test]
fn a_long_name_is_cut_on_both_sides() {
    let long = |letter: &str| letter.repeat(60);
    assert_eq!(base("pod", "gpu"), "pod-gpu-");
    let cut = base(&long("a"), "gpu");
    assert!(cut.len() <= LONGEST_BASE && cut.contains("-gp"), "{cut}");
    let both = base(&long("a"), &long("b"));
    assert!(both.len() <= LONGEST_BASE && both.contains("aa-bb"), "{both}");
}

#[test]
fn a_pod_whose_node_was_chosen_by_hand_becomes_a_user() {
    let on = |more: Value| {
        let mut pod = json!({"spec": {"nodeName": "n"}});
        json_patch::merge(&mut pod, &says(json!("p-gpu-x")));
        json_patch::merge(&mut pod, &more);
        self::pod(pod)
    };
    let allocated = json!({"status": {"allocation": {}}});
    let used =
        json!({"status": {"allocation": {}, "reservedFor": [{"resource": "pods", "name": "p", "uid": "1"}]}});
    let rows = [
        ("with devices", on(json!({})), allocated.clone(), 1),
        ("without devices", on(json!({})), json!({}), 0),
        ("a user already", on(json!({})), used, 0),
        ("the scheduler's", pod(says(json!("p-gpu-x"))), allocated, 0),
    ];
    for (name, pod, more, reserves) in rows {
        assert_eq!(of_pod(&pod, &[claim(more)], template).reserve.len(), reserves, "{name}");
    }
}

#[test]
fn who_is_gone_is_no_user_and_a_claim_without_users_gives_its_devices_back() {
    let user = |name: &str| json!({"resource": "pods", "name": name, "uid": format!("{name}-uid")});
    let with = |users: Value, more: Value| {
        let mut claim = json!({"metadata": {"finalizers": [FINALIZER], "ownerReferences": null},
            "status": {"allocation": {}, "reservedFor": users}});
        json_patch::merge(&mut claim, &more);
        self::claim(claim)
    };
    let state = |name: &str, _: &str| match name {
        "there" => User::There,
        "new" => User::Unknown,
        _ => User::Gone,
    };
    let foreign = json!({"apiGroup": "x.io", "resource": "things", "name": "t", "uid": "t"});
    let going = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    // Users that are kept if some go, whether devices are given back, whether it is let go.
    let rows = [
        ("in use", with(json!([user("there"), user("new")]), json!({})), None, false, false),
        ("one has gone", with(json!([user("there"), user("gone")]), json!({})), Some(1), false, false),
        ("all have gone", with(json!([user("gone")]), json!({})), Some(0), true, true),
        ("nobody's, kept by its driver", with(json!([]), json!({})), None, false, false),
        ("nobody's, on its way out", with(json!([]), going.clone()), None, true, true),
        ("in use, on its way out", with(json!([user("there")]), going), None, false, false),
        ("somebody else's", with(json!([foreign, user("gone")]), json!({})), Some(1), false, false),
        (
            "without its finalizer",
            with(json!([user("gone")]), json!({"metadata": {"finalizers": null}})),
            Some(0),
            false,
            false,
        ),
    ];
    for (name, claim, users, give_back, let_go) in rows {
        let plan = of_claim(&claim, state);
        assert_eq!(
            (plan.users.map(|u| u.len()), plan.give_back, plan.let_go),
            (users, give_back, let_go),
            "{name}"
        );
        assert!(!plan.remove, "{name}");
    }
}

#[test]
fn a_claim_that_was_made_for_a_pod_goes_with_its_end() {
    let rows = [(User::There, false), (User::Unknown, false), (User::Gone, true)];
    for (state, goes) in rows {
        assert_eq!(of_claim(&claim(json!({})), |_, _| state).remove, goes, "{state:?}");
    }
    let by_hand = claim(json!({"metadata": {"ownerReferences": null}}));
    assert!(!of_claim(&by_hand, |_, _| User::Gone).remove);
    let finished = pod(json!({"status": {"phase": "Failed"}}));
    let bound =
        pod(json!({"spec": {"nodeName": "n"}, "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    let rows = [(&pod(json!({})), User::There), (&finished, User::Gone), (&bound, User::There)];
    for (pod, expected) in rows {
        assert_eq!(known(Some(pod), "1"), expected);
        assert_eq!(known(Some(pod), "2"), User::Gone, "another of that name");
    }
}
