use super::*;
use crate::model::EndpointSpec;

const SLICE: [u8; 3] = [10, 244, 0];

fn plan() -> Plan {
    Plan::new("n1", "10.244.0.0/24".parse().unwrap(), "10.96.0.0/16".parse().unwrap())
}

fn service(vip: u8, node_port: Option<u16>) -> ServiceSpec {
    ServiceSpec {
        ports: vec![ServicePort { name: String::new(), proto: Proto::Tcp, port: 80, node_port }],
        cluster_ips: vec![[10, 96, 0, vip].into()],
        ..ServiceSpec::default()
    }
}

fn slice(lasts: &[u8], node: &str) -> SliceSpec {
    let endpoint = |last: &u8| EndpointSpec {
        address: [SLICE[0], SLICE[1], SLICE[2], *last].into(),
        ready: true,
        serving: true,
        terminating: false,
        node: Some(node.into()),
        pod: None,
    };
    SliceSpec {
        service: key("web"),
        ports: vec![(String::new(), Proto::Tcp, 8080)],
        endpoints: lasts.iter().map(endpoint).collect(),
    }
}

fn key(name: &str) -> ServiceKey {
    ServiceKey::new("default", name)
}

fn front(vip: u8) -> Front {
    Front { address: Some([10, 96, 0, vip].into()), proto: Proto::Tcp, port: 80 }
}

fn port(number: u16) -> Front {
    Front { address: None, proto: Proto::Tcp, port: number }
}

fn at(last: u8) -> Value {
    Value::Endpoint([SLICE[0], SLICE[1], SLICE[2], last].into(), 8080)
}

fn target(list: u32, count: u32) -> u32 {
    (list << COUNT_BITS) | count
}

fn vip(vip: u8) -> Key {
    Key::Front(From::Anywhere, front(vip))
}

#[test]
fn a_change_is_a_change_of_elements() {
    let mut plan = plan();
    let spec = service(1, None);
    plan.set(&key("web"), Some((&spec, vec![&slice(&[1, 2], "n2")])));
    let two = target(1, 2);
    assert_eq!(
        plan.take_actions(),
        [
            Action::AddCount(2),
            Action::Add(vip(1), Value::Target(two)),
            Action::Add(Key::Endpoint(two, 0), at(1)),
            Action::Add(Key::Endpoint(two, 1), at(2)),
        ]
    );
    plan.set(&key("web"), Some((&spec, vec![&slice(&[1, 3], "n2")])));
    let swapped = [Action::Remove(Key::Endpoint(two, 1), at(2)), Action::Add(Key::Endpoint(two, 1), at(3))];
    assert_eq!(plan.take_actions(), swapped, "one endpoint for another: one element");
    plan.set(&key("web"), Some((&spec, vec![&slice(&[1, 3], "n2")])));
    assert_eq!(plan.take_actions(), [], "nothing changed");
    plan.set(&key("web"), None);
    assert_eq!(
        plan.take_actions(),
        [
            Action::Remove(vip(1), Value::Target(two)),
            Action::Remove(Key::Endpoint(two, 0), at(1)),
            Action::Remove(Key::Endpoint(two, 1), at(3)),
        ]
    );
    assert_eq!(plan.everything(), [Action::AddCount(2)]);
}

#[test]
fn what_two_services_claim_is_the_firsts_until_it_goes() {
    let mut plan = plan();
    let both = service(1, Some(30_000));
    plan.set(&key("old"), Some((&both, vec![&slice(&[1], "n2")])));
    plan.take_actions();
    plan.set(
        &key("new"),
        Some((
            &ServiceSpec { cluster_ips: vec![[10, 96, 0, 2].into()], ..both.clone() },
            vec![&slice(&[2], "n2")],
        )),
    );
    let claimed = Key::Front(From::Anywhere, port(30_000));
    assert!(
        plan.take_actions().iter().all(|action| !matches!(action, Action::Add(key, _) if *key == claimed))
    );
    plan.set(&key("old"), None);
    let actions = plan.take_actions();
    assert!(actions.contains(&Action::Remove(claimed, Value::Target(target(1, 1)))));
    assert!(actions.contains(&Action::Add(claimed, Value::Target(target(2, 1)))));
}

#[test]
fn a_list_number_is_used_again_only_with_consistent_elements() {
    let mut plan = plan();
    plan.set(&key("one"), Some((&service(1, None), vec![&slice(&[1], "n2")])));
    plan.take_actions();
    plan.set(&key("one"), None);
    plan.set(&key("two"), Some((&service(2, None), vec![&slice(&[9], "n2")])));
    let list = target(1, 1);
    assert_eq!(
        plan.take_actions(),
        [
            Action::Remove(vip(1), Value::Target(list)),
            Action::Remove(Key::Endpoint(list, 0), at(1)),
            Action::Add(vip(2), Value::Target(list)),
            Action::Add(Key::Endpoint(list, 0), at(9)),
        ]
    );
}

#[test]
fn policies_decide_which_list_or_refusal_a_front_leads_to() {
    let here = slice(&[1], "n1");
    let there = slice(&[2], "n2");
    let none = slice(&[], "n1");
    let (all, local) = (Value::Target(target(1, 2)), Value::Target(target(2, 1)));
    let one = Value::Target(target(1, 1));
    let (any, out) = (From::Anywhere, From::Outside);
    let fronts = |action: &Action| match action {
        Action::Add(key @ (Key::Front(..) | Key::Refuse(..)), value) => Some((*key, *value)),
        _ => None,
    };
    type Row<'a> = (&'a str, bool, bool, Vec<&'a SliceSpec>, Vec<(Key, Value)>);
    let node = port(30_000);
    let vip = front(1);
    let rows: [Row<'_>; 5] = [
        (
            "cluster",
            false,
            false,
            vec![&here, &there],
            vec![(Key::Front(any, vip), all), (Key::Front(any, node), all)],
        ),
        (
            "external local",
            true,
            false,
            vec![&here, &there],
            vec![(Key::Front(any, vip), all), (Key::Front(any, node), all), (Key::Front(out, node), local)],
        ),
        (
            "internal local",
            false,
            true,
            vec![&here, &there],
            vec![(Key::Front(any, vip), local), (Key::Front(any, node), all)],
        ),
        (
            "both local, none here",
            true,
            true,
            vec![&there],
            vec![
                (Key::Front(any, node), one),
                (Key::Refuse(any, vip), Value::Drop),
                (Key::Refuse(out, node), Value::Drop),
            ],
        ),
        ("no endpoints at all", true, false, vec![&none], vec![(Key::Refuse(any, node), Value::Reject)]),
    ];
    for (name, external_local, internal_local, slices, mut wanted) in rows {
        let mut plan = plan();
        let spec = ServiceSpec { external_local, internal_local, ..service(1, Some(30_000)) };
        plan.set(&key("web"), Some((&spec, slices)));
        let mut found: Vec<_> = plan.take_actions().iter().filter_map(fronts).collect();
        found.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(found, wanted, "{name}");
    }
}
