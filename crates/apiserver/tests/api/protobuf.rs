//! Protobuf bodies, answers and watches; what cannot be had in it.

use crate::server::*;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use trine_objects::protobuf;

/// What client-go asks for.
const BOTH: &str = "application/vnd.kubernetes.protobuf,application/json";

async fn send(api: &Api, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
    let bytes = body.map(|b| protobuf::encode(b).unwrap()).unwrap_or_default();
    let headers = [("accept", BOTH), ("content-type", protobuf::MEDIA_TYPE)];
    let response = api.send(method, path, &headers, bytes).await;
    let code = response.status().as_u16();
    assert_eq!(response.headers()["content-type"], protobuf::MEDIA_TYPE, "{method} {path}");
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, protobuf::decode(&bytes).unwrap())
}

#[tokio::test]
async fn an_object_lives_its_life_in_protobuf() {
    let api = Api::start().await;
    let (code, made) = send(&api, "POST", CONFIG_MAPS, Some(&config_map("a", "1"))).await;
    assert_eq!((code, &made["data"]["key"]), (201, &"1".into()));
    let path = format!("{CONFIG_MAPS}/a");
    assert_eq!(api.get(&path).await, made, "the same as in JSON");
    let mut changed = made.clone();
    changed["data"]["key"] = "2".into();
    let (code, written) = send(&api, "PUT", &path, Some(&changed)).await;
    assert_eq!((code, &written["data"]["key"]), (200, &"2".into()));
    let (_, list) = send(&api, "GET", CONFIG_MAPS, None).await;
    assert_eq!(list["kind"], "ConfigMapList");
    assert_eq!(list["items"][0]["metadata"]["name"], "a");
    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": "other"}});
    let (code, refused) = send(&api, "DELETE", &path, Some(&options)).await;
    assert_eq!((code, &refused["kind"], &refused["reason"]), (409, &"Status".into(), &"Conflict".into()));
    let options =
        json!({"apiVersion": "meta.k8s.io/v1", "kind": "DeleteOptions", "propagationPolicy": "Background"});
    let (code, gone) = send(&api, "DELETE", &path, Some(&options)).await;
    assert_eq!((code, &gone["status"]), (200, &"Success".into()));
    let (code, missing) = send(&api, "GET", &path, None).await;
    assert_eq!((code, &missing["details"]["name"]), (404, &"a".into()));
}

#[tokio::test]
async fn subresources_take_protobuf() {
    let api = Api::start().await;
    let (code, _) = send(&api, "POST", PODS, Some(&pod("p"))).await;
    assert_eq!(code, 201);
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"},
        "target": {"kind": "Node", "name": "n1"}});
    let (code, bound) = send(&api, "POST", &format!("{PODS}/p/binding"), Some(&binding)).await;
    assert_eq!((code, &bound["status"]), (201, &"Success".into()));
    let mut shown = api.get(&format!("{PODS}/p")).await;
    assert_eq!(shown["spec"]["nodeName"], "n1");
    shown["status"]["podIP"] = "10.0.0.9".into();
    let (code, written) = send(&api, "PUT", &format!("{PODS}/p/status"), Some(&shown)).await;
    assert_eq!((code, &written["status"]["podIP"]), (200, &"10.0.0.9".into()));
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"},
        "deleteOptions": {"gracePeriodSeconds": 0}});
    let (code, _) = send(&api, "POST", &format!("{PODS}/p/eviction"), Some(&eviction)).await;
    assert_eq!(code, 201);
}

#[tokio::test]
async fn metadata_alone_comes_in_protobuf_too() {
    let api = Api::start().await;
    api.make(PODS, pod("p")).await;
    let accept = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let response = api.send("GET", PODS, &[("accept", accept)], "").await;
    let list = protobuf::decode(&response.into_body().collect().await.unwrap().to_bytes()).unwrap();
    assert_eq!(
        (&list["kind"], &list["items"][0]["metadata"]["name"]),
        (&"PartialObjectMetadataList".into(), &"p".into())
    );
    let table = "application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1";
    let (code, refused) = read(api.send("GET", PODS, &[("accept", table)], "").await).await;
    assert_eq!((code, &refused["reason"]), (406, &"NotAcceptable".into()));
}

/// The events of a watch in protobuf.
async fn events(response: axum::response::Response) -> Vec<(String, Value)> {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let mut rest = &bytes[..];
    let mut events = Vec::new();
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let (frame, after) = after.split_at(u32::from_be_bytes(*length) as usize);
        // {1: the word, 2: {1: the object}}; each of the words is shorter than 128 bytes.
        let word = String::from_utf8_lossy(&frame[2..2 + usize::from(frame[1])]).into_owned();
        let at = frame.windows(4).position(|w| w == protobuf::MAGIC).unwrap();
        events.push((word, protobuf::decode(&frame[at..]).unwrap()));
        rest = after;
    }
    events
}

