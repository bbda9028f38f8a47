//! kube-rs: a watch instead of a list, a store that follows, and server-side apply.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt;
use serde_json::json;
use trine_tests::api::Api;
use trine_typed::k8s_openapi::api::core::v1::ConfigMap;
use trine_typed::kube;
use trine_typed::kube::api::{ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use trine_typed::kube::runtime::{WatchStreamExt, reflector, watcher};

const DEADLINE: Duration = Duration::from_secs(20);

fn applied(name: &str, data: &serde_json::Value) -> Patch<serde_json::Value> {
    Patch::Apply(
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"kube": "rs"}}, "data": data}),
    )
}

#[test]
fn kube_rs_streams_its_lists_and_applies() {
    let api = Api::start();
    let client = api.client();
    api.run(async {
        let maps: kube::Api<ConfigMap> = kube::Api::namespaced(client, "default");
        let as_one = PatchParams::apply("one");
        maps.patch("before", &as_one, &applied("before", &json!({"n": "1"}))).await.unwrap();

        // The store is filled by a watch that begins with what there is, and follows.
        let (reader, writer) = reflector::store();
        let config = watcher::Config::default().labels("kube=rs").streaming_lists();
        let events =
            reflector::reflector(writer, watcher(maps.clone(), config)).default_backoff().applied_objects();
        let following = tokio::spawn(events.for_each(|event| async {
            event.expect("the watch goes on");
        }));
        tokio::time::timeout(DEADLINE, reader.wait_until_ready()).await.expect("in time").expect("filled");
        let state = || -> BTreeMap<String, BTreeMap<String, String>> {
            let one = |m: &std::sync::Arc<ConfigMap>| {
                (m.metadata.name.clone().unwrap_or_default(), m.data.clone().unwrap_or_default())
            };
            reader.state().iter().map(one).collect()
        };
        let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
        };
        assert_eq!(state(), BTreeMap::from([("before".to_owned(), map(&[("n", "1")]))]));

        // Two managers, a conflict, force; what nobody wants any more goes.
        let as_two = PatchParams::apply("two");
        let refused =
            maps.patch("before", &as_two, &applied("before", &json!({"n": "2"}))).await.unwrap_err();
        let kube::Error::Api(status) = refused else { panic!("{refused}") };
        assert_eq!((status.code, status.reason.as_str()), (409, "Conflict"));
        assert!(status.message.contains(r#"conflict with "one""#), "{}", status.message);
        maps.patch("before", &as_two.clone().force(), &applied("before", &json!({"n": "2", "m": "3"})))
            .await
            .unwrap();
        maps.patch("before", &as_two, &applied("before", &json!({"n": "2"}))).await.unwrap();
        maps.patch("after", &as_one, &applied("after", &json!({}))).await.unwrap();
        let wanted =
            BTreeMap::from([("before".to_owned(), map(&[("n", "2")])), ("after".to_owned(), map(&[]))]);
        let settled = async {
            while state() != wanted {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(DEADLINE, settled).await.unwrap_or_else(|_| panic!("{:?}", state()));
        maps.delete("before", &kube::api::DeleteParams::default()).await.unwrap();
        let settled = async {
            while state().contains_key("before") {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(DEADLINE, settled).await.unwrap_or_else(|_| panic!("{:?}", state()));
        following.abort();

        // A plain watch from a list's moment on, and one from a moment that is to come.
        let list = maps.list(&ListParams::default().labels("kube=rs")).await.unwrap();
        let version = list.metadata.resource_version.unwrap();
        let mut watch =
            maps.watch(&WatchParams::default().labels("kube=rs"), &version).await.unwrap().boxed();
        maps.delete("after", &kube::api::DeleteParams::default()).await.unwrap();
        let event = tokio::time::timeout(DEADLINE, watch.next()).await.unwrap().unwrap().unwrap();
        assert!(
            matches!(&event, WatchEvent::Deleted(m) if m.metadata.name.as_deref() == Some("after")),
            "{event:?}"
        );
    });
}
