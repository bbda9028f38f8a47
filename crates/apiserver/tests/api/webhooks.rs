//! Webhooks that decide about writes.

use crate::far::{Far, own_address, patching, reviewed};
use crate::server::*;
use serde_json::{Value, json};
use trine_apiserver::AuditConfig;

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

/// A webhook for config maps; `more` is set in it.
fn hook(name: &str, config: Value, more: &Value) -> Value {
    let mut hook = json!({"name": format!("{name}.example.org"), "clientConfig": config, "sideEffects": "None",
        "admissionReviewVersions": ["v1", "v1beta1"], "rules": [
            {"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]});
    more.as_object().unwrap().iter().for_each(|(k, v)| hook[k] = v.clone());
    hook
}

async fn configure(api: &Api, kind: &str, name: &str, hooks: &[Value]) {
    let path = format!("{GROUP}/{}webhookconfigurations", kind.to_lowercase());
    let kind = format!("{kind}WebhookConfiguration");
    api.make(
        &path,
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "webhooks": hooks}),
    )
    .await;
}

fn message(answer: &Value) -> String {
    text(&answer["message"])
}

#[tokio::test]
async fn a_validating_webhook_sees_a_write_and_refuses_it_in_its_own_words() {
    let api = Api::start().await;
    let far = Far::start(&api, |_, review| {
        let bad = review["request"]["object"]["data"]["key"] == "bad" || review["request"]["operation"] == "DELETE";
        if bad {
            reviewed(review, &json!({"allowed": false, "status": {"message": "bad data", "code": 418, "reason": "Teapot"}}))
        } else {
            reviewed(review, &json!({"allowed": true, "warnings": ["take care"]}))
        }
    })
    .await;
    configure(&api, "Validating", "v", &[hook("v", far.url("/check"), &json!({}))]).await;
    let body = config_map("good", "fine").to_string();
    let response = api.send("POST", CONFIG_MAPS, &[("content-type", "application/json")], body).await;
    assert_eq!(response.status(), 201);
    assert_eq!(response.headers()["warning"], "299 - \"take care\"");
    let asked = far.asked();
    assert_eq!(asked.len(), 1);
    let request = &asked[0]["request"];
    assert_eq!(
        (&asked[0]["kind"], &asked[0]["apiVersion"]),
        (&json!("AdmissionReview"), &json!("admission.k8s.io/v1"))
    );
    assert_eq!(request["kind"], json!({"group": "", "version": "v1", "kind": "ConfigMap"}));
    assert_eq!(request["resource"], json!({"group": "", "version": "v1", "resource": "configmaps"}));
    assert_eq!((&request["name"], &request["namespace"]), (&json!("good"), &json!("default")));
    assert_eq!((&request["operation"], &request["dryRun"]), (&json!("CREATE"), &json!(false)));
    assert_eq!(request["userInfo"]["username"], "admin");
    assert_eq!((&request["object"]["data"]["key"], &request["oldObject"]), (&json!("fine"), &Value::Null));
    assert_eq!(request["options"]["kind"], "CreateOptions");
    let (code, refused) = api.call("POST", CONFIG_MAPS, config_map("x", "bad")).await;
    assert_eq!((code, &refused["reason"]), (418, &json!("Teapot")));
    assert_eq!(message(&refused), "admission webhook \"v.example.org\" denied the request: bad data");
    let path = format!("{CONFIG_MAPS}/good");
    let (code, refused) = api.patch(&path, json!({"data": {"key": "bad"}})).await;
    assert_eq!(code, 418, "{refused}");
    far.asked();
    assert_eq!(api.call("DELETE", &path, json!({"gracePeriodSeconds": 3})).await.0, 418);
    let request = far.asked()[0]["request"].clone();
    assert_eq!((&request["oldObject"]["data"]["key"], &request["object"]), (&json!("fine"), &Value::Null));
    assert_eq!(
        (&request["options"]["kind"], &request["options"]["gracePeriodSeconds"]),
        (&json!("DeleteOptions"), &json!(3))
    );
    assert_eq!(api.call("DELETE", CONFIG_MAPS, Value::Null).await.0, 418, "one of all is refused");
    assert_eq!(far.connections(), 1, "the connection is kept");
    let (_, page) = read(api.send("GET", "/metrics", &[], "").await).await;
    let counted = "apiserver_admission_webhook_rejection_count{error_type=\"no_error\",name=\"v.example.org\",\
                   operation=\"CREATE\",rejection_code=\"418\",type=\"validating\"} 1";
    assert!(text(&page).contains(counted), "{page}");
    // Without its configuration it is asked no more, and that one was not its to keep.
    let own = format!("{GROUP}/validatingwebhookconfigurations/v");
    assert_eq!(api.call("DELETE", &own, Value::Null).await.0, 200);
    assert_eq!(api.call("DELETE", &path, Value::Null).await.0, 200);
}

#[tokio::test]
async fn mutating_webhooks_change_an_object_in_the_order_of_their_names() {
    let api = Api::start().await;
    let far = Far::start(&api, |path, review| {
        let stage = format!("/data/{}", path.trim_start_matches('/'));
        let seen = review["request"]["object"]["data"].as_object().map_or(0, serde_json::Map::len);
        patching(
            review,
            &json!([{"op": "add", "path": stage, "value": format!("saw {seen}")},
            {"op": "add", "path": "/unknown", "value": 1}]),
        )
    })
    .await;
    configure(&api, "Mutating", "b", &[hook("b", far.url("/second"), &json!({}))]).await;
    configure(&api, "Mutating", "a", &[hook("a", far.url("/first"), &json!({}))]).await;
    let made = api.make(CONFIG_MAPS, config_map("x", "v")).await;
    assert_eq!(made["data"], json!({"key": "v", "first": "saw 1", "second": "saw 2"}));
    assert_eq!(made["unknown"], Value::Null, "what the schema does not know is dropped");
    assert_eq!(api.get(&format!("{CONFIG_MAPS}/x")).await["data"], made["data"], "it is kept so");
    let (code, refused) = api.call("DELETE", &format!("{CONFIG_MAPS}/x"), Value::Null).await;
    assert_eq!(code, 500);
    assert!(
        message(&refused).contains("attempted to modify the object, which is not supported"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_webhook_that_minds_is_asked_again_when_the_object_changed_after_it() {
    let api = Api::start().await;
    let far = Far::start(&api, |path, review| match path {
        "/late" => patching(review, &json!([{"op": "add", "path": "/data/late", "value": "1"}])),
        _ => reviewed(review, &json!({"allowed": true})),
    })
    .await;
    let again = json!({"reinvocationPolicy": "IfNeeded"});
    let hooks = [
        hook("minds", far.url("/minds"), &again),
        hook("once", far.url("/once"), &json!({})),
        hook("late", far.url("/late"), &json!({})),
        hook("last", far.url("/last"), &again),
    ];
    configure(&api, "Mutating", "c", &hooks).await;
    api.make(CONFIG_MAPS, config_map("x", "v")).await;
    let late = |review: &Value| !review["request"]["object"]["data"]["late"].is_null();
    let asked: Vec<bool> = far.asked().iter().map(late).collect();
    assert_eq!(asked, [false, false, false, true, true], "only the first is asked again, with the change");
}

#[tokio::test]
async fn defaults_follow_what_a_webhook_adds_and_a_status_stays_the_servers() {
    let api = Api::start().await;
    let far = Far::start(&api, |_, review| {
        patching(review, &json!([
            {"op": "add", "path": "/spec/initContainers", "value": [{"name": "added", "image": "example/init:1"}]},
            {"op": "add", "path": "/metadata/uid", "value": "forged"},
            {"op": "add", "path": "/status", "value": {"phase": "Succeeded"}}]))
    })
    .await;
    let rules = json!({"rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]});
    configure(&api, "Mutating", "m", &[hook("m", far.url("/"), &rules)]).await;
    let made = api.make(PODS, pod("p")).await;
    let added = &made["spec"]["initContainers"][0];
    assert_eq!((&added["name"], &added["terminationMessagePolicy"]), (&json!("added"), &json!("File")));
    assert_eq!(made["status"]["phase"], "Pending");
    assert_ne!(made["metadata"]["uid"], "forged");
}

#[tokio::test]
async fn selectors_conditions_and_rules_decide_who_is_asked() {
    let api = Api::start().await;
    let far = Far::start(&api, |_, review| reviewed(review, &json!({"allowed": false}))).await;
    let selector = |key: &str| json!({"matchLabels": {"kubernetes.io/metadata.name": key}});
    let rules = json!([{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"]}]);
    let condition = |text: &str| json!({"matchConditions": [{"name": "c", "expression": text}]});
    for (i, (more, asked)) in [
        (json!({"namespaceSelector": selector("default")}), true),
        (json!({"namespaceSelector": selector("other")}), false),
        (json!({"objectSelector": {"matchLabels": {"app": "web"}}}), true),
        (json!({"objectSelector": {"matchLabels": {"app": "db"}}}), false),
        (json!({"rules": rules}), false),
        (condition("object.metadata.name != 'skip-me'"), true),
        (condition("object.metadata.name == 'skip-me'"), false),
        (condition("request.userInfo.username == 'admin' && namespaceObject == null"), true),
        (
            condition("authorizer.group('').resource('secrets').namespace('default').check('get').allowed()"),
            true,
        ),
        (condition("authorizer.requestResource.check('create').allowed()"), true),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("c{i}");
        configure(&api, "Validating", &name, &[hook("v", far.url("/"), &more)]).await;
        let (code, answer) =
            api.call("POST", &format!("{CONFIG_MAPS}?dryRun=All"), labelled("x", "web")).await;
        assert_eq!(code, if asked { 400 } else { 201 }, "{more}: {answer}");
        let path = format!("{GROUP}/validatingwebhookconfigurations/{name}");
        assert_eq!(api.call("DELETE", &path, Value::Null).await.0, 200);
    }
    // What cannot be said is refused where the webhook must not be done without.
    for (policy, code) in [("Fail", 403), ("Ignore", 201)] {
        let mut more = condition("object.nothing.here");
        more["failurePolicy"] = policy.into();
        configure(&api, "Validating", policy.to_lowercase().as_str(), &[hook("v", far.url("/"), &more)])
            .await;
        let (got, answer) = api.call("POST", &format!("{CONFIG_MAPS}?dryRun=All"), config_map("x", "")).await;
        assert_eq!(got, code, "{policy}: {answer}");
        let path = format!("{GROUP}/validatingwebhookconfigurations/{}", policy.to_lowercase());
        api.call("DELETE", &path, Value::Null).await;
    }
}

#[tokio::test]
async fn a_webhook_that_does_not_answer_is_a_matter_of_its_policy() {
    let api = Api::start().await;
    let far = Far::start(&api, |path, review| match path {
        "/broken" => (500, json!("broken")),
        "/other-uid" => (
            200,
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "response": {"uid": "other", "allowed": true}}),
        ),
        _ => reviewed(review, &json!({"allowed": true})),
    })
    .await;
    let nobody = json!({"url": "https://localhost:1/", "caBundle": far.bundle});
    let strangers = json!({"url": format!("https://localhost:{}/", far.address.port())});
    let elsewhere =
        json!({"url": format!("https://127.0.0.2:{}/", far.address.port()), "caBundle": far.bundle});
    let port = far.address.port();
    for (config, wanted) in [
        (nobody, "Post \"https://localhost:1/?timeout=1s\": dial tcp ".to_owned()),
        (
            strangers,
            "tls: failed to verify certificate: x509: certificate signed by unknown authority".to_owned(),
        ),
        (
            elsewhere,
            "tls: failed to verify certificate: x509: certificate is not valid for any names".to_owned(),
        ),
        (
            far.url("/slow"),
            format!("Post \"https://localhost:{port}/slow?timeout=1s\": context deadline exceeded"),
        ),
        (far.url("/broken"), "an error on the server (".to_owned()),
        (far.url("/other-uid"), "received invalid webhook response: expected response.uid=".to_owned()),
        (far.service("hook", 443, "/"), "service \"hook\" not found".to_owned()),
    ] {
        for policy in ["Fail", "Ignore"] {
            let more = json!({"failurePolicy": policy, "timeoutSeconds": 1});
            configure(&api, "Validating", "v", &[hook("v", config.clone(), &more)]).await;
            let (code, answer) =
                api.call("POST", &format!("{CONFIG_MAPS}?dryRun=All"), config_map("x", "")).await;
            if policy == "Ignore" {
                assert_eq!(code, 201, "{config}: {answer}");
            } else {
                assert_eq!((code, &answer["reason"]), (500, &json!("InternalError")), "{config}: {answer}");
                let begins = "Internal error occurred: failed calling webhook \"v.example.org\": ";
                assert!(
                    message(&answer).starts_with(begins) && message(&answer).contains(&wanted),
                    "{answer}"
                );
            }
            api.call("DELETE", &format!("{GROUP}/validatingwebhookconfigurations/v"), Value::Null).await;
        }
    }
}

#[tokio::test]
async fn a_webhook_is_found_by_its_service() {
    let api = Api::start().await;
    let far = Far::start(&api, |path, review| reviewed(review, &json!({"allowed": path != "/no"}))).await;
    let services = "/api/v1/namespaces/default/services";
    api.make(
        services,
        json!({"metadata": {"name": "hook"}, "spec": {"ports": [{"name": "tls", "port": 8443}]}}),
    )
    .await;
    configure(&api, "Validating", "v", &[hook("v", far.service("hook", 8443, "/no"), &json!({}))]).await;
    let (code, refused) = api.call("POST", CONFIG_MAPS, config_map("x", "")).await;
    assert_eq!(code, 500);
    assert!(message(&refused).contains("no endpoints available for service \"hook\""), "{refused}");
    let slice = json!({"metadata": {"name": "hook-1", "labels": {"kubernetes.io/service-name": "hook"}}, "addressType": "IPv4",
        "ports": [{"name": "tls", "port": far.address.port()}], "endpoints": [{"addresses": [own_address()]}]});
    api.make("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", slice).await;
    let (code, refused) = api.call("POST", CONFIG_MAPS, config_map("x", "")).await;
    assert_eq!(code, 400, "{refused}");
    assert_eq!(
        message(&refused),
        "admission webhook \"v.example.org\" denied the request without explanation"
    );
    let outside = json!({"metadata": {"name": "outside"}, "spec": {"type": "ExternalName", "externalName": "localhost"}});
    api.make(services, outside).await;
    let config =
        json!({"webhooks": [hook("v", far.service("outside", far.address.port(), "/"), &json!({}))]});
    let path = format!("{GROUP}/validatingwebhookconfigurations/v");
    assert_eq!(api.patch(&path, config).await.0, 200);
    api.make(CONFIG_MAPS, config_map("x", "")).await;
}

#[tokio::test]
async fn other_versions_dry_runs_parts_and_connections_are_asked_about_too() {
    let api = Api::start().await;
    let far = Far::start(&api, |_, review| reviewed(review, &json!({"allowed": false}))).await;
    let rule = |group: &str, version: &str, resource: &str| json!({"rules": [{"operations": ["*"], "apiGroups": [group], "apiVersions": [version], "resources": [resource]}]});
    let asked = async |more: &Value, method: &str, path: &str, body: Value| {
        configure(&api, "Validating", "v", &[hook("v", far.url("/"), more)]).await;
        let (code, answer) = api.call(method, path, body).await;
        api.call("DELETE", &format!("{GROUP}/validatingwebhookconfigurations/v"), Value::Null).await;
        (code, answer, far.asked().pop().map(|review| review["request"].clone()).unwrap_or_default())
    };
    let scaler = json!({"metadata": {"name": "s"}, "spec": {"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "d"}}});
    let scalers = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
    let v2 = rule("autoscaling", "v2", "horizontalpodautoscalers");
    let (code, _, request) = asked(&v2, "POST", scalers, scaler.clone()).await;
    assert_eq!(
        (code, &request["object"]["apiVersion"]),
        (400, &json!("autoscaling/v2")),
        "an equivalent version"
    );
    assert_eq!(
        (&request["kind"]["version"], &request["requestKind"]["version"]),
        (&json!("v2"), &json!("v1"))
    );
    let mut exact = v2.clone();
    exact["matchPolicy"] = "Exact".into();
    assert_eq!(
        asked(&exact, "POST", &format!("{scalers}?dryRun=All"), scaler).await.0,
        201,
        "it wants that version alone"
    );
    let mut careless = rule("", "v1", "configmaps");
    careless["sideEffects"] = "NoneOnDryRun".into();
    let (code, _, request) =
        asked(&careless, "POST", &format!("{CONFIG_MAPS}?dryRun=All"), config_map("x", "")).await;
    assert_eq!(
        (code, &request["dryRun"], &request["options"]["dryRun"]),
        (400, &json!(true), &json!(["All"]))
    );
    api.make(PODS, pod("p")).await;
    let exec = format!("{PODS}/p/exec?command=ls&stdin=true");
    let (code, answer, request) = asked(&rule("", "v1", "pods/exec"), "POST", &exec, Value::Null).await;
    assert_eq!(code, 400, "{answer}");
    assert_eq!((&request["operation"], &request["object"]["command"]), (&json!("CONNECT"), &json!(["ls"])));
    assert_eq!(
        (&request["kind"]["kind"], &request["subResource"]),
        (&json!("PodExecOptions"), &json!("exec"))
    );
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
    let (code, _, request) =
        asked(&rule("", "v1", "pods/eviction"), "POST", &format!("{PODS}/p/eviction"), eviction.clone())
            .await;
    assert_eq!((code, &request["object"]["kind"]), (400, &json!("Eviction")));
    // An eviction deletes, which is nobody's wish of its own.
    let (code, answer, _) =
        asked(&rule("", "v1", "pods"), "POST", &format!("{PODS}/p/eviction"), eviction).await;
    assert_eq!(code, 201, "{answer}");
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    api.make(deployments, json!({"metadata": {"name": "d"}, "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}})).await;
    let scale = json!({"metadata": {"name": "d", "namespace": "default"}, "spec": {"replicas": 2}});
    let (code, _, request) =
        asked(&rule("apps", "v1", "deployments/scale"), "PUT", &format!("{deployments}/d/scale"), scale)
            .await;
    assert_eq!(
        (code, &request["object"]["kind"], &request["object"]["spec"]["replicas"]),
        (400, &json!("Scale"), &json!(2))
    );
    assert_eq!(request["oldObject"]["spec"]["replicas"], 1);
}

#[tokio::test]
async fn nobody_decides_about_those_who_decide() {
    let api = Api::start().await;
    let far = Far::start(&api, |_, review| reviewed(review, &json!({"allowed": false}))).await;
    let all = json!({"rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}]});
    configure(&api, "Validating", "v", &[hook("v", far.url("/"), &all)]).await;
    configure(&api, "Mutating", "m", &[hook("m", far.url("/"), &all)]).await;
    assert_eq!(api.call("POST", CONFIG_MAPS, config_map("x", "")).await.0, 400);
    for kind in ["validating", "mutating"] {
        let path = format!("{GROUP}/{kind}webhookconfigurations/{}", &kind[..1]);
        assert_eq!(api.patch(&path, json!({"metadata": {"labels": {"a": "b"}}})).await.0, 200);
        assert_eq!(api.call("DELETE", &path, Value::Null).await.0, 200);
    }
    api.make(CONFIG_MAPS, config_map("x", "")).await;
}

#[tokio::test]
async fn what_webhooks_did_is_noted() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("audit.log");
    let server = start_with(dir.path(), AuditConfig { log: Some(log.clone()), policy: None }).await;
    let api = Api { server, dir };
    let far = Far::start(&api, |path, review| match path {
        "/notes" => reviewed(review, &json!({"allowed": true, "auditAnnotations": {"mood": "good"}})),
        _ => patching(review, &json!([{"op": "add", "path": "/data/new", "value": "1"}])),
    })
    .await;
    let nobody = json!({"url": "https://localhost:1/"});
    configure(&api, "Mutating", "m", &[hook("m", far.url("/"), &json!({}))]).await;
    let hooks =
        [hook("v", far.url("/notes"), &json!({})), hook("gone", nobody, &json!({"failurePolicy": "Ignore"}))];
    configure(&api, "Validating", "v", &hooks).await;
    api.make(CONFIG_MAPS, config_map("x", "")).await;
    api.server.stop().await;
    let annotations = annotations(&log, "configmaps");
    assert_eq!(
        annotations["mutation.webhook.admission.k8s.io/round_0_index_0"],
        "{\"configuration\":\"m\",\"mutated\":true,\"webhook\":\"m.example.org\"}"
    );
    assert_eq!(
        annotations["patch.webhook.admission.k8s.io/round_0_index_0"],
        Value::Null,
        "that tells of the body"
    );
    assert_eq!(annotations["v.example.org/mood"], "good");
    assert_eq!(
        annotations["failed-open.validating.webhook.admission.k8s.io/round_0_index_1"],
        "gone.example.org"
    );
}
