//! client-go's informer over protobuf, which begins with a watch instead of a list.

use std::collections::BTreeMap;

use futures::StreamExt;
use trine_tests::api::Api;
use trine_tests::go;
use trine_typed::k8s_openapi::api::core::v1::ConfigMap;
use trine_typed::kube::api::{Patch, PatchParams, PostParams};
use trine_typed::kube::{self, core::ObjectMeta};

use crate::talking::Talking;

/// More changes than the server remembers of a kind.
const FORGETS: usize = 4200;
/// Writes at a time.
const AT_A_TIME: usize = 64;

fn map(name: &str, n: usize) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(BTreeMap::from([("followed".to_owned(), String::new())])),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([("n".to_owned(), n.to_string())])),
        ..ConfigMap::default()
    }
}

#[test]
fn an_informer_of_client_go_follows_and_begins_anew_when_the_past_is_forgotten() {
    const TEST: &str = "an_informer_of_client_go_follows_and_begins_anew_when_the_past_is_forgotten";
    let Some(program) = go::build(TEST, "tests/clients/go", "./informer", "informer") else { return };
    let api = Api::start();
    let maps: kube::Api<ConfigMap> = kube::Api::namespaced(api.client(), "default");
    let create = |name: &str| api.run(maps.create(&PostParams::default(), &map(name, 0))).unwrap();
    let change = async |name: String, n: usize| {
        let patch = serde_json::json!({"data": {"n": n.to_string()}});
        maps.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    };
    create("first");
    let kubeconfig = api.kubeconfig().display().to_string();
    let mut informer = Talking::start(&program, &[&kubeconfig, "default"]);
    let begun = informer.hear("synced 1");
    let asked =
        "asked watch=true sendInitialEvents=true: 200 application/vnd.kubernetes.protobuf;stream=watch";
    assert!(begun.iter().any(|l| l == asked) && begun.iter().any(|l| l == "added first 0"), "{begun:#?}");
    assert!(!begun.iter().any(|l| l.starts_with("asked watch= ")), "it listed: {begun:#?}");

    create("second");
    informer.hear("added second 0");
    api.run(change("second".to_owned(), 1));
    informer.hear("changed second 1");
    api.run(maps.delete("second", &Default::default())).unwrap();
    informer.hear("deleted second 1");

    create("doomed");
    informer.hear("added doomed 0");
    informer.say("cut");
    api.run(maps.delete("doomed", &Default::default())).unwrap();
    for name in (0..AT_A_TIME).map(|n| format!("busy-{n}")) {
        create(&name);
    }
    let changes = (0..FORGETS).map(|n| change(format!("busy-{}", n % AT_A_TIME), n));
    api.run(futures::stream::iter(changes).buffer_unordered(AT_A_TIME).collect::<Vec<()>>());
    informer.say("join");
    let again = informer.hear(asked);
    assert!(
        again.iter().any(|l| l.contains("sendInitialEvents=:")),
        "it went on, and was told 410: {again:#?}"
    );
    let rest = informer.hear("deleted doomed 0");
    let added = |lines: &[String]| lines.iter().filter(|l| l.starts_with("added busy-")).count();
    let mut all = rest.clone();
    while added(&all) < AT_A_TIME {
        all.extend(informer.hear("added busy-"));
    }
    informer.say("list");
    informer.hear(&format!("has {}", AT_A_TIME + 1));
}
