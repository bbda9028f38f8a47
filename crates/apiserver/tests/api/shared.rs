//! Several servers on one etcd.

use crate::server::*;
use serde_json::{Value, json};
use std::collections::BTreeSet;

#[allow(dead_code)]
#[path = "../../../store/tests/contract/backends.rs"]
mod backends;

async fn two(test: &str) -> Option<(Api, Api, backends::Etcd)> {
    let etcd = backends::Etcd::start(test)?;
    let (one, two) = tokio::join!(Api::on(etcd.store().await), Api::on(etcd.store().await));
    Some((one, two, etcd))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_server_answered_the_other_shows_at_once() {
    let Some((one, two, _etcd)) = two("shared::what_one_server_answered_the_other_shows_at_once").await
    else {
        return;
    };
    let mut watch = two.watch(&format!("{CONFIG_MAPS}?watch=1")).await;
    for i in 0..10 {
        let name = format!("m{i}");
        let made = one.make(CONFIG_MAPS, config_map(&name, "1")).await;
        let seen = two.get(&format!("{CONFIG_MAPS}/{name}")).await;
        assert_eq!(revision(&seen), revision(&made));
        assert_eq!(watch.seen().await, ("ADDED".to_owned(), name.clone()));
        let (code, _) = two.patch(&format!("{CONFIG_MAPS}/{name}"), json!({"data": {"key": "2"}})).await;
        assert_eq!(code, 200);
        watch.next().await.unwrap();
        let listed = one.get(CONFIG_MAPS).await;
        let found =
            listed["items"].as_array().unwrap().iter().find(|o| o["metadata"]["name"] == name.as_str());
        assert_eq!(found.unwrap()["data"]["key"], "2");
    }
    let namespace = json!({"metadata": {"name": "fresh"}});
    one.make("/api/v1/namespaces", namespace).await;
    two.make("/api/v1/namespaces/fresh/configmaps", config_map("a", "1")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_give_no_address_or_port_away_twice() {
    let Some((one, two, _etcd)) = two("shared::servers_give_no_address_or_port_away_twice").await else {
        return;
    };
    let path = "/api/v1/namespaces/default/services";
    let service = |name: String| json!({"metadata": {"name": name}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}});
    let made = (0..40).map(|i| {
        let api = if i % 2 == 0 { &one } else { &two };
        api.make(path, service(format!("s{i}")))
    });
    let made = futures::future::join_all(made).await;
    let addresses: BTreeSet<String> = made.iter().map(|s| text(&s["spec"]["clusterIP"])).collect();
    let ports: BTreeSet<u64> =
        made.iter().map(|s| s["spec"]["ports"][0]["nodePort"].as_u64().unwrap()).collect();
    assert_eq!((addresses.len(), ports.len()), (40, 40));
    // One that is asked for by name is refused by both while it is held, and given by both afterwards.
    let wanted = text(&made[0]["spec"]["clusterIP"]);
    let asked = |name: &str| json!({"metadata": {"name": name}, "spec": {"clusterIP": wanted, "ports": [{"port": 80}]}});
    for api in [&one, &two] {
        let (code, refused) = api.call("POST", path, asked("again")).await;
        assert!(code == 422 || code == 409, "{refused}");
    }
    one.call("DELETE", &format!("{path}/s0"), Value::Null).await;
    let mut given = (0, Value::Null);
    for _ in 0..50 {
        given = two.call("POST", path, asked("again")).await;
        if given.0 == 201 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(given.0, 201, "{}", given.1);
}