#[tokio::test]
async fn a_watch_that_cannot_begin_says_so_in_a_frame_to_those_who_take_nothing_else() {
    let api = Api::start().await;
    let initial = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion=999999&{initial}");
    let response = api.send("GET", &path, &[("accept", protobuf::MEDIA_TYPE)], "").await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "application/vnd.kubernetes.protobuf;stream=watch");
    let events = events(response).await;
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!((events[0].0.as_str(), &events[0].1["code"]), ("ERROR", &504.into()));
}

#[tokio::test]
async fn a_watch_in_protobuf_is_frames_of_events() {
    let api = Api::start().await;
    api.make(CONFIG_MAPS, config_map("a", "1")).await;
    let path = format!("{CONFIG_MAPS}?watch=1&allowWatchBookmarks=true&timeoutSeconds=1");
    let response = api.send("GET", &path, &[("accept", BOTH)], "").await;
    assert_eq!(response.headers()["content-type"], "application/vnd.kubernetes.protobuf;stream=watch");
    let named = |(word, object): (String, Value)| (word, text(&object["metadata"]["name"]));
    let words: Vec<_> = events(response).await.into_iter().map(named).collect();
    assert_eq!(words[0], ("ADDED".to_owned(), "a".to_owned()));
    assert!(
        words.len() > 1 && words[1..].iter().all(|w| *w == ("BOOKMARK".to_owned(), String::new())),
        "{words:?}"
    );
}

#[tokio::test]
async fn what_nobody_can_have_is_refused_in_upstreams_words() {
    let api = Api::start().await;
    for media in ["application/cbor", "text/plain", "application/x-protobuf"] {
        let (code, refused) = api.typed("POST", CONFIG_MAPS, media, config_map("a", "1")).await;
        assert_eq!((code, &refused["reason"]), (415, &"UnsupportedMediaType".into()), "{media}");
        let said = text(&refused["message"]);
        assert!(
            said.ends_with("application/json, application/yaml, application/vnd.kubernetes.protobuf"),
            "{said}"
        );
    }
    for accept in ["application/cbor", "text/html", "application/json;as=Widget;g=x;v=v1"] {
        let response =
            api.send("POST", CONFIG_MAPS, &[("accept", accept)], config_map("a", "1").to_string()).await;
        let (code, refused) = read(response).await;
        assert_eq!((code, &refused["reason"]), (406, &"NotAcceptable".into()), "{accept}");
    }
    let (code, _) = api.call("GET", &format!("{CONFIG_MAPS}/a"), Value::Null).await;
    assert_eq!(code, 404, "nothing was made for a client that could not be told");
    for (body, wanted) in [
        (&b"{\"kind\":\"ConfigMap\"}"[..], "provided data does not appear to be a protobuf message"),
        (b"", "empty data"),
        (b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\xff\x01", "unexpected EOF"),
    ] {
        let response = api.send("POST", CONFIG_MAPS, &[("content-type", protobuf::MEDIA_TYPE)], body).await;
        let (code, refused) = read(response).await;
        assert_eq!(code, 400, "{refused}");
        assert!(text(&refused["message"]).contains(wanted), "{refused}");
    }
}

#[tokio::test]
async fn yaml_is_read_strictly_and_written_on_demand() {
    let api = Api::start().await;
    let twice = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: it}\ndata: {key: a, key: b}\nextra: 1\n";
    let yaml = [("content-type", "application/yaml"), ("accept", "application/yaml")];
    let path = format!("{CONFIG_MAPS}?fieldValidation=Strict");
    let response = api.send("POST", &path, &yaml, twice).await;
    assert_eq!(response.status(), 400);
    let said = String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap();
    assert!(
        said.contains("duplicate field") && said.contains("data.key") && said.contains("extra"),
        "{said}"
    );
    let response = api.send("POST", CONFIG_MAPS, &yaml, twice).await;
    assert_eq!(response.status(), 201);
    assert_eq!(response.headers().get_all("warning").iter().count(), 2);
    let said = String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap();
    assert!(said.contains("kind: ConfigMap\n") && said.contains("  key: b\n"), "{said}");
}

#[tokio::test]
async fn a_long_list_is_compressed_on_demand() {
    let api = Api::start().await;
    api.make(CONFIG_MAPS, config_map("a", &"x".repeat(200_000))).await;
    let response = api.send("GET", CONFIG_MAPS, &[("accept-encoding", "gzip")], "").await;
    assert_eq!(response.headers()["content-encoding"], "gzip");
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert!(body.starts_with(&[0x1f, 0x8b]) && body.len() < 10_000, "{} bytes", body.len());
    // Request bodies are not unpacked, as upstream: the bytes are no JSON.
    let headers = [("content-type", "application/json"), ("content-encoding", "gzip")];
    let (code, _) = read(api.send("POST", CONFIG_MAPS, &headers, body).await).await;
    assert_eq!(code, 400);
}
